"""Every verb opens an image through one function: upright once, 16 bits scaled, metadata no reason to refuse it."""

import io
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin

from diptych.data.formats.table import read
from diptych.vision.image_files import count_frames, open_pixels, picture_size, read_header, read_pixels
from diptych_mine.judge.decode import measure
from diptych_mine.pages.tars import tar_lines
from diptych_mine.settings import PictureRules
from diptych_serve.export import runner
from tests.support.tiffs import grey_tiff

WIDE = np.zeros((40, 60, 3), np.uint8)
WIDE[:10, 45:] = 250  # the marked corner of the upright image: x 45 to 60, y 0 to 10
# How a camera stores an upright image, by EXIF's orientation.
STORED = {
    1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1), 6: np.rot90, 7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, -1),
}  # fmt: skip
FORMS = {
    "tif": {}, "deflate.tif": {"compression": "tiff_deflate"}, "jpg": {"quality": 95, "subsampling": 0}, "png": {},
    "webp": {"lossless": True},
}  # fmt: skip
RULES = PictureRules(small_file=None, large_file=None, sides=None, ratio=None)
XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>'
)


def turned(path: Path, orientation: int, **options: object) -> Path:
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(np.ascontiguousarray(STORED[orientation](WIDE))).save(path, exif=exif, **options)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("form", FORMS)
def test_size_and_boxes_agree_with_the_pixels(tmp_path: Path, form: str, orientation: int) -> None:
    path = turned(tmp_path / f"a.{form}", orientation, **FORMS[form])
    pixels = open_pixels(path)
    assert picture_size(path) == (60, 40) == pixels.shape[1::-1]
    np.testing.assert_allclose(pixels.astype(int), WIDE, atol=16)
    assert read_header(path.read_bytes(), "a")[1:] == (60, 40)
    measures, fails, image = measure(path.read_bytes(), RULES)
    assert (measures["width"], measures["height"], fails) == (60, 40, [])
    np.testing.assert_array_equal(np.asarray(image), pixels)
    np.testing.assert_array_equal(runner.open_picture(path), pixels)
    lines = tmp_path / "own.jsonl"
    lines.write_text(f'{{"image": "a.{form}", "expression": "the corner", "box": [45, 0, 15, 10]}}')
    (record,) = read(lines)
    assert record.expressions[0].box == pytest.approx((0.75, 0, 1, 0.25))


@pytest.mark.parametrize("orientation", [5, 6, 8])
@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA", "P", "I;16"])
def test_a_turned_tiff_of_any_mode_is_whole(tmp_path: Path, mode: str, orientation: int) -> None:
    """Pillow 13 maps these into memory with the sides swapped, where it is given a path."""
    exif = Image.Exif()
    exif[0x112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](WIDE[..., 0])))
    if mode == "I;16":
        stored = Image.fromarray(np.asarray(stored).astype(np.uint16) * 257)
    stored.convert(mode).save(tmp_path / "a.tif", exif=exif)
    for pixels in (open_pixels(tmp_path / "a.tif"), runner.open_picture(tmp_path / "a.tif")):
        np.testing.assert_allclose(pixels.astype(int), WIDE, atol=3)


RAMP = np.linspace(0, 1, 2400).reshape(40, 60)


@pytest.mark.parametrize(
    ("values", "bits", "form", "white"),
    [
        ((RAMP * (2**32 - 1)).astype("<u4"), 32, 1, 1), ((RAMP * (2**31 - 1)).astype("<i4"), 32, 2, 1),
        (RAMP.astype("<f4"), 32, 3, 1), (RAMP.astype("<f4"), 32, 3, 0), ((RAMP * 65535).astype("<u2"), 16, 1, 1),
        ((RAMP * 65535).astype("<u2"), 16, 1, 0), ((RAMP * 255).astype("u1"), 8, 1, 0),
        ((RAMP * 255).astype("<f4"), 32, 3, 1), ((RAMP * 32767).astype("<i2"), 16, 2, 1),
    ],
)  # fmt: skip
def test_grey_tiffs_of_any_numbers_are_as_bright_as_they_are(
    values: np.ndarray, bits: int, form: int, white: int
) -> None:
    pixels = read_pixels(grey_tiff(values, bits, form, white), "a.tif")
    np.testing.assert_allclose(pixels[..., 0], 255 * (RAMP if white else 1 - RAMP), atol=1)


def test_a_dark_image_of_sixteen_bits_stays_dark() -> None:
    """A PGM of 16 bits whose values would also be some of 8 bits."""
    values = (RAMP * 255).astype(">u2")
    assert read_pixels(b"P5 60 40 65535\n" + values.tobytes(), "a.pgm").max() == 1


@pytest.mark.parametrize("top", [1.004, 1.5, 255, 262])
def test_a_float_above_white_makes_no_image_dark(top: float) -> None:
    """As resampling and lights leave it."""
    values = (RAMP * (1 if top < 2 else 255)).astype("<f4")
    values[-1, -1] = top
    pixels = read_pixels(grey_tiff(values, 32, 3, 1), "a.tif")
    np.testing.assert_allclose(pixels[..., 0], 255 * RAMP, atol=1)


@pytest.mark.parametrize(
    ("depth", "colour", "key", "row"),
    [
        (16, 0, struct.pack(">H", 300), struct.pack(">8H", *[300] * 4, *[40_000] * 4)),
        (16, 2, struct.pack(">3H", 300, 300, 300), struct.pack(">24H", *[300] * 12, *[40_000] * 12)),
        (8, 0, struct.pack(">H", 5), bytes([5] * 4 + [156] * 4)),
        (4, 0, struct.pack(">H", 5), bytes([0x55, 0x55, 0x99, 0x99])),
        (2, 0, struct.pack(">H", 1), bytes([0b01010101, 0b10101010])),
    ],
)
def test_the_transparent_colour_of_a_png_is_white_in_any_depth(depth: int, colour: int, key: bytes, row: bytes) -> None:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, depth, colour, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress((b"\0" + row) * 8))
    pixels = read_pixels(b"\x89PNG\r\n\x1a\n" + head + chunk(b"tRNS", key) + rows + chunk(b"IEND", b""), "a.png")
    assert pixels[:, :4].min() == 255
    assert 140 < pixels[:, 4:].min() <= pixels[:, 4:].max() < 180


@pytest.mark.parametrize("form", ["tif", "jpg", "png", "webp"])
def test_an_orientation_in_xmp_alone_is_applied_once(tmp_path: Path, form: str) -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_itxt("XML:com.adobe.xmp", XMP)
    options = {"tif": {"tiffinfo": {700: XMP.encode()}}, "png": {"pnginfo": texts}}.get(form, {"xmp": XMP.encode()})
    Image.fromarray(np.ascontiguousarray(np.rot90(WIDE))).save(tmp_path / f"a.{form}", **options)  # type: ignore[arg-type]
    assert picture_size(tmp_path / f"a.{form}") == (60, 40) == open_pixels(tmp_path / f"a.{form}").shape[1::-1]


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(*chunks: bytes, after: bool = False) -> bytes:
    """A PNG with chunks before its pixels, or after them."""
    file = io.BytesIO()
    Image.fromarray(WIDE).save(file, "PNG")
    whole = file.getvalue()
    at = whole.index(b"IEND" if after else b"IDAT") - 4
    return whole[:at] + b"".join(chunks) + whole[at:]


LONG = zlib.compress(bytes(3_000_000))
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
ODD: dict[str, Callable[[], bytes]] = {  # up to 70 MB each
    "workflow": lambda: png(chunk(b"zTXt", b"workflow\0\0" + LONG)),
    "at the end": lambda: png(chunk(b"zTXt", b"workflow\0\0" + LONG), after=True),
    "unicode": lambda: png(chunk(b"iTXt", b"prompt\0\1\0\0\0" + LONG)),
    "profile": lambda: png(chunk(b"iCCP", b"wide\0\0" + LONG)),
    "much": lambda: png(*[chunk(b"tEXt", b"a\0" + b"a" * 1_000_000)] * 70),
    "many": lambda: png(*[chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1_000_000)))] * 70),
    "sum": lambda: png(chunk(b"tEXt", b"a\0b")[:-1] + b"?"),
    "small profile": lambda: png(chunk(b"iCCP", b"sRGB\0\0" + zlib.compress(PROFILE))),
}


@pytest.mark.parametrize("name", ODD)
def test_texts_and_profiles_are_no_reason_to_refuse_a_png(tmp_path: Path, name: str) -> None:
    content = ODD[name]()
    (tmp_path / "a.png").write_bytes(content)
    np.testing.assert_array_equal(open_pixels(tmp_path / "a.png"), WIDE)
    assert picture_size(tmp_path / "a.png") == (60, 40)
    assert count_frames(content, "a") == 1
    assert measure(content, RULES)[1] == []


def test_orientation_counts_where_other_texts_are_too_long() -> None:
    xmp = chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP.encode())
    assert read_pixels(png(xmp, chunk(b"zTXt", b"workflow\0\0" + LONG)), "a").shape == (60, 40, 3)


def test_a_camera_that_adds_views_writes_no_animation() -> None:
    file = io.BytesIO()
    Image.fromarray(WIDE).save(file, "MPO", save_all=True, append_images=[Image.fromarray(WIDE)])
    measures, fails, _ = measure(file.getvalue(), RULES)
    assert (measures["type"], measures["frames"], fails) == ("jpg", 1, [])


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_by_mining_and_exports_too(tmp_path: Path, form: str) -> None:
    grey = np.arange(60 * 40, dtype=np.uint16).reshape(40, 60) * 27
    Image.fromarray(grey).save(tmp_path / "a.bin", form)
    _, fails, image = measure((tmp_path / "a.bin").read_bytes(), RULES)
    assert fails == []
    for pixels in (np.asarray(image), open_pixels(tmp_path / "a.bin"), runner.open_picture(tmp_path / "a.bin")):
        np.testing.assert_array_equal(pixels[..., 1], (grey / 257).round())


def test_endings_of_tars_and_of_files_in_them_have_any_case(tmp_path: Path) -> None:
    names = ["a.JPG", "b.Jpeg", "c.png", "d.TIFF", "e.gif", "f.bmp", "g.JFIF"]
    with tarfile.open(tmp_path / "0.TAR", "w") as tar:
        for name in names:
            words = f"{name[0]}.{'TXT' if name[0] < 'c' else 'txt'}"
            # macOS adds `._a.JPG` with what it notes of a.JPG
            for member, content in ((f"._{name}", b"notes"), (name, png()), (words, b"a red kite")):
                (info := tarfile.TarInfo(member)).size = len(content)
                tar.addfile(info, io.BytesIO(content))
    lines = list(tar_lines(tmp_path / "0.TAR", "key"))
    assert [line.address.rpartition("/")[2] for line in lines] == names
    assert [line.texts for line in lines] == [("a red kite",)] * len(names)
    assert [record.captions for record in read(tmp_path)] == [("a red kite",)] * len(names)
