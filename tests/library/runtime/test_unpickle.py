"""Pickles of others: what may come out of one does, and nothing in one is ever run."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diptych.runtime import unpickle
from diptych.runtime.errors import DataError

FEATURES = Path(__file__).parents[2] / "data" / "region_features"
PLAIN: dict[str, Any] = {
    "numbers": np.arange(6).reshape(2, 3), "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big end": np.ones(2, ">f4"), "half": np.ones((2, 1), np.float16), "empty": np.zeros((0, 3)),
    "texts": np.array(["a", "bc"]), "scalar": np.float32(3), "flag": np.True_, "none": None,
    "record": np.array({"bbox": np.ones((2, 4)), "names": ["x", b"\xff", ""]}, dtype=object),
    "set": {1, 2}, "pair": (np.ones(1), "x", b"", 2**70, 0.5),
}  # fmt: skip


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and one.dtype.hasobject:
        return same(one.tolist(), other.tolist())
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype.newbyteorder("=") and np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(type(one) is type(other) and one == other)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_come_back(protocol: int) -> None:
    found = unpickle.loads(pickle.dumps(PLAIN, protocol), "a")
    assert found.keys() == PLAIN.keys()
    for name, value in found.items():
        assert same(value, PLAIN[name]), name
    assert found["fortran"].flags.f_contiguous
    found["numbers"][0, 0] = 9  # an array of one's own


def test_what_is_there_once_stays_once_also_in_a_circle() -> None:
    shared: list[Any] = [np.ones(2)]
    shared.append(shared)
    found = unpickle.loads(pickle.dumps({"a": shared, "b": (shared, shared)}), "a")
    assert found["a"] is found["b"][0] is found["b"][1] is found["a"][1]
    bomb: list[Any] = [np.ones(2)]
    for _ in range(200):  # 2 ** 200 leaves, were they walked one by one
        bomb = [bomb, bomb]
    assert len(unpickle.loads(pickle.dumps(bomb), "a")) == 2


def test_what_python_2_wrote(tmp_path: Path) -> None:
    found = unpickle.load(FEATURES / "detectron_pkl" / "python2_protocol2.pkl")
    truth = np.load(FEATURES / "detectron_pkl" / "truth.npz")
    assert {name for name in found["blobs"] if not name.endswith("momentum")} <= set(truth.files)
    assert all(np.array_equal(found["blobs"][name], truth[name]) for name in truth.files)
    assert found["cfg"].startswith("!!python")  # a text, and nothing more


class Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "evil",
    [Calls(os.mkdir, "made"), Calls(eval, "open('made', 'w')"), Calls(getattr, Path, "cwd"), Calls(bytes, 10**12),
     Calls(np.load, "made"), Calls(np.dtype, "O,O"), np.zeros(2, [("a", "O"), ("b", "f4")]), np.dtype("f4"),
     Path("made"), np.ma.masked_array([1.0]), np.datetime64("2020"), len, range(3),
     Calls(np.ndarray, (3,)), Calls(np.ndarray.__new__, np.ndarray, (10**12,))],
    ids=lambda evil: "" if isinstance(evil, Calls) else repr(evil),  # an id must be the same in every process
)  # fmt: skip
def test_calls_are_refused_and_not_made(evil: Any, protocol: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({"features": np.ones(3), "more": [evil]}, protocol)
    with pytest.raises(DataError, match=r"^some file: found .*(no code of it was run|no pickle that can be read)"):
        unpickle.loads(content, "some file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        (b"cposix\nsystem\n(S'touch made'\ntR.", "calls posix.system"),
        (b"(S'touch made'\nios\nsystem\n.", "calls os.system"),
        (b"\x80\x02cnumpy\ndtype\n}X\x06\x00\x00\x00_buildcposix\nsystem\nsb.", "sets the state|calls posix"),
        (b"\x80\x02cnumpy\ndtype\nN}X\x06\x00\x00\x00_buildK\x01s\x86b.", "sets the state of an object"),
        (b"\x80\x02cnumpy\ndtype\n.", "holds a function"),
        (b"\x80\x02cnumpy\nndarray\n)R.", "creates an array without its data"),
        (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nccollections\nOrderedDict\nK\x00\x85C\x01b\x87R.",
         "an array whose class is not numpy's"),
        (b"\x80\x02\x82\x01.", "extension code 1"),
        (b"P1\n.", "refers to an object outside"),
        (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", "no pickle that can be read"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "no pickle that can be read|more memory"),
        (b"\x80\x05\x96\x00\x00\x00\x00\x00\x10\x00\x00.", "no pickle that can be read"),  # 16 TiB of a bytearray
        (b"]r\xff\xff\xff\x7f0", "no pickle that can be read"),
        (b"", "no pickle"), (b"]" * 100_000 + b"a" * 99_999 + b".", "no pickle that can be read"),
    ],
)  # fmt: skip
def test_opcodes_of_ones_own_are_refused(content: bytes, refused: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=refused):
        unpickle.loads(content, "a")
    assert list(tmp_path.iterdir()) == []


def test_an_array_has_as_many_bytes_as_it_says() -> None:
    whole = pickle.dumps(np.arange(4, dtype="<i4"), 2)
    assert b"K\x04\x85" in whole
    for count in (9, 3):
        with pytest.raises(DataError, match=rf"has 16 bytes for an array of shape \({count},\) and type int32"):
            unpickle.loads(whole.replace(b"K\x04\x85", bytes([0x4B, count, 0x85])), "a")
    with pytest.raises(DataError, match="numpy type 'V8'"):
        unpickle.loads(pickle.dumps(np.zeros(2, "V8"), 2), "a")


def test_any_bytes_are_read_or_refused() -> None:
    whole, drawn, refused = pickle.dumps(PLAIN, 2), random.Random(0), 0
    for _ in range(1000):
        content = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            place = drawn.randrange(len(content))
            content[place : place + drawn.randint(0, 3)] = drawn.randbytes(drawn.randint(0, 3))
        try:
            unpickle.loads(bytes(content), "a")
        except DataError as error:
            assert str(error).startswith("a: found")  # noqa: PT017
            refused += 1
    assert refused > 500


def test_hostile_files_are_refused() -> None:
    with pytest.raises(DataError, match=r"detectron_evil.pkl: found a pickle that calls"):
        unpickle.load(FEATURES / "hostile" / "detectron_evil.pkl")
    with pytest.raises(DataError, match="cannot be read"):
        unpickle.load(FEATURES / "none.pkl")
