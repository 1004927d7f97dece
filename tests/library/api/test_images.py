"""Each form of an image is the same image; others are refused by name."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import diptych
from diptych.api.images import is_one
from diptych.core import Record, Regions
from diptych.runtime.errors import DataError
from tests.support.service import make_model, picture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    make_model(folder)
    (folder / "a.png").write_bytes(picture())
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> diptych.Model:
    return diptych.load(folder / "model", device="cpu")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def forms(path: Path) -> dict[str, Any]:
    content, image = path.read_bytes(), Image.open(path)
    rows = np.array(image)
    tensor = torch.from_numpy(rows)
    return {
        "path as text": str(path),
        "path": path,
        "bytes": content,
        "bytearray": bytearray(content),
        "memoryview": memoryview(content),
        "open file": io.BytesIO(content),
        "Pillow": image,
        "Pillow with alpha": image.convert("RGBA"),
        "array (H, W, 3)": rows,
        "array (3, H, W)": rows.transpose(2, 0, 1),
        "array of floats": rows / 255,
        "array of half floats": (rows / 255).astype(np.float16).transpose(2, 0, 1),
        "tensor (H, W, 3)": tensor,
        "tensor (3, H, W)": tensor.permute(2, 0, 1),
        "tensor of floats": tensor.permute(2, 0, 1).float() / 255,
        "tensor with a gradient": (tensor.double() / 255).requires_grad_(),
        "datasets, bytes": {"bytes": content, "path": None},
        "datasets, path": {"bytes": None, "path": str(path)},
        "record": Record(key="a", image=path),
        "example": diptych.Dataset([Record(key="a", image=path)])[0],
    }


def test_every_form_gives_the_same_caption(model: diptych.Model, folder: Path, address: str) -> None:
    given = forms(folder / "a.png") | {"URL": f"{address}/a.png"}
    wanted = model.caption(folder / "a.png")
    captions = dict(zip(given, model.caption(list(given.values())), strict=True))
    assert captions == dict.fromkeys(given, wanted)
    assert {name: caption.boxes for name, caption in captions.items()} == dict.fromkeys(given, wanted.boxes)
    alone = {name: model.caption(image) for name, image in (forms(folder / "a.png") | {"URL": given["URL"]}).items()}
    assert alone == captions
    assert {type(caption) for caption in alone.values()} == {diptych.Caption}


def test_a_turned_photograph_is_upright_in_memory_too(model: diptych.Model, folder: Path, tmp_path: Path) -> None:
    image = Image.open(folder / "a.png")
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    opened = model.caption(Image.open(tmp_path / "turned.png"))
    assert (opened.size, opened) == ((40, 48), model.caption(tmp_path / "turned.png"))


CLOSED = io.BytesIO()
CLOSED.close()
REFUSED: dict[str, tuple[Any, str]] = {
    "number": (3.5, r"found float; expected a path"),
    "nothing": (None, r"found NoneType; expected a path"),
    "normalised": (
        np.random.default_rng(0).normal(size=(8, 8, 3)),
        r"array of float64 .* from -.*normalisation",
    ),
    "floats to 255": (torch.full((3, 8, 8), 200.0), r"a tensor of float32 .* values from 200 to 200; expected 0 to 1"),
    "not a number": (np.full((8, 8, 3), np.nan), r"values from nan to nan"),
    "integers": (np.zeros((8, 8, 3), np.int64), r"found an array of int64 and shape \(8, 8, 3\); expected uint8"),
    "grey": (np.zeros((8, 8), np.uint8), r"shape \(8, 8\); expected \(H, W, 3\)"),
    "four channels": (torch.zeros(4, 8, 8), r"shape \(4, 8, 8\); expected"),
    "grey or RGBA": (np.zeros((9, 9, 4), np.uint8), "for grey or RGBA pass PIL.Image.fromarray"),
    "float 255": (np.full((9, 9, 3), 200.0, np.float32), "from 200 to 200; expected 0 to 1: divide by 255"),
    "tiny": (np.zeros((3, 3, 3), np.uint8), "at least 4 pixels on each side"),
    "text file": (io.StringIO("abc"), "the open file returned text; open it with mode 'rb'"),
    "read file": (io.BytesIO(), r"returned no bytes.*\.seek\(0\)"),
    "no image": (b"abc", "the content does not hold an image"),
    "missing": ("nowhere/none.png", "no image at nowhere/none.png"),
    "folder": (Path(), r"\. is a folder, not an image; pass its files"),
    "empty row": ({"bytes": None, "path": None}, r"found dict; expected"),
    "row": ({"image": "a.png"}, r"found dict with image \(row\['image'\] is .*\); expected a path"),
    "empty path": ("", "found an empty path; expected a path"),
    "file address": ("file:///a.png", "found an address that begins with file://; expected a path, an http"),
    "data address": ("data:image/png;base64," + 9999 * "A", "found an address that begins with data:; expected a path"),
    "long name": (9999 * "a", "aaa cannot be a path: File name too long; expected"),
    "zero byte": ("a\0.png", "null byte"),
    "closed file": (CLOSED, "an open file cannot be read: .*closed.*; open it with mode 'rb'"),
    "URL": ("http://127.0.0.1:9/a.png", "cannot fetch http://127.0.0.1:9/a.png: .*; download it"),
    "URL without a host": ("https://", "cannot fetch https://: .*; download it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_image_is_refused_with_its_number(model: diptych.Model, folder: Path, name: str) -> None:
    image, why = REFUSED[name]
    with pytest.raises(DataError, match=rf"^image 1: .*{why}"):
        model.caption([folder / "a.png", image])


def test_one_image_has_no_number(model: diptych.Model) -> None:
    with pytest.raises(DataError, match=r"^found float"):
        model.caption(3.5)


def test_a_list_gives_a_list_and_an_iterator_an_iterator(model: diptych.Model, folder: Path) -> None:
    one = model.caption(folder / "a.png")
    stacked = np.stack([np.array(Image.open(folder / "a.png"))] * 2)
    for several in ((folder / "a.png",) * 2, stacked, torch.from_numpy(stacked), np.array([str(folder / "a.png")] * 2)):
        assert model.caption(several) == [one, one]
    assert model.caption([]) == []
    read = 0

    def images() -> Iterator[Path]:
        nonlocal read
        for _ in range(40):
            read += 1
            yield folder / "a.png"

    captions = model.caption(images())
    assert (iter(captions) is captions, read) == (True, 0)
    assert next(captions) == one
    assert read == 16
    assert list(captions) == [one] * 39


def test_columns_of_tables_are_lists(model: diptych.Model, folder: Path) -> None:
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    one = model.caption(folder / "a.png")
    paths = [str(folder / "a.png")] * 2
    assert model.caption(pandas.DataFrame({"image": paths}, index=[7, 9])["image"]) == [one, one]
    rows = datasets.Dataset.from_dict({"image": paths}).cast_column("image", datasets.Image())
    assert model.caption(rows["image"]) == [one, one]
    undecoded = rows.cast_column("image", datasets.Image(decode=False))
    assert model.caption(row["image"] for row in undecoded).__next__() == one


def test_a_data_set_is_several_images() -> None:
    data = diptych.Dataset([Record(key="a.png", image=Path("a.png"), captions=("a dog",))], "rows")
    assert (is_one(data), is_one(data[0])) == (False, True)


def test_boxes_end_where_the_image_does(model: diptych.Model) -> None:
    beyond = Regions(torch.tensor([[-0.1, 0.0, 1.2, 0.5]]), torch.ones(1), (10, 20))
    assert model._details(Record("a", regions=beyond), Record("a"))["boxes"] == ((0, 0, 10, 10),)
