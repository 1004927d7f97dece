"""Images are decoded in processes that end at a deadline and at a limit of memory."""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from benchmarks.hostile_images import image, jpeg_of_many_scans, plain_ppm, tiff_of_one_tile
from diptych.runtime.errors import DataError
from diptych.vision.decoder import Decoders
from diptych.vision.image_files import open_pixels, read_pixels
from diptych.vision.upright import TooManyPixels, UnknownFormat


@pytest.fixture
def decoders() -> Iterator[Decoders]:
    made = Decoders(2)
    yield made
    made.close()


def noise(path: Path, size: tuple[int, int] = (64, 48)) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if "diptych.vision.decoder" in one.cmdline()]


def test_pixels_are_those_of_this_process(decoders: Decoders, tmp_path: Path) -> None:
    path = noise(tmp_path / "a.jpg", (900, 700))
    assert np.array_equal(decoders.open(path), open_pixels(path))
    assert np.array_equal(decoders.read(path.read_bytes(), "x"), open_pixels(path))


def test_many_threads_share_two_processes(decoders: Decoders, tmp_path: Path) -> None:
    paths = [noise(tmp_path / f"{side}.png", (side, side)) for side in range(8, 40)]
    before = len(children())
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(decoders.open, paths))
    assert [one.shape[0] for one in opened] == list(range(8, 40))
    assert len(children()) - before <= 2


def test_errors_are_those_of_this_process(decoders: Decoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("no image")
    for kind, wrong in ((DataError, Path("missing.png")), (UnknownFormat, Path("words.txt"))):
        with pytest.raises(kind) as here:
            open_pixels(wrong)
        with pytest.raises(kind) as there:
            decoders.open(wrong)
        assert str(here.value) == str(there.value)
    with pytest.raises(TooManyPixels, match="the upload is 40 x 40, more than 100 pixels"):
        decoders.read(image(), "the upload", 100)


def test_frames_are_counted(decoders: Decoders, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "green")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    pixels, count = decoders.read_frames((tmp_path / "a.gif").read_bytes(), "x", 100)
    assert (pixels.shape, count) == ((8, 8, 3), 3)


def test_an_image_that_takes_too_long_ends_its_process_and_no_other() -> None:
    decoders = Decoders(1, seconds=0.3)
    bomb = jpeg_of_many_scans(7900, 14)  # as many scans as an ordinary file may have, but of 62 million pixels
    begun = time.process_time()
    with pytest.raises(DataError, match=r"the upload: decoding took more than 0\.3 seconds; save it again"):
        decoders.read(bomb, "the upload")
    assert time.process_time() - begun < 2
    assert decoders.read(image(), "x").shape == (40, 40, 3)
    decoders.close()


@pytest.mark.slow
@pytest.mark.large
def test_memory_is_limited() -> None:
    decoders = Decoders(1, memory=700 * 2**20)
    with pytest.raises(DataError, match="the upload"):
        decoders.read(image(7900), "the upload")  # 187 MB, several times
    assert decoders.read(image(), "x").shape == (40, 40, 3)
    decoders.close()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets glibc's malloc, and this is another")
def test_a_process_uses_the_memory_of_one_image_for_the_next(
    decoders: Decoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel fills each new page with zeros, which took as long as half of the decoding."""
    monkeypatch.delenv("DIPTYCH_MALLOC")
    path, before = noise(tmp_path / "a.jpg", (640, 640)), {one.pid for one in children()}
    for _ in range(3):
        decoders.open(path)
    (child,) = (one for one in children() if one.pid not in before)

    def faults() -> int:
        return int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[7])

    first = faults()
    for _ in range(10):
        decoders.open(path)
    assert faults() - first < 10 * 100  # of 300 pages of pixels, several times


def test_processes_yield_to_others_as_wanted() -> None:
    decoders, before = Decoders(1, nice=5), {one.pid for one in children()}
    decoders.read(image(), "x")
    (child,) = (one for one in children() if one.pid not in before)
    assert child.nice() == psutil.Process().nice() + 5
    decoders.close()


def test_a_process_that_was_killed_is_started_again(decoders: Decoders) -> None:
    decoders.read(image(), "x")
    for child in children():
        os.kill(child.pid, signal.SIGKILL)
        while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
    assert decoders.read(image(), "x").shape == (40, 40, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: jpeg_of_many_scans(3000, 200), "202 scans"),
        (lambda: tiff_of_one_tile(9000), "tiles of 9000 x 9000"),
        (lambda: plain_ppm(1100, 1000), "pixels as text"),
    ],
    ids=["scans", "tile", "text"],
)
def test_files_that_cost_too_much_are_refused_by_their_headers(
    content: Callable[[], bytes], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("decoded"))
    with pytest.raises(TooManyPixels, match=f"{message}, so reading it costs as much as 64,000,000 pixels or more"):
        read_pixels(content(), "x")


@pytest.mark.parametrize("content", [jpeg_of_many_scans(300, 10), tiff_of_one_tile(256, 100), plain_ppm(20, 30)])
def test_ordinary_files_of_these_kinds_are_read(content: bytes) -> None:
    assert read_pixels(content, "x").dtype == np.uint8
