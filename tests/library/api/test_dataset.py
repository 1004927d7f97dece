"""Data sets from files, from COCO's files, and from rows of dicts, pandas and `datasets`."""

import json
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.api.dataset import Dataset
from diptych.api.model import load
from diptych.runtime.errors import DataError, RecipeError

TEXTS = ("a red dog", "a blue kite", "two birds")
SPLITS = ("train", "train", "val")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "diptych" / "images"


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    made = []
    for number in range(3):
        path = tmp_path / "images" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((8, 12, 3), 40 * number, np.uint8)).save(path)
        made.append(path)
    return made


def rows_of(images: list[Path]) -> list[dict[str, object]]:
    columns = zip(images, TEXTS, SPLITS, strict=True)
    return [{"image": str(image), "caption": text, "split": split} for image, text, split in columns]


def test_an_item_is_an_example_and_splits_and_slices_are_data_sets(images: list[Path]) -> None:
    data = Dataset.from_rows(rows_of(images))
    assert data[0].captions == ("a red dog",)
    assert data[0].image.size == (12, 8)
    assert [one.captions for one in data["val"]] == [("two birds",)]
    assert len(data[:2]) == 2
    assert data.splits == {"train": 2, "val": 1}
    assert repr(data) == "<diptych.Dataset rows: 3 images (train 2, val 1); 3 captions>"
    assert repr(data["val"]) == "<diptych.Dataset rows[val]: 1 image (val 1); 1 caption>"
    assert "'a red dog'" in repr(data[0])
    assert (data[2].path, data[2].split) == (images[2], "val")
    with pytest.raises(DataError, match="no split 'test'; it has train, val"):
        data["test"]


def test_what_a_data_set_does_not_have_is_named(images: list[Path]) -> None:
    data = Dataset.from_rows(rows_of(images))
    with pytest.raises(IndexError, match="rows has 3 images, counted from 0, and no image 3"):
        data[3]
    assert (data[-3].record, len(list(data))) == (data[0].record, 3)
    assert Dataset(one for one in data if "dog" in one.captions[0]).records == data[:1].records
    with pytest.raises(TypeError, match="unsupported operand"):
        data + 1  # type: ignore[operator]


def test_a_split_chooses_nothing_in_data_that_names_its_splits(images: list[Path], tmp_path: Path) -> None:
    names = [f"images/{path.name}" for path in images]
    lines = [{"image": name, "captions": ["a dog"], "split": split} for name, split in zip(names, SPLITS, strict=True)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.warns(UserWarning, match=r"select one of train, val by data\[...\], not with split=") as warned:
        assert len(Dataset.read(tmp_path / "own.jsonl", split="val")) == 3
    assert warned[0].filename == __file__


def test_a_misspelt_split_is_warned_of(images: list[Path], tmp_path: Path) -> None:
    lines = [{"image": f"images/{path.name}", "captions": ["a dog"], "splt": "test", "x": 1} for path in images]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.warns(UserWarning, match=r"key 'splt' is not read; did you mean split\?: 1 \(the first: own"):
        Dataset.read(tmp_path / "own.jsonl")


def test_a_repr_is_short_whatever_the_names(images: list[Path]) -> None:
    rows = [row | {"split": f"{'s' * 100}{n}", "caption": "word " * 200} for n, row in enumerate(rows_of(images) * 1)]
    data = Dataset.from_rows(rows)
    assert max(len(repr(data)), len(repr(data[0]))) <= 300


def test_rows_of_one_image_are_joined_and_cells_may_hold_lists(images: list[Path]) -> None:
    path = str(images[0])
    data = Dataset.from_rows(
        [
            {"image": path, "captions": ["one", "two", " "], "split": "train"},
            {"image": path, "question": "what", "answers": [{"answer": "a dog"}, {"answer": "dog"}], "split": "train"},
        ]
    )
    assert [one.captions for one in data] == [("one", "two")]
    assert [(one.text, one.answers) for one in data[0].questions] == [("what", ("a dog", "dog"))]


def test_numbers_in_cells_become_texts(images: list[Path]) -> None:
    row = {"image": str(images[0]), "question": "how many?", "split": "train"}
    rows = [row | {"answer": answer} for answer in (2, 3.0, [2.5, float("nan")], np.int64(7), 2**60 + 1)]
    answers = [one.answers for one in Dataset.from_rows(rows)[0].questions]
    assert answers == [("2",), ("3",), ("2.5",), ("7",), ("1152921504606846977",)]
    with pytest.raises(DataError, match="row 0 has True where a text is expected"):
        Dataset.from_rows([row | {"answer": True}])


def test_regions_are_extracted_once_for_several_runs(
    images: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Dataset.from_rows(rows_of(images))
    with pytest.raises(
        RecipeError, match="detector: found None, expected a folder or name of a detector, or features="
    ):
        data.extract(tmp_path / "store")
    made = data.extract(tmp_path / "store", detector="sample")
    assert [one.record.key for one in made] == [one.record.key for one in data]
    assert made.source == tmp_path / "store"
    capsys.readouterr()
    assert data.extract(tmp_path / "store", detector=load("sample")).records == made.records
    assert capsys.readouterr().err.startswith("0 extracted, 3 were there already")
    with pytest.raises(DataError, match=r"rows already has regions, in the store .*store; use that store"):
        made.extract(tmp_path / "other", detector="sample")
    with pytest.raises(DataError, match="other texts or another split"):
        Dataset.from_rows([row | {"caption": "new"} for row in rows_of(images)]).extract(made.source, detector="sample")


def test_rows_of_pandas_with_named_columns(images: list[Path]) -> None:
    import pandas  # 100 MB, in each worker if at the top

    frame = pandas.DataFrame({"file": list(map(str, images)), "text": TEXTS, "split": ["train"] * 3})
    assert [one.captions for one in Dataset.from_rows(frame, image="file", caption="text")] == [(t,) for t in TEXTS]


def test_images_of_datasets_keep_the_bytes_of_their_files(images: list[Path], cache: Path) -> None:
    import datasets

    made = datasets.Dataset.from_dict({"image": list(map(str, images)), "caption": list(TEXTS)})
    for_bytes = made.map(lambda row: {"image": {"bytes": Path(row["image"]).read_bytes(), "path": None}})
    cast = for_bytes.cast_column("image", datasets.Image())
    data = Dataset.from_rows(datasets.DatasetDict({"train": cast, "validation": cast.select([])}))
    assert data.splits == {"train": 3}
    assert sorted(path.read_bytes() for path in cache.iterdir()) == sorted(path.read_bytes() for path in images)
    assert np.asarray(data[1].image).max() == 40


def test_an_open_image_is_kept_in_the_cache_once(images: list[Path], cache: Path) -> None:
    row = {"image": Image.open(images[1]).convert("CMYK"), "caption": "grey", "split": "train"}
    data = Dataset.from_rows([row, {**row, "caption": "dark"}])
    assert [one.captions for one in data] == [("grey", "dark")]
    assert [path.suffix for path in cache.iterdir()] == [".png"]
    file = BytesIO()
    Image.open(images[1]).save(file, "PNG")
    assert Dataset.from_rows([row | {"image": file.getvalue()}])[0].image.size == (12, 8)
    array = np.full((3, 8, 12), 0.5, np.float32)
    assert Dataset.from_rows([row | {"image": array}])[0].image.getpixel((0, 0)) == (128, 128, 128)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"caption": None}, r"row 1 .* has no words: found image, caption, split, expected a caption"),
        ({"caption": float("nan")}, "row 1 .* has no words"),
        ({"question": "what is it"}, "row 1 .* has a question but no answer"),
        ({"image": "missing.png"}, "row 1: there is no image missing.png"),
        ({"image": 7}, "row 1: found int; expected a path"),
        ({"split": 3.0}, "row 1 has the split 3.0, expected a name such as 'train'"),
        ({"split": 3}, "row 1 has the split 3, expected a name such as 'train'"),
        ({"image": b"no image"}, "row 1: the content does not hold an image"),
        ({"image": "images/0.png", "split": "val"},
         "this image has the splits train and val, expected one split; correct the image's lines or rows"),
    ],
)  # fmt: skip
def test_a_faulty_row_is_refused_by_number(
    images: list[Path], change: dict[str, object], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(images[0].parent.parent)
    rows = rows_of([path.relative_to(images[0].parent.parent) for path in images])
    rows[1] |= change
    with pytest.raises(DataError, match=error):
        Dataset.from_rows(rows)


def test_what_is_no_rows_is_refused(images: list[Path]) -> None:
    for wrong, error in (
        ([], "found no rows"),
        ("a.png", "found str, expected a list of dicts"),
        ([1], "row 0 is of type int"),
        ({"image": ["a.png"], "caption": ["a"]}, "found a mapping with image, caption, expected a list of rows"),
    ):
        with pytest.raises(DataError, match=error):
            Dataset.from_rows(wrong)
    unnamed = [{"file": row["image"], "caption": row["caption"]} for row in rows_of(images)]
    with pytest.raises(DataError, match="row 0 has no column 'image'; set image= to one of file, caption"):
        Dataset.from_rows(unnamed)
    with pytest.raises(DataError, match=r"row 0 has no column 'text' \(caption=\); it has image, caption, split"):
        Dataset.from_rows(rows_of(images), caption="text")


def test_files_of_coco_get_the_split_that_they_do_not_name(images: list[Path], tmp_path: Path) -> None:
    listed = [{"id": n, "file_name": path.name, "width": 12, "height": 8} for n, path in enumerate(images)]
    notes = [{"id": n, "image_id": n, "caption": text} for n, text in enumerate(TEXTS)]
    halves = []
    for split, of in (("train", slice(0, 2)), ("val", slice(2, 3))):
        file = tmp_path / f"captions_{split}.json"
        file.write_text(json.dumps({"images": listed[of], "annotations": notes[of]}))
        halves.append(Dataset.from_coco(file, images[0].parent, split=split))
    data = halves[0] + halves[1]
    assert data.splits == {"train": 2, "val": 1}
    with pytest.raises(DataError, match="this image has the splits val and train"):
        data + Dataset.from_coco(tmp_path / "captions_val.json", images[0].parent, split="train")


def test_images_of_coco_are_found_in_the_folder_of_the_files_name(images: list[Path], tmp_path: Path) -> None:
    (tmp_path / "annotations").mkdir()
    images[0].parent.rename(tmp_path / "val2017")
    listed = [{"id": 0, "file_name": "0.png", "width": 12, "height": 8}]
    content = {"images": listed, "annotations": [{"id": 0, "image_id": 0, "caption": "a dog"}]}
    for folder in (tmp_path, tmp_path / "annotations"):
        file = folder / "captions_val2017.json"
        file.write_text(json.dumps(content))
        assert Dataset.read(file, split="val")[0].image.size == (12, 8)
    (tmp_path / "val2017").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"found no image .*/0.png; download it, or pass the images' folder with `im"):
        Dataset.read(tmp_path / "captions_val2017.json")


def test_a_file_of_lines_is_read_as_extract_reads_it(images: list[Path]) -> None:
    lines = images[0].parent / "mine.jsonl"
    lines.write_text(
        "\n".join(json.dumps({"image": p.name, "captions": [t]}) for p, t in zip(images, TEXTS, strict=True))
    )
    data = Dataset.read(lines, split="train")
    assert data.name == "mine"
    assert [one.record.key for one in data] == ["0.png", "1.png", "2.png"]


def test_what_is_passed_over_is_warned_of_once_and_many_are_an_error_unless_skipped(images: list[Path]) -> None:
    """By `read` and by `from_coco`, with the count and the first three; as the verbs' --skip-bad."""
    folder = images[0].parent
    file = folder / "m.jsonl"
    good = json.dumps({"image": "0.png", "captions": ["a dog"]})
    notes = [{"image_id": 0, "caption": "a dog"}]
    coco = folder / "captions_val.json"
    for bad, is_wrong in ((4, False), (11, True)):
        file.write_text("\n".join([good, *["{"] * bad]))
        coco.write_text(
            json.dumps({"images": [{"id": 0, "file_name": "0.png"}], "annotations": [*notes, *[{"image_id": 0}] * bad]})
        )
        for path, made in (
            (file, lambda **more: Dataset.read(file, **more)),
            (coco, lambda **more: Dataset.from_coco(coco, folder, split="val", **more)),
        ):
            if is_wrong:
                with pytest.raises(DataError, match=r"11 of 12 entries are invalid.*skip_bad=True"):
                    made()
            with pytest.warns(
                UserWarning, match=f"{path.name}: skipped or corrected: invalid entries: {bad}"
            ) as caught:
                data = made(skip_bad=True) if is_wrong else made()
            assert ([one.captions for one in data], len(caught)) == ([("a dog",)], 1)
            assert str(caught[0].message).count(" | ") == 2
            assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file.write_text(good)
        assert len(Dataset.read(file)) == 1
