from dataclasses import replace
from pathlib import Path

import pytest
import torch

from diptych.core import FeatureContract
from diptych.data.store.loader import Loader
from diptych.data.store.store import Store, StoreWriter
from diptych.runtime.errors import DataError
from tests.library.data.conftest import MakeStore, record
from tests.support.loaded import Always, captions


def loader(store: Store, batch_size: int = 4, seed: int = 0, max_regions: int | None = None) -> Loader:
    return Loader(store, range(len(store)), captions, Always(), batch_size, seed, max_regions=max_regions)


def test_a_batch_depends_on_seed_step_and_part_alone(make_store: MakeStore) -> None:
    store = make_store(10)
    one, other = loader(store), loader(store)
    later = [other.at(step, 1, 2) for step in (7, 2)]
    assert one.at(2, 1, 2).keys == later[1].keys
    assert one.at(2, 1, 2).text.equal(later[1].text)
    assert one.at(7, 1, 2).text.equal(later[0].text)
    assert loader(store, seed=1).at(2, 1, 2).keys != later[1].keys


def test_parts_share_out_the_batch(make_store: MakeStore) -> None:
    whole = loader(make_store(10), batch_size=6)
    parts = [key for part in range(3) for key in whole.at(1, part, 3).keys]
    assert sorted(parts) == sorted(whole.at(1, 0, 1).keys)
    assert len(parts) == 6


def test_an_epoch_covers_the_captions(make_store: MakeStore) -> None:
    whole = loader(make_store(10), batch_size=5)
    keys = [key for step in range(whole.steps_per_epoch) for key in whole.at(step, 0, 1).keys]
    assert len(set(keys)) == len(keys) == len(whole) == 20


def test_regions_beyond_the_maximum_are_left_out_best_kept(make_store: MakeStore) -> None:
    store = make_store(10)
    batch = loader(store, batch_size=20, max_regions=2).at(0, 0, 1)
    assert batch.boxes.shape[1] == 2
    row = batch.pictures.index("r2")
    assert batch.boxes[row].equal(record(2).regions.boxes[:2])  # type: ignore[union-attr]


def test_what_leaves_no_place_for_it_is_left_out_before_anything_is_hidden(make_store: MakeStore) -> None:
    store = make_store(10)
    batch = Loader(
        store, range(len(store)), captions, Always(), 20, seed=0, most_regions=lambda words: 1 + words % 2
    ).at(0, 0, 1)
    read = (batch.text_present.sum(1) - 1).tolist()  # without the word that the update adds
    there = store.region_counts([int(picture.removeprefix("r")) for picture in batch.pictures]).tolist()
    wanted = [min(count, 1 + words % 2) for count, words in zip(there, read, strict=True)]
    assert batch.regions_present.sum(1).tolist() == wanted
    assert wanted != there


def test_damaged_records_are_counted_and_named(make_store: MakeStore) -> None:
    store = make_store(10, 10)
    shard = store.folder / "shard-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[content.index(record(4).regions.features.half().numpy().tobytes())] ^= 1  # type: ignore[union-attr]
    shard.write_bytes(content)
    damaged = loader(Store(store.folder), batch_size=20)
    batch = damaged.at(0, 0, 1)
    assert len(batch) == 18
    assert "r4" not in batch.pictures
    assert list(damaged.corrupt) == ["r4"]


def test_nothing_to_train_on_says_so(make_store: MakeStore) -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        Loader(make_store(3), [], captions, Always(), 4, 0)


def test_more_parts_than_samples_says_so(make_store: MakeStore) -> None:
    with pytest.raises(DataError, match="cannot be divided into 8 micro-batches"):
        loader(make_store(3), batch_size=2).at(0, 7, 8)


def test_features_go_to_the_device_as_they_lie(make_store: MakeStore) -> None:
    """Half of the bytes; they are widened there."""
    store = make_store(4)
    batch = loader(store).at(0, 0, 1)
    assert batch.features is not None
    assert batch.features.dtype == torch.float16
    moved = batch.to("cpu")
    assert moved.features is not None
    assert moved.features.dtype == moved.boxes.dtype == torch.float32
    wanted = {record.key: record.regions for record in map(store.record, range(len(store)))}
    for row, picture in enumerate(moved.pictures):
        regions = wanted[picture]
        assert regions is not None
        assert regions.features is not None
        assert torch.equal(moved.features[row, : len(regions)], regions.features)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [(("background", "dog"), 0), (("dog", "__background__"), 1), (("dog", "cat"), None), ((), None)],
)
def test_a_batch_knows_the_class_that_is_the_background(
    tmp_path: Path, names: tuple[str, ...], wanted: int | None
) -> None:
    with StoreWriter(tmp_path / "store", FeatureContract("given", "", 4, names)) as writer:
        for number in range(4):
            one = record(number)
            assert one.regions is not None
            classes = torch.full((len(one.regions), len(names)), 0.5) if names else None
            writer.add(replace(one, regions=replace(one.regions, classes=classes)))
    store = Store(tmp_path / "store")
    assert loader(store).at(0, 0, 1).background == wanted
