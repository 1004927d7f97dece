"""Checks for systems, objectives and tasks, including those of your own package. Call them from pytest tests.

    from diptych.testing import Case, check_heads, check_masks, check_overfit, check_ranks, check_resume

    def test_it_learns_eight_samples():
        check_overfit(Case.of("uniter/small/pretrain"))

    def test_it_resumes(tmp_path):
        check_resume("uniter/small/pretrain", tmp_path)

Each check raises AssertionError with the difference. `Case.of` makes a recipe's model small enough to train in seconds.
"""

from diptych.testing.case import EIGHT, Case
from diptych.testing.checks import check_heads, check_masks, check_overfit
from diptych.testing.runs import check_ranks, check_resume

__all__ = ["EIGHT", "Case", "check_heads", "check_masks", "check_overfit", "check_ranks", "check_resume"]
