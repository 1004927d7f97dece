"""A run of each system, killed and resumed, ends like one that was not, to the bit; two ranks train like one."""

from pathlib import Path

import pytest

from diptych.systems import SYSTEMS
from diptych.testing import check_ranks, check_resume

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_killed_run_resumes_to_the_same_weights(system: str, tmp_path: Path) -> None:
    check_resume(f"{system}/small/pretrain", tmp_path)


@pytest.mark.parametrize("system", SYSTEMS)
def test_two_ranks_train_like_one(system: str, tmp_path: Path) -> None:
    check_ranks(f"{system}/small/pretrain", tmp_path)
