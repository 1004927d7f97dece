"""No verb changes what is not its own: every verb, every output, every victim."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack.outputs import Case, cases, changed, contents, outputs_of, verbs


def test_there_are_more_than_four_hundred_combinations() -> None:
    assert len(cases()) >= 400
    assert {case.verb for case in cases()} >= {"push", "caption", "extract", "pretrain", "export", "search", "mine run"}


@pytest.mark.parametrize("verb", sorted({case.verb for case in cases()}))
def test_nothing_of_the_user_s_changes(verb: str, tmp_path: Path) -> None:
    broken = []
    for number, case in enumerate(case for case in cases() if case.verb == verb):
        (tmp_path / str(number)).mkdir()
        if (found := changed(case, tmp_path / str(number))) is not None:
            broken.append(found.how)
    assert not broken, "\n".join(broken)


def test_what_is_called_an_output_is_declared_as_one() -> None:
    """By name, so that a new verb cannot leave it out."""
    named = {
        (verb, one.name)
        for verb, command in verbs().items()
        for one in command.params
        if one.name in ("out", "show", "cache", "tars", "pairs")
    }
    declared = {(verb, name) for verb, command in verbs().items() for name in outputs_of(command)}
    assert named <= declared


def test_the_test_would_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb that writes over a photograph in place of the check."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").write_text("1")
    before = contents(tmp_path)
    (tmp_path / "b").write_text("2")
    assert contents(tmp_path) != before
    monkeypatch.setattr("diptych.cli.outputs.refuse_folder", lambda folder, _: (folder / "a.png").write_bytes(b""))
    (tmp_path / "place").mkdir()
    assert changed(Case("export", "out", "photographs"), tmp_path / "place") is not None
