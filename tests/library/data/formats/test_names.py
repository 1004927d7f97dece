"""Names of images in another form than on the disk, and folders of images with a table of the hub."""

import io
import tarfile
from pathlib import Path
from unicodedata import normalize

import pytest
from PIL import Image

from diptych.core import Record
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
    assert skips.counts == {"empty captions": 1, "images without a row in a table (not read)": 4}
    for path in (tmp_path / "train", tmp_path / "train" / "metadata.jsonl"):
        (alone,) = read(path)
        assert (alone.key, alone.image) == ("0.png", tmp_path / "train" / "0.png")
    (tmp_path / "train" / "metadata.jsonl").write_text('{"file_name": "0.png", "label": 3}')
    with pytest.raises(DataError, match=r"line 1.*expected a text, or a list of texts, under one of text, caption"):
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
        unread = {"images without a row in a table (not read)": 2} if path == tmp_path else {}
        assert skips.counts == {"invalid entries": 2, "empty captions": 1, **unread}
        assert "metadata.csv line 4: found no fields, expected the 3 fields file_name, text, n" in skips.first[BAD]


CAPTIONED: dict[str, tuple[str, tuple[str, ...]]] = {  # what a file of each format calls two of three captions
    "captions.json": (
        '{"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"id": 91, "image_id": 1, "caption": "a dog"}, '
        '{"id": 92, "image_id": 1, "caption": " "}, {"id": "b", "image_id": 1, "caption": "a cat"}]}',
        ("91", "b"),
    ),
    "dataset_coco.json": (
        '{"images": [{"filename": "1.jpg", "split": "val", "sentences": [{"raw": "a dog", "sentid": 91}, {"raw": ""}, '
        '{"raw": "a cat"}]}]}',
        ("91", ""),
    ),
    "region_descriptions.json": (
        '[{"id": 1, "regions": [{"phrase": "a dog", "region_id": 91}, {"phrase": ""}, {"phrase": "a cat", '
        '"region_id": 93}]}]',
        ("91", "93"),
    ),
    "Flickr8k.token.txt": ("1.jpg#0\ta dog\n1.jpg#1\t\n1.jpg#2\ta cat\n", ("1.jpg#0", "1.jpg#2")),
    "own.jsonl": ('{"image": "1.jpg", "captions": ["a dog", "", "a cat"], "caption_ids": [91, 92, "b"]}', ("91", "b")),
    "lines.jsonl": (
        '{"image": "1.jpg", "captions": ["a dog"]}\n{"image": "1.jpg", "captions": ["a cat"], "caption_ids": ["b"]}',
        ("", "b"),
    ),
}


@pytest.mark.parametrize("name", CAPTIONED)
def test_ids_of_captions_are_kept(name: str, tmp_path: Path) -> None:
    content, ids = CAPTIONED[name]
    (tmp_path / name).write_text(content)
    (record,) = read(tmp_path / name, need_pictures=False)
    assert (record.captions, record.caption_ids) == (("a dog", "a cat"), ids)


def test_ids_that_are_not_one_a_caption_cost_their_line(tmp_path: Path) -> None:
    whole = '{"image": "1.jpg", "captions": ["a dog"]}\n'
    (tmp_path / "own.jsonl").write_text(whole + '{"image": "2.jpg", "captions": ["a cat"], "caption_ids": [1, 2]}')
    skips = Skips()
    (record,) = read(tmp_path / "own.jsonl", need_pictures=False, skips=skips)
    assert (record.key, "found 2 ids, expected one for each of 1 captions" in skips.first[BAD]) == ("1.jpg", True)


def test_ids_of_captions_stay_with_them_where_records_are_joined() -> None:
    without, named = Record("a", captions=("x", "y")), Record("a", captions=("z",), caption_ids=("7",))
    assert without.joined(named).caption_ids == ("", "", "7")
    assert [named.joined(without).caption_id(number) for number in range(3)] == ["7", "", ""]
    assert named.joined(without).joined(named).caption_ids == ("7", "", "", "7")


def test_keys_with_dots_follow_webdatasets_rule(tmp_path: Path) -> None:
    """Where the whole names are not those of a pair, the part before the first dot is the key, if it is one pair's."""
    from diptych_mine.pages.tars import tar_lines

    names = [
        ("1.input.jpg", "1.outputs.txt"), ("2.a.jpg", "2.a.txt"), ("2.b.jpg", "2.b.txt"), ("v1.5/3.jpg", "v1.5/3.txt"),
    ]  # fmt: skip
    alone = ["4.a.jpg", "4.b.jpg", "4.c.txt", "5.jpg", "6.txt"]
    content = io.BytesIO()
    Image.effect_noise((400, 400), 90).convert("RGB").save(content, "JPEG")
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for name in (*(one for pair in names for one in pair), *alone):
            body = content.getvalue() if name.endswith("jpg") else f"a dog of {name}".encode()
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    skips = Skips()
    records = read(tmp_path, skips=skips)
    wanted = {image: f"a dog of {text}" for image, text in names}
    assert {str(one.image).partition("0.tar/")[2]: one.captions[0] for one in records} == wanted
    assert skips.counts == {"images without a caption": 3, "captions without an image": 2}
    lines = [one for one in tar_lines(tmp_path / "0.tar", "k") if one.texts]
    assert {one.address.partition("0.tar/")[2]: one.texts[0] for one in lines} == wanted


def test_utf_16_is_read_and_whole_numbers_are_ids(tmp_path: Path) -> None:
    line = '{"image": "1.jpg", "captions": ["a dog", "a cat", "x"], "caption_ids": [5.0, true, 1.5]}'
    for encoding in ("utf-8", "utf-16", "utf-16-be"):
        (tmp_path / "own.jsonl").write_text(line, encoding)
        skips = Skips()
        assert read(tmp_path / "own.jsonl", need_pictures=False, skips=skips)[0].caption_ids == ("5", "", "")
        assert skips.counts == {"caption ids that are neither a text nor a whole number": 2}
