"""Pictures in, a store out: order, resume, failures by name, interruption."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from diptych.core import FeatureContract, Object, Record, Regions
from diptych.data.extract import extract as extraction
from diptych.data.extract.extract import extract
from diptych.data.store.store import Store
from diptych.runtime.engine.outcome import Counts, Work
from diptych.runtime.errors import DataError, RecipeError
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.ground_truth import GroundTruth
from diptych.vision.detectors.selection import Selection
from tests.support import toy

small_detector = partial(toy.detector, 64, Selection(most=3, least=3))


class Mean:
    """Detector whose one region is the picture, its feature the mean of each colour; it notes what it was shown."""

    needs_pictures = True
    network = None

    def __init__(self, stop_at: int | None = None) -> None:
        self.batches: list[list[tuple[int, ...]]] = []
        self.stop_at = stop_at

    @property
    def contract(self) -> FeatureContract:
        return FeatureContract("mean", "", 3)

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        assert len(pictures) == len(records)
        if self.stop_at is not None and len(self.batches) == self.stop_at:
            raise KeyboardInterrupt
        self.batches.append([tuple(p.shape[1:]) for p in pictures])
        return [
            Regions(
                boxes=torch.tensor([[0.0, 0.0, 1.0, 1.0]]),
                scores=torch.ones(1),
                size=(p.shape[2], p.shape[1]),
                features=p.float().mean((1, 2))[None],
            )
            for p in pictures
        ]

    def save(self, folder: Path) -> None: ...


@pytest.fixture
def make_records(tmp_path: Path) -> Callable[[int], list[Record]]:
    def make(count: int) -> list[Record]:
        records = []
        for number in range(count):
            path = tmp_path / f"{number:03d}.png"
            Image.new("RGB", (20, 10) if number % 2 else (10, 20), (number, 0, 0)).save(path)
            records.append(Record(f"k{number}", image=path, captions=(f"picture {number}",)))
        return records

    return make


MakeRecords = Callable[[int], list[Record]]


def test_another_picture_of_a_name_that_is_there_is_refused(make_records: MakeRecords, tmp_path: Path) -> None:
    """Two sets may name their pictures alike: to pass over the second's would lose them in silence."""
    first, second = make_records(2)
    extract([first, second], Mean(), tmp_path / "store")
    copy = tmp_path / "copy.png"
    copy.write_bytes(first.image.read_bytes() if first.image is not None else b"")
    result = extract([replace(first, image=second.image), second], Mean(), tmp_path / "store")
    assert (result.written, result.already_there, len(result.failed)) == (0, 1, 1)
    assert "the store has another image under this key" in result.failed["k0"]
    again = extract([replace(first, image=copy), second], Mean(), tmp_path / "store")
    assert (again.already_there, again.failed) == (2, {})


def test_every_record_keeps_its_own_regions_and_its_place(make_records: MakeRecords, tmp_path: Path) -> None:
    detector, told = Mean(), list[int]()
    result = extract(make_records(23), detector, tmp_path / "store", 3, records_per_shard=5, progress=told.append)
    assert (result.written, result.failed, sum(told)) == (23, {}, 23)
    store = Store(tmp_path / "store")
    for number in range(23):
        found = store.record(number)
        assert found.key == f"k{number}"
        assert found.captions == (f"picture {number}",)
        assert found.size == ((20, 10) if number % 2 else (10, 20))
        assert found.regions is not None
        assert found.regions.features is not None
        assert found.regions.features[0].tolist() == [number, 0, 0]


def test_pictures_of_like_shape_share_a_batch(make_records: MakeRecords, tmp_path: Path) -> None:
    detector = Mean()
    extract(make_records(24), detector, tmp_path / "store", batch_size=3)
    assert all(len(batch) == 3 and len(set(batch)) == 1 for batch in detector.batches)


def test_failures_are_counted_and_named_and_the_rest_goes_on(make_records: MakeRecords, tmp_path: Path) -> None:
    records = make_records(6)
    assert records[1].image is not None
    records[1].image.write_bytes(b"")
    records[4] = Record("gone", image=tmp_path / "gone.png")
    records.append(Record("blind"))
    records.append(records[0])
    records.append(replace(records[0], key="odd", relations=((0, "near", 1),)))
    result = extract(records, Mean(), tmp_path / "store", batch_size=2)
    assert result.written == len(Store(tmp_path / "store")) == 4
    assert result.summary() == "4 extracted, 5 failed"
    assert set(result.failed) == {"k1", "gone", "blind", "k0 (again)", "odd"}
    assert "found indices 0 and 1 into 0 objects" in result.failed["odd"]
    lines = [json.loads(line) for line in (tmp_path / "store" / "failures.jsonl").read_text().splitlines()]
    assert {line["key"]: line["reason"] for line in lines} == result.failed
    assert "no image at" in result.failed["gone"]
    assert "names no image" in result.failed["blind"]
    assert "occurs twice" in result.failed["k0 (again)"]


def test_the_same_command_goes_on_and_tries_failures_again(make_records: MakeRecords, tmp_path: Path) -> None:
    records = make_records(6)
    extract(records[:3], Mean(), tmp_path / "store")
    broken = Record("late", image=tmp_path / "late.png")
    result = extract([*records, broken], Mean(), tmp_path / "store")
    assert (result.written, result.already_there, list(result.failed)) == (3, 3, ["late"])
    Image.new("RGB", (8, 8)).save(tmp_path / "late.png")
    result = extract([*records, broken], Mean(), tmp_path / "store")
    assert (result.written, result.already_there, result.failed, result.others) == (1, 6, {}, 0)
    fewer = extract(records[:2], Mean(), tmp_path / "store")
    assert fewer.summary() == "0 extracted, 2 were there already, 5 of other data are in the store too"
    assert (tmp_path / "store" / "failures.jsonl").read_text() == ""
    assert len(Store(tmp_path / "store")) == 7


def test_ctrl_c_keeps_what_was_seen(make_records: MakeRecords, tmp_path: Path) -> None:
    records = make_records(20)
    assert records[2].image is not None
    records[2].image.write_text("no picture")
    with pytest.raises(KeyboardInterrupt):
        extract(records, Mean(stop_at=4), tmp_path / "store", batch_size=2, records_per_shard=3)
    store = Store(tmp_path / "store")
    assert store.keys() == {"k0", "k1", "k3", "k4", "k5", "k6", "k7"}
    assert "k2" in (tmp_path / "store" / "failures.jsonl").read_text()
    result = extract(records, Mean(), tmp_path / "store", batch_size=2, records_per_shard=3)
    assert (result.written, result.already_there) == (12, 7)


def test_large_pictures_do_not_wait_together(
    make_records: MakeRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "MOST_BYTES", 1000)  # a picture has 600 bytes
    detector = Mean()
    assert extract(make_records(9), detector, tmp_path / "store", batch_size=8).written == 9
    assert max(map(len, detector.batches)) == 2


def test_no_picture_is_opened_for_the_truth(tmp_path: Path) -> None:
    records = [Record("a", size=(4, 4), objects=(Object("cat", (0.0, 0.0, 1.0, 1.0)),))]
    assert extract(records, GroundTruth.of(records), tmp_path / "store").written == 1


def test_nothing_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="\\(1 failed\\); first correct: no image at"):
        extract([Record("a", image=tmp_path / "a.png")], Mean(), tmp_path / "store")
    with pytest.raises(DataError, match="there are no records"):
        extract([], Mean(), tmp_path / "other")


def test_features_of_two_kinds_do_not_mix(make_records: MakeRecords, tmp_path: Path) -> None:
    records = make_records(2)
    extract(records, Mean(), tmp_path / "store")
    truth = [Record("t", size=(4, 4), objects=(Object("cat", (0.0, 0.0, 1.0, 1.0)),))]
    with pytest.raises(DataError, match="extractor: 'mean', not 'ground-truth'"):
        extract(truth, GroundTruth.of(truth), tmp_path / "store")
    assert len(Store(tmp_path / "store")) == 2


@pytest.mark.slow
def test_processes_see_what_one_does(make_records: MakeRecords, tmp_path: Path) -> None:
    """The windows and so the batches are the same, also after pictures that cannot be opened."""
    detector = small_detector()
    records = make_records(23)
    (tmp_path / "004.png").write_bytes(b"no picture")
    told = list[int]()
    with one_thread():
        one = extract(records, detector, tmp_path / "one", 2, progress=told.append)
    two = extract(records, detector, tmp_path / "two", 2, progress=told.append, processes=2)
    assert one == two
    assert one == two
    assert (one.written, list(one.failed)) == (22, ["k4"])
    assert sum(told) == 2 * 23
    assert same_bytes(tmp_path / "one", tmp_path / "two")


def test_processes_open_pictures_for_a_device(
    make_records: MakeRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another device than the CPU itself: one detector on it, and pictures that cross between processes."""
    records = make_records(7)
    (tmp_path / "004.png").write_bytes(b"no picture")
    opened = list[int]()

    def sent(work: Callable[..., Any], pieces: Iterable[Any], processes: int) -> Iterator[Any]:
        for piece in pieces:
            opened.append(len(piece))
            yield pickle.loads(pickle.dumps(work(piece)))

    monkeypatch.setattr(extraction, "map_in_processes", sent)
    with one_thread():
        one = extract(records, small_detector(), tmp_path / "one", 2)
        beside = extract(records, small_detector(), tmp_path / "two", 2, processes=3, device=torch.device("cpu", 0))
    assert opened == [2, 2, 2, 1]
    assert one == beside
    assert (one.written, list(one.failed)) == (6, ["k4"])
    assert same_bytes(tmp_path / "one", tmp_path / "two")


def same_bytes(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_work_that_carries_its_detector_sees_what_one_process_does(
    make_records: MakeRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an engine is handed and hands back, without the engine; the second command goes on."""
    records = make_records(13)
    (tmp_path / "004.png").write_bytes(b"no picture")
    windows = list[str]()

    def engine(work: Work, names: Sequence[str], name: str, workers: int) -> Iterator[Counts]:
        assert (name, workers) == ("ray", 3)
        windows.extend(names)
        sent = pickle.dumps(work)
        for shard in names:
            yield pickle.loads(pickle.dumps(pickle.loads(sent)(shard)))

    monkeypatch.setattr(extraction, "run", engine)
    with one_thread():
        extract(records[:5], small_detector(), tmp_path / "one", 2)
        one = extract(records, small_detector(), tmp_path / "one", 2)
        extract(records[:5], small_detector(), tmp_path / "two", 2, engine="ray", processes=3)
        two = extract(records, small_detector(), tmp_path / "two", 2, engine="ray", processes=3)
    assert one == two
    assert (one.written, one.already_there, list(one.failed)) == (8, 4, ["k4"])
    assert [len(json.loads(window)) for window in windows] == [5, 8, 1]
    assert same_bytes(tmp_path / "one", tmp_path / "two")


ON_RAY = """
import sys
from pathlib import Path
from typing import Any

from diptych.runtime import engine
from diptych.core import Record
from diptych.data.extract import extract as extraction
from diptych.vision.detectors.load import load_detector
from tests.support.killed import KilledOnce

folder = Path(sys.argv[1])

if __name__ == "__main__":
    extraction.run = lambda work, *others: engine.run(KilledOnce(work, folder / "killed"), *others)
    records = [Record(f"k{n}", image=folder / f"{n:03d}.png", captions=(f"picture {n}",)) for n in range(23)]
    detector = load_detector(folder / "detector")
    extraction.extract(records, detector, folder / "two", 2, engine="ray", processes=2)
"""


@pytest.mark.thorough
def test_a_cluster_sees_what_one_process_does(make_records: MakeRecords, tmp_path: Path) -> None:
    """A worker is killed at its first window."""
    pytest.importorskip("ray", reason="needs the extra ray")
    small_detector().save(tmp_path / "detector")
    with one_thread():
        extract(make_records(23), small_detector(), tmp_path / "one", 2)
    (tmp_path / "on_ray.py").write_text(ON_RAY)
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}  # of `tests`, for Ray's workers too
    # an interpreter: Ray starts others like it
    subprocess.run([sys.executable, tmp_path / "on_ray.py", tmp_path], check=True, timeout=800, env=here)
    assert (tmp_path / "killed").exists()
    assert same_bytes(tmp_path / "one", tmp_path / "two")


def test_engines_that_cannot_extract_are_refused(make_records: MakeRecords, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="engine 'rai' cannot extract; did you mean ray"):
        extract(make_records(1), small_detector(), tmp_path / "store", engine="rai")
    truth = GroundTruth(("square",), {})
    with pytest.raises(RecipeError, match=r"ground-truth does not read images, .*leave out --engine ray"):
        extract(make_records(1), truth, tmp_path / "store", engine="ray")
    assert not (tmp_path / "store").exists()


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_an_image_of_another_shape_than_its_boxes_are_for_is_left_out(
    make_records: MakeRecords, tmp_path: Path
) -> None:
    boxed = [replace(one, size=(10, 20), objects=(Object("cat", (0.0, 0.0, 1.0, 1.0)),)) for one in make_records(2)]
    done = extract(boxed, Mean(), tmp_path / "store")
    assert done.written == 1
    assert "boxes for an image of 10 x 20 pixels, but the file has 20 x 10, as if it were rotated" in done.failed["k1"]
    given = extract(boxed, GroundTruth.of(boxed), tmp_path / "truth")
    assert (given.written, given.failed) == (1, done.failed), "by its header, where no image is opened"
