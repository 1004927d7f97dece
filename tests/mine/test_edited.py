"""Files of a run that its user added or changed are not replaced by the same command."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from diptych.cli import run_verb
from diptych.runtime.errors import OutputError, RecipeError
from diptych_mine.forgetting import forget
from diptych_mine.settings import MiningSettings, changed

from .conftest import digest, run


@pytest.fixture
def out(mined: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    return shutil.copytree(mined[0], tmp_path / "out")


@pytest.mark.parametrize("name", ["records/00000.jsonl", "records/00001.jsonl", "card.md", "report.html"])
def test_what_a_user_wrote_is_not_replaced(name: str, out: Path, small_web: Path) -> None:
    before = (out / name).read_text() if (out / name).exists() else ""
    (out / name).write_text(f"{before}mine")
    with pytest.raises(OutputError, match=rf"changed after Diptych wrote them \({name}\)"):
        run(out, small_web / "warc")
    assert (out / name).read_text() == f"{before}mine"
    (out / name).write_text(before) if before else (out / name).unlink()
    run(out, small_web / "warc")


def test_other_settings_replace_what_the_run_wrote(out: Path, small_web: Path) -> None:
    before = digest(out)
    run(out, small_web / "warc", settings=changed(MiningSettings(offline=True), ["rules.sides=400"]))
    assert digest(out) != before
    run(out, small_web / "warc")
    assert digest(out) == before


def test_forgetting_keeps_what_a_user_wrote(out: Path, small_web: Path) -> None:
    records = out / "records/00000.jsonl"
    lines = records.read_text().splitlines()
    gone, stays = json.loads(lines[0])["sha256"], json.loads(lines[-1])
    mine = json.dumps(stays | {"captions": ["mine"]})
    records.write_text("\n".join([*lines[:-1], mine, ""]))
    (out / "card.md").write_text("my card")
    (out.parent / "list.txt").write_text(gone)
    assert forget(out, [out.parent / "list.txt"]) == 1
    assert gone not in records.read_text()
    assert records.read_text().splitlines()[-1] == mine
    assert (out / "card.md").read_text() == "my card"
    with pytest.raises(OutputError, match=r"\(card.md, records/00000.jsonl\)"):
        run(out, small_web / "warc")


def test_a_report_written_again_keeps_a_card_of_the_user(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb(["mine", "report", str(out)], debug=False) == 0
    (out / "card.md").write_text("my card")
    assert run_verb(["mine", "report", str(out)], debug=False) == 2
    assert "(card.md); move them" in capsys.readouterr().err
    assert (out / "card.md").read_text() == "my card"


@pytest.mark.parametrize("contact", ["a\r\nX-Evil: c", "a\nb", "né"])
def test_a_contact_that_is_no_header_is_refused(contact: str) -> None:
    with pytest.raises(RecipeError, match=r"contact: found .*, expected printable ASCII"):
        changed(MiningSettings(), [f"fetch.contact={json.dumps(contact)}"])
    assert changed(MiningSettings(), ['fetch.contact="  "']).fetch.contact == ""
