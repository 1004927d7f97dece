"""A process that does the dangerous part costs one request, whatever it does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest

from diptych.runtime.errors import DataError
from diptych.vision.features import h5
from diptych.vision.features.files import open_features
from diptych.vision.limited import Ended, LimitedProcesses
from tests.support.feature_files import FILES, IDS, VLP, copied
from tests.support.odd_process import LOWER

WAYS = [
    ("segfault", r"ended its process \(-11\)"),
    ("hang", r"took more than 0\.5 seconds"),
    ("eat", r"ended its process \(1\), perhaps for lack of memory"),
    ("exit", r"ended its process \(0\)"),
    ("lie", "ended its process"),
    ("objects", "ended its process"),
    ("more", "ended its process"),
    ("less", "ended its process"),
    ("strange", "ended its process"),
    ("endless", "ended its process"),
]


@pytest.fixture(scope="module")
def processes() -> Iterator[LimitedProcesses]:
    made = LimitedProcesses("tests.support.odd_process", {"DataError": DataError}, 1, seconds=0.5)
    yield made
    made.close()


@pytest.mark.parametrize(("way", "message"), WAYS, ids=[way for way, _ in WAYS])
def test_what_a_process_does_costs_its_request_alone(way: str, message: str, processes: LimitedProcesses) -> None:
    with pytest.raises(Ended, match=message):
        processes.ask({"way": way})
    values, array = processes.ask({"way": "well"})
    assert values == {"way": "well"}
    assert array is not None
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert array.dtype == np.float16


def test_a_lower_limit_of_the_user_is_kept(processes: LimitedProcesses) -> None:
    """The module lowers its hard limit first, as `ulimit -v` does; raising it would be refused."""
    processes.ask({"way": "well"})
    (child,) = processes._idle
    assert psutil.Process(child.process.pid).rlimit(psutil.RLIMIT_AS) == (LOWER, LOWER)
    assert processes.memory > LOWER


def test_a_file_that_ends_its_reader_is_named_and_given_up(
    processes: LimitedProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(h5, "_readers", lambda: processes)
    files = h5.OpenFiles()
    bad, good = Path("/data/segfault.h5"), Path("/data/well.h5")
    for _ in range(h5.MOST_ENDED):
        with pytest.raises(DataError, match=r"^here: found unreadable data in /data/segfault\.h5 \(HDF5 ended its"):
            files.array(bad, "1", "here")
    asked = len(processes._idle)
    with pytest.raises(DataError, match=r"which crashed 3 processes, expected a file that HDF5 can read; down"):
        files.array(bad, "1", "here")
    assert len(processes._idle) == asked == 0
    assert files.array(good, "1", "here").shape == (2, 3)


def test_a_reader_that_was_killed_is_started_again_and_lets_go_of_idle_files(tmp_path: Path) -> None:
    folder = copied(VLP, tmp_path)
    files = open_features(folder)
    (child,) = h5._readers()._idle
    child.process.kill()
    child.process.wait()
    place = files.exact[IDS[0]]
    before = place.unit.read(place.name).features
    time.sleep(0.8)
    for path in folder.rglob("*_feat042.h5"):
        with h5py.File(path, "a") as file:  # Needs a lock, which an open reader has.
            file[IDS[0]][...] = before + 1
    assert np.array_equal(place.unit.read(place.name).features, before + 1)


def test_the_arrays_of_an_image_take_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    place = open_features(FILES / VLP).exact[IDS[0]]
    asked, ask = [], LimitedProcesses.ask
    monkeypatch.setattr(LimitedProcesses, "ask", lambda self, request: asked.append(request) or ask(self, request))
    raw = place.unit.read(place.name)
    assert raw.boxes is not None
    assert raw.classes is not None
    assert [len(request["paths"]) for request in asked] == [3]


def test_of_several_files_the_one_that_ends_its_reader_is_named(
    processes: LimitedProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process replies for one file, whatever it is asked: then each file is read by itself."""
    monkeypatch.setattr(h5, "_readers", lambda: processes)
    files = h5.OpenFiles()
    bad, good, other = (Path(f"/data/{name}.h5") for name in ("segfault", "well", "other"))
    assert [array is not None and array.shape for array in files.each([good, other], "1", "here").values()] == [
        (2, 3)
    ] * 2
    with pytest.raises(DataError, match=r"^here: found unreadable data in /data/segfault\.h5 \(HDF5 ended its"):
        files.each([bad, good], "1", "here")
    assert dict(files._ended) == {bad: 1}
