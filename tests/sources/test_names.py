"""Names of images in another form than on the disk, and folders of images with a table of the hub."""

from pathlib import Path
from unicodedata import normalize

import pytest
from PIL import Image

from diptych.data.formats.parsing import Skips
from diptych.data.formats.table import read
from diptych.runtime.errors import DataError


@pytest.mark.parametrize(
    ("there", "named"),
    [
        (normalize("NFC", "café.png"), normalize("NFD", "café.png")),
        (normalize("NFD", "café.png"), normalize("NFC", "café.png")),
        ("images/one.png", "images\\\\one.png"),
        (normalize("NFD", "é/ü.png"), normalize("NFC", "é\\\\ü.png")),
    ],
)
def test_a_name_in_another_form_is_matched_and_counted(there: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / there
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)
    (tmp_path / "mine.jsonl").write_text(f'{{"image": "{named}", "captions": ["a red corner"]}}\n', "utf-8")
    skips = Skips()
    (record,) = read(tmp_path / "mine.jsonl", skips=skips)
    assert record.image == path
    assert list(skips.counts.values()) == [1]
    assert "another Unicode form" in str(skips)


def test_backslashes_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "out.png")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mine.jsonl").write_text('{"image": "..\\\\out.png", "captions": ["a red corner"]}\n')
    with pytest.raises(DataError, match="found no picture"):
        read(tmp_path / "in" / "mine.jsonl")
