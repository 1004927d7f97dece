"""Names of images in another form than on the disk, and folders of images with a table of the hub."""

from pathlib import Path
from unicodedata import normalize

import pytest
from PIL import Image

from diptych.data.formats.parsing import BAD, Skips
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
    with pytest.raises(DataError, match="found no image"):
        read(tmp_path / "in" / "mine.jsonl")


def test_a_folder_of_images_with_the_hubs_table_is_read(tmp_path: Path) -> None:
    """Each split's folder has its table; the table itself may be given too, and captions may be a list."""
    for split, lines in {
        "train": ['{"file_name": "0.png", "text": "a red corner"}', '{"file_name": "0.png", "text": "a corner"}'],
        "validation": ['{"file_name": "1.png", "caption": ["a blue corner", " "], "n": 3}'],
    }.items():
        (tmp_path / split).mkdir()
        (tmp_path / split / "metadata.jsonl").write_text("\n".join(lines))
        for name in ("0.png", "1.png", "without.png"):
            Image.new("RGB", (8, 8)).save(tmp_path / split / name)
    skips = Skips()
    first, second = read(tmp_path, skips=skips)
    assert (first.key, first.split, first.captions) == ("train/0.png", "train", ("a red corner", "a corner"))
    assert (second.key, second.split, second.captions) == ("validation/1.png", "val", ("a blue corner",))
    assert second.image == tmp_path / "validation" / "1.png"
    assert skips.counts == {"empty captions": 1}
    for path in (tmp_path / "train", tmp_path / "train" / "metadata.jsonl"):
        (alone,) = read(path)
        assert (alone.key, alone.image) == ("0.png", tmp_path / "train" / "0.png")
    (tmp_path / "train" / "metadata.jsonl").write_text('{"file_name": "0.png", "label": 3}')
    with pytest.raises(DataError, match=r"line 1.*wanted a text, or a list of texts, under one of text, caption"):
        read(tmp_path / "train")


def test_a_metadata_csv_is_read_as_the_lines_are(tmp_path: Path) -> None:
    """Cells may hold commas, quotes and new lines; a row with too few or many fields costs itself."""
    for name in ("0.png", "1.png", "2.png", "3.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    rows = ["file_name,text,n", '0.png,"a ""red"" corner, or\ntwo",1', '1.png,"no end,2', "2.png,a corner,3",
            "3.png,a,b,c", "2.png,a blue corner,4", "", "0.png, ,5"]  # fmt: skip
    (tmp_path / "metadata.csv").write_bytes("\r\n".join(rows).encode("utf-8-sig"))
    for path in (tmp_path, tmp_path / "metadata.csv"):
        skips = Skips()
        first, second = read(path, skips=skips)
        assert (first.key, first.image) == ("0.png", tmp_path / "0.png")
        assert first.captions[0].split() == ["a", '"red"', "corner,", "or", "two"]
        assert (second.key, second.captions) == ("2.png", ("a corner", "a blue corner"))
        assert skips.counts == {"entries that make no sense": 2, "empty captions": 1}
        assert "metadata.csv line 4: found no fields, wanted 3: file_name, text, n" in skips.first[BAD]
