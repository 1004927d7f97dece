"""Any picture a user has is opened or refused by name."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.runtime.errors import DataError, DiptychError
from diptych.vision import pictures
from diptych.vision.archives import members, read_member
from diptych.vision.features.npz import read_npz
from diptych.vision.features.vl_bert import Archive
from diptych.vision.image_files import find_pictures, read_header
from diptych.vision.pictures import open_picture
from diptych.vision.upright import TooManyPixels

RED, WHITE = [255, 0, 0], [255, 255, 255]


def saved(path: Path, image: Image.Image, **options: object) -> torch.Tensor:
    image.save(path, **options)  # type: ignore[arg-type]
    return open_picture(path)


def corner(picture: torch.Tensor) -> list[int]:
    values: list[int] = picture[:, 0, 0].tolist()
    return values


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("RGB", (255, 0, 0), RED),
        ("L", 100, [100, 100, 100]),
        ("1", 1, WHITE),
        ("LA", (100, 255), [100, 100, 100]),
        ("LA", (100, 0), WHITE),
        ("RGBA", (255, 0, 0, 255), RED),
        ("RGBA", (255, 0, 0, 0), WHITE),
        ("RGBA", (0, 0, 0, 51), [204, 204, 204]),
        ("I;16", 65535, WHITE),
        ("I;16", 32896, [128, 128, 128]),
        ("I;16", 200, [1, 1, 1]),  # dark, but its range is 16 bits
    ],
)
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str, colour: object, expected: list[int]) -> None:
    picture = saved(tmp_path / "a.png", Image.new(mode, (6, 5), colour))  # type: ignore[arg-type]
    assert (picture.shape, picture.dtype) == ((3, 5, 6), torch.uint8)
    assert corner(picture) == expected


def test_palettes_with_and_without_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (6, 5), 1)
    image.putpalette([0, 0, 255, 255, 0, 0])
    assert corner(saved(tmp_path / "a.png", image)) == RED
    assert corner(saved(tmp_path / "b.png", image, transparency=1)) == WHITE
    assert corner(saved(tmp_path / "c.gif", image, transparency=1)) == WHITE
    assert corner(saved(tmp_path / "d.png", image, transparency=0)) == RED


def test_rgb_and_grey_with_a_transparent_colour(tmp_path: Path) -> None:
    assert corner(saved(tmp_path / "a.png", Image.new("RGB", (6, 5), "red"), transparency=(255, 0, 0))) == WHITE
    assert corner(saved(tmp_path / "b.png", Image.new("L", (6, 5), 7), transparency=7)) == WHITE


def test_cmyk_floats_and_whole_numbers(tmp_path: Path) -> None:
    picture = saved(tmp_path / "a.jpg", Image.new("CMYK", (8, 8), (0, 255, 255, 0)))
    assert picture[0].min() > 240
    assert picture[1:].max() < 15
    assert corner(saved(tmp_path / "f.tiff", Image.new("F", (6, 5), 0.5))) == [128, 128, 128]
    assert corner(saved(tmp_path / "g.tiff", Image.new("F", (6, 5), 200.0))) == [200, 200, 200]
    assert corner(saved(tmp_path / "nan.tiff", Image.new("F", (6, 5), float("nan")))) == [0, 0, 0]
    assert corner(saved(tmp_path / "i.tiff", Image.new("I", (6, 5), 65535))) == WHITE
    for mode, most in (("I", 2**24), ("F", 2.0**24)):  # above 16 bits the largest value is white
        wide = Image.new(mode, (6, 5), most // 2)
        wide.putpixel((5, 4), most)
        assert corner(saved(tmp_path / f"{mode}.tiff", wide)) == [128, 128, 128]
    endless = Image.new("F", (6, 5), 0.5)
    endless.putpixel((5, 4), float("inf"))
    assert corner(saved(tmp_path / "inf.tiff", endless)) == [128, 128, 128]


def test_sixteen_bit_colour_is_scaled_not_cut(tmp_path: Path) -> None:
    """Pillow cannot write such a PNG, so it is put together by hand."""
    rows = b"".join(b"\0" + struct.pack(">3H", 65535, 32896, 0) * 4 for _ in range(4))

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", 4, 4, 16, 2, 0, 0, 0)
    path = tmp_path / "deep.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    assert corner(open_picture(path)) == [255, 128, 0]


@pytest.mark.parametrize(("orientation", "where"), [(1, (0, 0)), (3, (-1, -1)), (6, (0, -1)), (8, (-1, 0))])
def test_it_stands_upright(tmp_path: Path, orientation: int, where: tuple[int, int]) -> None:
    """The red corner, top left in the file, goes where the camera says."""
    pixels = np.zeros((32, 64, 3), np.uint8)
    pixels[:8, :8] = RED
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = saved(tmp_path / "a.jpg", Image.fromarray(pixels), exif=exif, quality=95)
    assert picture.shape[1:] == ((32, 64) if orientation in (1, 3) else (64, 32))
    assert picture[0, where[0], where[1]] > 200


def test_the_first_frame_of_an_animation(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (6, 5), colour) for colour in ("red", "blue")]
    for name in ("a.gif", "a.webp", "a.png"):
        options = {"lossless": True} if name == "a.webp" else {}
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **options)  # type: ignore[arg-type]
        assert corner(open_picture(tmp_path / name)) == RED


@pytest.mark.parametrize("size", [(1, 40), (40, 1), (3, 3)])
def test_thin_pictures_are_refused_by_size(tmp_path: Path, size: tuple[int, int]) -> None:
    Image.new("RGB", size).save(tmp_path / "thin.png")
    with pytest.raises(DataError, match=rf"thin\.png is {size[0]} x {size[1]} pixels; expected 4 or more per side"):
        open_picture(tmp_path / "thin.png")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("1", (9000, 8000)).save(tmp_path / "bomb.png")
    assert (tmp_path / "bomb.png").stat().st_size < 20_000
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(DataError, match=r"bomb\.png is 9000 x 8000, more than 64,000,000 pixels"):
        open_picture(tmp_path / "bomb.png")


@pytest.mark.slow
@pytest.mark.large
def test_what_pillow_itself_refuses_as_a_bomb(tmp_path: Path) -> None:
    Image.new("1", (20000, 20000)).save(tmp_path / "bomb.png")
    with pytest.raises(DataError, match=r"bomb\.png has more than 64,000,000 pixels"):
        open_picture(tmp_path / "bomb.png")


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.webp", "a.tiff", "a.bmp"])
def test_cut_files_are_refused(tmp_path: Path, name: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    for kept in (len(content) // 2, 30, 0):
        (tmp_path / name).write_bytes(content[:kept])
        with pytest.raises(DataError, match=rf"{name}.*(cut short|does not hold an image)"):
            open_picture(tmp_path / name)


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("a dog")
    with pytest.raises(DataError, match=r"text\.jpg does not hold an image; pass a file of type \.jpg"):
        open_picture(tmp_path / "text.jpg")
    with pytest.raises(DataError, match=r"no image at .*missing"):
        open_picture(tmp_path / "missing.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(DataError, match=r"cannot read the image .*folder"):
        open_picture(tmp_path / "folder.png")


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.png").touch()
    monkeypatch.setattr(pictures.Image, "open", refuse)
    with pytest.raises(DataError, match=r"cannot read the image .*Permission denied"):
        open_picture(tmp_path / "a.png")


def test_broken_exif_is_no_reason_to_refuse(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 8), "red")
    image.save(tmp_path / "a.jpg", exif=b"Exif\0\0II*\0\xff\xff\xff\xff broken")
    assert open_picture(tmp_path / "a.jpg").shape == (3, 8, 8)


def test_pictures_are_found_below_a_folder_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b.png", "sub/a.JPG", "a.webp", "notes.txt", "c.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [str(p.relative_to(tmp_path)) for p in find_pictures(tmp_path)] == ["a.webp", "b.png", "sub/a.JPG"]


def test_members_packed_with_lzma_and_archives_that_changed_are_refused(tmp_path: Path) -> None:
    """LZMA's header may ask for 4 GiB. The table of contents is cached, by time and size."""
    path = tmp_path / "a.zip"
    ways = {"1.png": zipfile.ZIP_LZMA, "2.png": zipfile.ZIP_BZIP2, "3.png": zipfile.ZIP_STORED}
    for (name, way), method in zip(ways.items(), ("LZMA", "bzip2", ""), strict=True):
        with zipfile.ZipFile(path, "w", way) as archive:
            archive.writestr(name, bytes(100))
        if method:
            sentence = rf"a\.zip: found {name} compressed with {method}, expected deflate; make the zip again"
            with pytest.raises(DataError, match=sentence):
                read_member(path, name)
    known = members(path)
    content = path.read_bytes()
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_bytes(content.replace(b"3.png", b"4.png"))
    os.utime(path, ns=times)
    assert members(path) == known
    with pytest.raises(DataError, match=r"3\.png cannot be read"):
        read_member(path, "3.png")


def test_a_header_of_too_many_pixels_is_refused() -> None:
    """Pillow itself refuses it, also where no limit of pixels is passed."""
    webp = b"RIFFB\2\0\0WEBPVP8XA\xff\xff\xff" + b"\xff" * 99
    with pytest.raises(TooManyPixels, match=r"^the file has more than 64,000,000 pixels; make the image smaller"):
        read_header(webp, "the file")


def bomb(path: Path, name: str, declared: int = 1000) -> Path:
    """Write a zip with a deflated member of 300 MiB whose header says `declared` bytes."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    content = b"".join([*(deflate.compress(bytes(2**20)) for _ in range(300)), deflate.flush()])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    data = bytearray(path.read_bytes())
    for signature, at in ((b"PK\3\4", 8), (b"PK\1\2", 10)):  # method, and 14 bytes later the declared size
        start = data.find(signature) + at
        data[start : start + 2] = zipfile.ZIP_DEFLATED.to_bytes(2, "little")
        data[start + 14 : start + 18] = declared.to_bytes(4, "little")
    path.write_bytes(data)
    return path


def load_judge(path: Path) -> object:
    from diptych_mine.judge.onnx_judge import OnnxJudge

    return OnnxJudge.load(path)


@pytest.mark.parametrize(("name", "read"), [
    ("1.png", lambda path: read_member(path, "1.png")),
    ("features.npy", read_npz),
    ("1.json", lambda path: Archive(path).read("1")),
    ("net.onnx", load_judge),
])  # fmt: skip
def test_a_member_of_a_zip_takes_no_more_memory_than_its_header_says(
    name: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = bomb(tmp_path / ("a.whl" if "onnx" in name else "a.zip"), name)
    tracemalloc.start()
    with pytest.raises(DiptychError, match="Bad CRC-32"):
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20
