"""Features that were given are told from those of another extractor of the same size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from diptych.core import FeatureContract, Record
from diptych.core.contract import FeatureProfile
from diptych.data.check import check
from diptych.data.extract.extract import extract
from diptych.data.store.store import Store
from diptych.runtime.configs import of_json
from diptych.runtime.errors import DataError
from diptych.vision.detectors.given import GivenRegions
from diptych.vision.detectors.load import load_detector
from diptych.vision.features.profile import differences, profile_of
from diptych.vision.features.profile import unlike as profiles_unlike

Floats = npt.NDArray[np.float32]
SIZE = 256


def seen(extractor: int, pictures: int, first: int = 0, scale: float = 1.0) -> list[Floats]:
    """As networks make them: positive values, of which each has its own mean, and each picture its own deviation."""
    means = np.random.default_rng(extractor).gamma(2.0, 0.3, SIZE)
    drawn = []
    for number in range(first, first + pictures):
        rng = np.random.default_rng([extractor, number])
        of_picture = means * np.exp(rng.normal(0, 0.5, SIZE))
        drawn.append((scale * of_picture * rng.gamma(1.0, 1.0, (9, SIZE))).astype(np.float32))
    return drawn


def unlike(one: list[Floats], other: list[Floats]) -> str | None:
    first, second = profile_of(one), profile_of(other)
    assert first is not None
    assert second is not None
    assert (profiles_unlike(first, second) is None) == (profiles_unlike(second, first) is None)
    return profiles_unlike(first, second)


@pytest.mark.parametrize("pictures", [1, 2, 32])
def test_other_pictures_of_one_extractor_are_taken(pictures: int) -> None:
    for first in range(100, 120):
        assert unlike(seen(0, 32), seen(0, pictures, first)) is None


@pytest.mark.parametrize(("pictures", "least"), [(1, 19), (2, 20), (32, 20)])
def test_another_extractor_is_refused(pictures: int, least: int) -> None:
    """One picture alone may be like another extractor's by chance."""
    found = [str(unlike(seen(0, 32), seen(extractor, pictures))) for extractor in range(1, 21)]
    assert sum("expected about" in one for one in found) >= least


def test_values_of_another_scale_are_refused() -> None:
    assert "root mean square of the values" in str(unlike(seen(0, 32), seen(0, 32, scale=9)))
    normed = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in seen(0, 32)]
    assert "root mean square of the values" in str(unlike(seen(0, 32), normed))


def test_noise_and_few_values_are_not_judged() -> None:
    rng = np.random.default_rng(0)
    noise = [rng.random((5, SIZE), np.float32) for _ in range(20)]
    assert unlike(noise[:10], noise[10:]) is None
    assert unlike([one[:, :12] for one in seen(0, 9)], [one[:, :12] for one in seen(1, 9)]) is None
    assert unlike([np.ones((2, SIZE), np.float32)], seen(0, 9)) is None


def test_a_profile_by_hand() -> None:
    profile = profile_of([np.array([[1, 2], [3, 2]], np.float32), np.array([[4, 4]], np.float32)])
    assert profile == FeatureProfile((3.0, 3.0), 2.0, 2, 3.202)  # spread: (2 + 2) / 2; size: root of (4.5 + 16) / 2


def written(folder: Path, features: list[Floats], name: str | None = None) -> tuple[Path, list[Record]]:
    folder.mkdir()
    for number, one in enumerate(features):
        boxes = np.tile(np.array([0, 0, 40, 30], np.float32), (len(one), 1))
        np.savez(folder / f"{number}.npz", features=one, boxes=boxes, width=64, height=48)
    if name is not None:
        (folder / "extractor.txt").write_text(f"{name}\n")
    return folder, [Record(f"{number}", captions=("a dog",)) for number in range(len(features))]


def test_a_store_refuses_features_of_another_extractor(tmp_path: Path) -> None:
    mine, records = written(tmp_path / "mine", seen(0, 8))
    others, _ = written(tmp_path / "others", seen(1, 8))
    more, _ = written(tmp_path / "more", seen(0, 8, 50))
    given = GivenRegions.of(mine, records)
    extract(records[:4], given, tmp_path / "store")
    extract(records, GivenRegions.of(more, records), tmp_path / "store")
    with pytest.raises(DataError, match=r"profile: means of the values .*suggests another extractor; .*extractor\.txt"):
        extract(records, GivenRegions.of(others, records), tmp_path / "store")
    # What a model keeps of them is the same again.
    given.save(tmp_path / "kept")
    assert load_detector(tmp_path / "kept").contract == given.contract
    assert of_json(FeatureContract, given.contract.to_json()) == given.contract


def test_a_name_is_part_of_the_contract(tmp_path: Path) -> None:
    mine, records = written(tmp_path / "mine", seen(0, 8), "nanodet + mobilenet_v3")
    same, _ = written(tmp_path / "same", seen(1, 8), "nanodet + mobilenet_v3")
    other, _ = written(tmp_path / "other", seen(0, 8), "yolo")
    none, _ = written(tmp_path / "none", seen(0, 8))
    contract = GivenRegions.of(mine, records).contract
    assert contract.extractor == "given: nanodet + mobilenet_v3"
    assert contract.is_given
    assert differences(contract, GivenRegions.of(same, records).contract) == []  # who names it is believed
    for folder, found in ((other, "'given: yolo'"), (none, "'given'")):
        assert differences(contract, GivenRegions.of(folder, records).contract) == [
            f"extractor: 'given: nanodet + mobilenet_v3', not {found}"
        ]
    (mine / "extractor.txt").write_text("two\nlines")
    with pytest.raises(DataError, match=r"extractor\.txt: found .*, expected a name in one line"):
        GivenRegions.of(mine, records)


@pytest.mark.parametrize("damage", [{"means": "x"}, {"means": [float("nan")]}, {"size": None}])
def test_a_damaged_profile_is_refused(damage: dict[str, object], tmp_path: Path) -> None:
    folder, records = written(tmp_path / "mine", seen(0, 8))
    values = GivenRegions.of(folder, records).contract.to_json()
    with pytest.raises(ValueError, match=r"profile|could not convert"):
        of_json(FeatureContract, {**values, "profile": {**values["profile"], **damage}})


def test_check_finds_features_that_tell_nothing(tmp_path: Path) -> None:
    features = seen(0, 5)
    features[1], features[2], features[4] = features[1] * 0, features[2] * 0 + 7, features[3]
    folder, records = written(tmp_path / "mine", features)
    extract(records, GivenRegions.of(folder, records), tmp_path / "store")
    store = Store(tmp_path / "store")
    report = check(store, pictures=False)
    found = {one.kind: (one.severity, one.examples) for one in report.findings if one.kind.startswith("features")}
    assert found == {
        "features all zero": ("error", ["1"]),
        "features constant": ("error", ["2"]),
        "features repeated": ("warning", ["4 has the features of 3"]),
    }
    assert not report.ok
    assert differences(replace(store.contract, profile=None), store.contract) == []


def test_the_cache_of_a_search_knows_the_features(tmp_path: Path) -> None:
    folder, records = written(tmp_path / "mine", seen(0, 3))
    before = GivenRegions.of(folder, records).state()
    assert GivenRegions.of(folder, records).state() == before
    np.savez(folder / "1.npz", features=seen(0, 1)[0], boxes=np.ones((9, 4)), width=64, height=49)
    assert GivenRegions.of(folder, records).state() != before
