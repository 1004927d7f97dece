"""An exported run.py reads images and texts as Diptych does, with the same code and without the package."""

from __future__ import annotations

import ast
import json
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer

from diptych.data.store.texts import SPECIAL
from diptych.data.store.tokens import Tokens
from diptych.runtime.errors import DataError
from diptych.vision.image_files import open_pixels
from diptych_serve.export.write import runner_source
from tests.support.tiffs import grey_tiff

RAMP = np.tile(np.linspace(0, 1, 64), (48, 1))
RGB = (np.stack([RAMP, RAMP[:, ::-1], np.full_like(RAMP, 0.4)], -1) * 255).astype(np.uint8)
PLAIN = Image.fromarray(RGB)
RGBA = Image.fromarray(np.dstack([RGB, (RAMP * 255).astype(np.uint8)]))
FRAMES = [Image.fromarray(np.full((48, 64, 3), value, np.uint8)) for value in (40, 200)]
ALL_FRAMES: dict[str, Any] = {"save_all": True, "append_images": FRAMES[1:]}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("program") / "run.py"
    path.write_text(runner_source(), "utf-8")
    return SimpleNamespace(**run_path(str(path)))


def exif(orientation: int) -> Image.Exif:
    made = Image.Exif()
    made[0x112] = orientation
    return made


# {file name: (image, options of Pillow)}
SAVED: dict[str, tuple[Image.Image, dict[str, Any]]] = {
    "plain.png": (PLAIN, {}), "plain.jpg": (PLAIN, {}), "plain.bmp": (PLAIN, {}), "plain.ppm": (PLAIN, {}),
    "grey16.png": (Image.fromarray((RAMP * 65535).astype(np.uint16)), {}),
    "grey16.tif": (Image.fromarray((RAMP * 65535).astype(np.uint16)), {}),
    "grey12.tif": (Image.fromarray((RAMP * 4095).astype(np.uint16)), {}),
    "int32.tif": (Image.fromarray((RAMP * 65535).astype(np.int32)), {}),
    "int32_of_8.tif": (Image.fromarray((RAMP * 255).astype(np.int32)), {}),
    "float1.tif": (Image.fromarray(RAMP.astype(np.float32)), {}),
    "float255.tif": (Image.fromarray((RAMP * 255).astype(np.float32)), {}),
    "float_nan.tif": (Image.fromarray(np.where(RAMP > 0.5, np.nan, RAMP).astype(np.float32)), {}),
    "alpha.png": (RGBA, {}), "alpha.webp": (RGBA, {"lossless": True}), "alpha.tif": (RGBA, {}),
    "la.png": (RGBA.convert("LA"), {}), "palette.png": (PLAIN.convert("P"), {"transparency": 3}),
    "grey_key.png": (PLAIN.convert("L"), {"transparency": 102}),
    "rgb_key.png": (PLAIN, {"transparency": (0, 255, 102)}),
    "cmyk.jpg": (PLAIN.convert("CMYK"), {}), "cmyk.tif": (PLAIN.convert("CMYK"), {}),
    "lab.tif": (PLAIN.convert("LAB"), {}), "ycbcr.tif": (PLAIN.convert("YCbCr"), {}),
    "bit.png": (Image.fromarray(RAMP > 0.5), {}), "bit.tif": (Image.fromarray(RAMP > 0.5), {}),
    "animation.gif": (FRAMES[0], ALL_FRAMES),
    "animation.webp": (FRAMES[0], ALL_FRAMES | {"lossless": True}),
    "animation.png": (FRAMES[0], ALL_FRAMES),
    "pages.tif": (FRAMES[0], ALL_FRAMES), "packed.tif": (PLAIN, {"compression": "tiff_lzw"}),
    **{
        f"exif{number}.{form}": (PLAIN, {"exif": exif(number), **({"lossless": True} if form == "webp" else {})})
        for number in range(2, 9) for form in ("jpg", "png", "webp", "tif")
    },
}  # fmt: skip


def keyed_png(depth: int) -> bytes:
    """A grey PNG of 8 x 8 pixels and `depth` bits, half of them with the transparent value 1."""
    row = {2: bytes([0b01010101, 0b10101010]), 4: bytes([0x11, 0x11, 0x99, 0x99])}[depth]
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 8, 8, depth, 0, 0, 0, 0)), (b"tRNS", struct.pack(">H", 1)),
        (b"IDAT", zlib.compress((b"\0" + row) * 8)), (b"IEND", b""),
    )  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


# {file name: content}, of files that Pillow does not write
WRITTEN: dict[str, Callable[[], bytes]] = {
    "unsigned32.tif": lambda: grey_tiff((RAMP * (2**32 - 1)).astype("<u4"), 32, 1, 1),
    "signed32.tif": lambda: grey_tiff((RAMP * (2**31 - 1)).astype("<i4"), 32, 2, 1),
    "signed16.tif": lambda: grey_tiff((RAMP * 32767).astype("<i2"), 16, 2, 1),
    "white_is_zero.tif": lambda: grey_tiff(RAMP.astype("<f4"), 32, 3, 0),
    "white_is_zero8.tif": lambda: grey_tiff((RAMP * 255).astype("u1"), 8, 1, 0),
    "dark.pgm": lambda: b"P5 64 48 65535\n" + (RAMP * 255).astype(">u2").tobytes(),
    "key2.png": lambda: keyed_png(2), "key4.png": lambda: keyed_png(4),
}  # fmt: skip


@pytest.mark.parametrize("name", [*SAVED, *WRITTEN])
def test_an_exported_program_reads_the_same_pixels(exported: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name in SAVED:
        image, options = SAVED[name]
        image.save(path, **options)
    else:
        path.write_bytes(WRITTEN[name]())
    pixels = exported.open_picture(path)
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, open_pixels(path))


def test_floats_and_32_bits_are_as_bright_as_8(exported: Any, tmp_path: Path) -> None:
    for name in ("float1.tif", "int32.tif", "float255.tif", "grey16.png"):
        SAVED[name][0].save(tmp_path / name)
        np.testing.assert_allclose(exported.open_picture(str(tmp_path / name))[..., 0], RAMP * 255, atol=1)


@pytest.mark.parametrize("content", [b"", b"<html>", b"GIF89a", "cut", "small", "large", None])
def test_an_exported_program_refuses_files_with_the_same_words(exported: Any, tmp_path: Path, content: Any) -> None:
    path = tmp_path / "a.jpg"
    sizes = {"small": (3, 9), "large": (8001, 8000)}
    if content == "cut":
        PLAIN.save(path)
        path.write_bytes(path.read_bytes()[:-200])
    elif isinstance(content, str):
        Image.new("1", sizes[content]).save(path, "PNG")
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as ours:
        open_pixels(path)
    with pytest.raises(ValueError) as theirs:
        exported.open_picture(path)
    assert str(theirs.value) == str(ours.value)


WORDS = ["a dog on a sofa", "the sign says [sep] STOP [MASK]", "isn't it 7:30, 'tis?", "naïve ΣΚΥΛΟΣ café 🪁 ж"] * 3
TEXTS = [
    *(f"the sign says {token} stop" for token in SPECIAL), "".join(SPECIAL), "[[SEP]]", "x[MASK]y", "[sep] [Mask]",
    "cafe\u0301 ΣΚΥΛΟΣ", "👨‍👩‍👧 a 🪁", "the dog's t-shirt at 7:30, (isn't it)?", " a  dog\n", "zzz ☃", "", "1,000",
]  # fmt: skip


def bert(folder: Path, lowercase: bool) -> Tokens:
    words = [*SPECIAL, *"[]'-:,.()?0137", "a", "dog", "the", "sign", "says", "sep", "mask", "pad", "unk", "cls", "stop",
             "##s", "s", "t", "SEP", "MASK", "PAD", "UNK", "CLS", "shirt", "at", "it", "cafe", "σκυλοσ"]  # fmt: skip
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(words)))
    tokens = Tokens.from_vocabulary(folder / "vocab.txt", lowercase=False)
    if lowercase:
        made = json.loads(tokens.to_json())
        made["normalizer"]["lowercase"] = True
        tokens = Tokens(Tokenizer.from_str(json.dumps(made)))
    return tokens


KINDS: dict[str, Callable[[Path], Tokens]] = {
    "uncased": lambda folder: bert(folder, True), "cased": lambda folder: bert(folder, False),
    "own": lambda _: Tokens.train(WORDS, 150), "own cased": lambda _: Tokens.train(WORDS, 150, lowercase=False),
    "bpe": lambda _: Tokens.train(WORDS, 150, kind="bpe"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_program_reads_and_writes_the_same_texts(exported: Any, tmp_path: Path, kind: str) -> None:
    tokens = KINDS[kind](tmp_path)
    tokens.save(tmp_path)
    theirs = exported.Encoder(Tokenizer.from_file(str(tmp_path / "tokenizer.json")))
    assert vars(theirs.vocabulary) == vars(tokens.vocabulary)
    for text in TEXTS:
        ids = tokens.encode(text)
        assert theirs.encode(text) == ids, text
        assert not {*ids} & {getattr(tokens.vocabulary, name) for name in ("pad", "cls", "sep", "mask")}, text
        assert theirs.decode([*ids, tokens.vocabulary.sep, *ids]) == tokens.decode(ids), text
    everything = range(tokens.vocabulary.size)
    assert [theirs.decode([n]) for n in everything] == [tokens.decode([n]) for n in everything]


def test_the_program_imports_nothing_of_diptych_and_defines_no_name_twice() -> None:
    """The modules that are copied into it have names of their own."""
    tree = ast.parse(runner_source())
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in named} == {
        "__future__", "collections", "dataclasses", "functools", "hashlib", "io", "itertools", "json", "pathlib", "re",
        "sys", "types", "typing", "unicodedata", "warnings", "numpy", "PIL", "onnxruntime", "sacremoses", "torch",
        "tokenizers",
    }  # fmt: skip
    defined: Counter[str] = Counter()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            defined[node.name] += 1
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined.update(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
    assert defined["Encoder"] == defined["read_image"] == defined["DataError"] == 1
    assert not [name for name, count in defined.items() if count > 1]
