"""What a user who is not root may not read is named: it is neither left out, nor called damaged, nor replaced."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diptych.core import Record
from diptych.data.check import check
from diptych.data.store.store import Store
from diptych.runtime.errors import DataError
from diptych.runtime.files import files_below, write_atomically
from diptych.runtime.outputs import copy_folder, whole_folder
from diptych.testing.runs import toy_store
from diptych.vision.image_files import find_pictures, open_pixels

NOBODY = 65534


@contextmanager
def not_root() -> Iterator[None]:
    """Give up root's right to read everything, as far as this process has it."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter. Those of pytest are private."""
    with tempfile.TemporaryDirectory(prefix="diptych-permissions-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_images_in_an_unreadable_folder_are_not_left_out(place: Path) -> None:
    for name in ("a/1.png", "b/2.png"):
        (place / name).parent.mkdir()
        (place / name).write_bytes(b"")
    assert find_pictures(place) == [place / "a/1.png", place / "b/2.png"]
    (place / "b").chmod(0)
    with (
        not_root(),
        pytest.raises(DataError, match=r"cannot read the folder .*/b: Permission denied; make it readable"),
    ):
        find_pictures(place)
    assert files_below(place / "none") == []


def test_a_link_to_a_folder_is_listed_and_not_entered(place: Path) -> None:
    (place / "a").mkdir()
    (place / "a/1.png").write_bytes(b"")
    (place / "b").symlink_to(place / "a")
    (place / "a/up").symlink_to(place)
    assert files_below(place) == [place / "a/1.png", place / "a/up", place / "b"]


def test_a_folder_with_an_unreadable_part_is_not_replaced(place: Path) -> None:
    with not_root():
        for number in range(2):
            with whole_folder(place / "model", "model") as folder:
                (folder / "weights").write_text(str(number))
        (place / "model/mine").mkdir()
        (place / "model/mine/file").write_text("mine")
        (place / "model/mine").chmod(0)
        with pytest.raises(DataError, match=r"model/mine: Permission denied"):  # noqa: SIM117
            with whole_folder(place / "model", "model"):
                raise AssertionError("the folder would be replaced")
        (place / "model/mine").chmod(0o700)
    assert (place / "model/mine/file").read_text() == "mine"
    assert (place / "model/weights").read_text() == "1"
    assert sorted(path.name for path in place.iterdir()) == ["model"]


def test_what_is_replaced_keeps_its_permissions(place: Path) -> None:
    (file := place / "captions.txt").write_text("old")
    (folder := place / "programs").mkdir()
    file.chmod(0o600)
    folder.chmod(0o700)
    write_atomically(file, b"new")
    with whole_folder(folder, "programs") as temporary:
        assert mode(temporary) == 0o700
        (temporary / "a").write_text("a")
    assert (mode(file), mode(folder), file.read_text()) == (0o600, 0o700, "new")


def test_a_copy_of_a_read_only_folder_can_be_removed(place: Path) -> None:
    (source := place / "source").mkdir()
    (source / "inner").mkdir()
    (source / "inner/file").write_text("a")
    for path in (source / "inner/file", source / "inner", source):
        path.chmod(0o555)
    with not_root():
        for _ in range(2):
            copy_folder(source, place / "copy", "detector")
        assert (place / "copy/inner/file").read_text() == "a"
        shutil.rmtree(place / "copy")
    assert [path.name for path in place.iterdir()] == ["source"]


def test_an_unreadable_shard_is_not_called_missing(place: Path) -> None:
    for shard in toy_store(place / "store").glob("shard-*"):
        shard.chmod(0)
    with not_root(), pytest.raises(DataError, match=r"Permission denied.*; make it readable, copy it again"):
        Store(place / "store").record(0)


def test_an_unreadable_image_is_not_called_missing(place: Path) -> None:
    (image := place / "a.png").write_bytes(b"")
    image.chmod(0)
    with not_root():
        with pytest.raises(DataError, match=r"^cannot read the image .*a.png: Permission denied; make it readable$"):
            open_pixels(image)
        checked = check([Record("a", "train", image, captions=("a dog",))])
    assert [one.kind for one in checked.findings if "picture" in one.kind] == ["picture unreadable"]
