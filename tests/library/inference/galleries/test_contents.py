"""Images by the hash of their files, which is kept, and trusted only while nothing shows a change."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest
from PIL import Image

from diptych.inference.galleries.contents import read_contents
from diptych.runtime.files import sha256_of_json, stamp_of


def test_a_picture_that_was_copied_or_touched_is_the_same_and_one_that_changed_is_not(tmp_path: Path) -> None:
    photos, cache = tmp_path / "photos", tmp_path / "cache"
    photos.mkdir()
    (photos / "a.png").write_bytes(b"one")
    (photos / "b.png").write_bytes(b"two")
    first, _ = read_contents(photos, cache)
    (photos / "c.png").write_bytes(b"one")
    (photos / "a.png").touch()
    (photos / "b.png").write_bytes(b"six")
    second, refused = read_contents(photos, cache)
    assert second[photos / "a.png"] == second[photos / "c.png"] == first[photos / "a.png"]
    assert second[photos / "b.png"] != first[photos / "b.png"]
    cache.mkdir(exist_ok=True)
    (cache / "contents.json").write_text("[1")
    assert read_contents(photos, cache) == (second, refused)


def test_an_image_replaced_by_one_of_equal_size_and_time_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, now = tmp_path / "photos", time.time_ns
    photos.mkdir()
    for name, content in (("a.png", b"one"), ("b.png", b"two")):
        (photos / name).write_bytes(content)
        os.utime(photos / name, (1, 1))
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10**10)
    first, _ = read_contents(photos, tmp_path)
    (photos / "a.png").rename(tmp_path / "c.png")  # the times of change stay, as on disks that do not keep them
    (photos / "b.png").rename(photos / "a.png")
    (tmp_path / "c.png").rename(photos / "b.png")
    (photos / "c.png").write_bytes(b"new")
    with monkeypatch.context() as counted:
        counted.setattr("diptych.inference.galleries.contents.sha256_of", lambda path: path.name)
        second, _ = read_contents(photos, tmp_path)
        assert set(second.values()) == {"a.png", "b.png", "c.png"}
    third, _ = read_contents(photos, tmp_path)
    assert [third[photos / name] for name in ("a.png", "b.png")] == list(first.values())[::-1]


def test_unchanged_images_are_read_once_and_those_changed_just_now_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr("diptych.inference.galleries.contents.sha256_of", lambda path: read.append(path) or "a" * 64)
    photos, now = tmp_path / "photos", time.time_ns
    photos.mkdir()
    (photos / "a.png").write_bytes(b"one")
    for _ in range(2):
        read_contents(photos, tmp_path / "cache")
    assert len(read) == 2
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10**10)
    for _ in range(2):
        read_contents(photos, tmp_path / "cache")
    assert len(read) == 3


def test_a_changed_digit_of_the_kept_hashes_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos, now = tmp_path / "photos", time.time_ns
    photos.mkdir()
    (photos / "a.png").write_bytes(b"one")
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10**10)
    first, _ = read_contents(photos, tmp_path)
    text = (tmp_path / "contents.json").read_text()
    (content,) = first.values()
    assert content in text
    (tmp_path / "contents.json").write_text(text.replace(content, content[::-1]))
    assert read_contents(photos, tmp_path) == (first, {})


@pytest.mark.parametrize(
    "said",
    [["../../etc"], ["g" * 64], [], [None], {"a": 1}, [[], [], []], "abc", 3],
)
def test_hashes_that_are_none_are_made_anew(tmp_path: Path, said: object) -> None:
    picture = tmp_path / "pictures" / "a.png"
    picture.parent.mkdir()
    Image.new("RGB", (8, 8)).save(picture)
    if isinstance(said, list) and len(said) < 2:
        said = [stamp_of(picture), *said]
    wanted = ([hashlib.sha256(picture.read_bytes()).hexdigest()], {})
    for states in ({"a.png": said}, said):
        (tmp_path / "contents.json").write_text(json.dumps([sha256_of_json(states), states]))
        found, refused = read_contents(picture.parent, tmp_path)
        assert (list(found.values()), refused) == wanted
