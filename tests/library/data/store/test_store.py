import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from diptych.core import Choices, Expression, Object, Record, Regions, Statement
from diptych.data.store import shards
from diptych.data.store.record_json import record_from_json, record_to_json
from diptych.data.store.shards import index_check, tensors_check
from diptych.data.store.store import Store, StoreWriter, iterate
from diptych.runtime.errors import DataError
from tests.library.data.conftest import CONTRACT, MakeStore, record
from tests.support import zygote


def same_regions(one: Regions | None, other: Regions | None) -> bool:
    assert one is not None
    assert other is not None
    mine, theirs = one.tensors(), other.tensors()
    return (
        mine.keys() == theirs.keys() and all(mine[name].equal(theirs[name]) for name in mine) and one.size == other.size
    )


def test_what_is_written_is_read_back(make_store: MakeStore) -> None:
    store = make_store(10)
    assert len(store) == 10
    for number in range(10):
        read, wanted = store.record(number), record(number)
        assert replace(read, regions=None) == replace(wanted, regions=None)
        assert same_regions(read.regions, wanted.regions)
        assert store.region_counts([number]) == [len(wanted.regions or ())]
    assert store.contract == CONTRACT
    assert store.splits == {"train": 8, "val": 2}
    assert store.split("val") == [3, 7]


def test_every_kind_of_word_survives_json() -> None:
    full = Record(
        "k",
        expressions=(Expression("e", "the dog", (0.0, 0.1, 0.2, 0.3)),),
        choices=(Choices("c", "why?", ("a", "b", "c", "d"), 2, ("e", "f", "g", "h"), 1),),
        statements=(Statement("s", "two dogs", False),),
        objects=(Object("dog", (0.0, 0.0, 1.0, 1.0), {"colour": "red"}, 0.5),),
        relations=((0, "left of", 0),),
    )
    assert record_from_json(json.dumps(record_to_json(full)).encode()) == full


def test_what_would_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", CONTRACT) as writer:
        with pytest.raises(
            DataError, match=r"a store cannot hold this record: relations: found indices 0 and 7 into 0 objects"
        ):
            writer.add(replace(record(0), relations=((0, "left of", 7),)))
        with pytest.raises(DataError, match=r"size\.0: Input should be greater than 0, found 0"):
            writer.add(replace(record(0), size=(0, 5)))
        writer.add(record(0))
    assert Store(tmp_path / "store").record(0).key == record(0).key


def test_pictures_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative name is the caller's when it is written, and means the same file from another folder."""
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "far" / "b.png"
    with StoreWriter(Path("work/store"), CONTRACT) as writer:
        writer.add(replace(record(0), image=Path("work/pictures/a.png")))
        writer.add(replace(record(1), image=elsewhere))
    assert Store(Path("work/store")).record(0).image == Path("work/pictures/a.png")
    monkeypatch.chdir(tmp_path / "work")
    assert Store(Path("store")).record(0).image == Path("pictures/a.png")
    (tmp_path / "work").rename(tmp_path / "moved")
    moved = Store(tmp_path / "moved" / "store")
    assert moved.words(0).image == tmp_path / "moved" / "pictures" / "a.png"
    assert moved.words(1).image == elsewhere


def test_a_picture_without_regions_is_kept(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, CONTRACT) as writer:
        writer.add(record(0, regions=0))
        writer.add(record(1, regions=2))
    assert Store(tmp_path).region_counts([1, 0]).tolist() == [2, 0]


def test_a_writer_goes_on_where_the_last_one_ended(make_store: MakeStore) -> None:
    store = make_store(5)
    with StoreWriter(store.folder, CONTRACT, 4) as writer:
        assert writer.done.keys() == {f"r{n}" for n in range(5)}
        with pytest.raises(DataError, match="the store already has this key"):
            writer.add(record(2))
        writer.add(record(5))
    assert [Store(store.folder).words(i).key for i in range(6)] == [f"r{n}" for n in range(6)]


def test_features_of_another_contract_are_refused(make_store: MakeStore) -> None:
    folder = make_store(2).folder
    with pytest.raises(DataError, match=r"extractor: 'grid', not 'given'|extractor: 'given', not 'grid'"):
        StoreWriter(folder, replace(CONTRACT, extractor="grid"))


def test_an_unfinished_shard_leaves_nothing_half_written(tmp_path: Path) -> None:
    def stop_in_the_middle() -> None:
        with StoreWriter(tmp_path, CONTRACT, 2) as writer:
            for number in range(3):
                writer.add(record(number))
            raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"):
        stop_in_the_middle()
    assert len(Store(tmp_path)) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["shard-00000.safetensors", "store.json"]


def test_a_flipped_byte_is_named_with_record_and_shard(make_store: MakeStore) -> None:
    store = make_store(3)
    shard = store.folder / "shard-00000.safetensors"
    content = bytearray(shard.read_bytes())
    at = content.index(record(1).regions.features.half().numpy().tobytes())  # type: ignore[union-attr]
    content[at] ^= 1
    shard.write_bytes(content)
    damaged = Store(store.folder)
    assert same_regions(damaged.record(0).regions, record(0).regions)
    with pytest.raises(DataError, match=r"extract again \(record r1, shard shard-00000.safetensors\)"):
        damaged.regions(1)


CUT = """
import os, sys
from pathlib import Path
from diptych.runtime.errors import DataError
from diptych.data.store.store import Store
store = Store(Path(sys.argv[1]))
(shard,) = store.folder.glob("shard-*")
store.record(0)
size = os.stat(shard).st_size
os.truncate(shard, 4096)
for ask in (store.record, store.words, lambda index: store.region_counts([index])):
    try:
        ask(len(store) - 1)
    except DataError as error:
        print(error)
os.truncate(shard, size)
os.remove(shard)
try:
    store.region_counts([0])
    print("gone, and read")
except DataError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_shard_that_is_cut_under_its_reader_is_named(make_store: MakeStore) -> None:
    """To read what is mapped and not there any more ends a process; a shard that is deleted stays mapped."""
    store = make_store(40, 40)
    done = zygote.run(["-c", CUT, store.folder])
    assert (done.returncode, done.stderr) == (0, "")
    cut = "a file shrank while it was read; extract or copy the store again (shard shard-00000.safetensors)"
    assert done.stdout.splitlines() == [cut, cut, cut, "gone, and read"]


@pytest.mark.slow
def test_every_flipped_bit_of_a_store_is_seen_or_changes_nothing(make_store: MakeStore) -> None:
    """Of each file every 7th byte, and every byte of the tables and words; which bit goes with the place."""
    store = make_store(3)
    before = [store.record(index) for index in range(3)]
    for path in sorted(store.folder.iterdir()):
        content = path.read_bytes()
        for at in range(0, len(content), 7 if path.suffix == ".safetensors" else 3):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
            try:
                damaged = Store(store.folder)
                after = [damaged.record(index) for index in range(len(damaged))]
            except DataError:
                continue
            for one, other in zip(before, after, strict=True):
                assert replace(one, regions=None) == replace(other, regions=None), (path.name, at)
                assert same_regions(one.regions, other.regions), (path.name, at)
        path.write_bytes(content)


def test_changed_words_are_named_with_their_shard(make_store: MakeStore) -> None:
    store = make_store(6)
    shard = store.folder / "shard-00001.safetensors"
    shard.write_bytes(shard.read_bytes().replace(b"dog dog", b"dog cat", 1))
    with pytest.raises(DataError, match=r"texts of record 1 are damaged.*extract again \(shard shard-00001"):
        list(iterate(Store(store.folder), "train"))


def test_a_split_is_found_without_reading_texts(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(make_store(6).folder)
    monkeypatch.setattr("diptych.data.store.shard.record_from_json", None)
    assert (store.split("train"), store.split("val"), store.split("train+val")) == ([0, 1, 2, 4, 5], [3], [*range(6)])


def test_a_split_that_the_index_does_not_name_is_refused(make_store: MakeStore) -> None:
    folder = make_store(6).folder
    index = json.loads((folder / "store.json").read_text())
    for one in index["shards"]:
        one["splits"] = one["splits"][:1]
    index["check"] = index_check(index)
    (folder / "store.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match="a split is not in the index; delete"):
        list(iterate(Store(folder), "train"))


def test_a_name_that_is_not_utf8_is_kept(tmp_path: Path) -> None:
    named = replace(record(0), image=Path(os.fsdecode(b"/pictures/caf\xe9.png")))
    with StoreWriter(tmp_path, CONTRACT) as writer:
        writer.add(named)
    assert Store(tmp_path).words(0).image == named.image


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_shard_cut_short_is_named(make_store: MakeStore, keep: int) -> None:
    store = make_store(3)
    shard = store.folder / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"shard-00000.safetensors: .*extract again"):
        Store(store.folder).record(0)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, "is not a store"),
        ("{", "is damaged"),
        (
            '{"format": 1}',
            r"has format 1, but this version of Diptych reads 3; make the store again.*"
            r": diptych extract DATA --out OUT",
        ),
        ('{"format": 3}', "is damaged"),
        ("[]", "is damaged"),
    ],
)
def test_a_folder_that_is_no_store(tmp_path: Path, content: str | None, wanted: str) -> None:
    if content is not None:
        (tmp_path / "store.json").write_text(content)
    with pytest.raises(DataError, match=wanted):
        Store(tmp_path)


def test_half_precision_is_what_is_lost(tmp_path: Path) -> None:
    one = record(0, regions=1)
    assert one.regions is not None
    exact = replace(one, regions=replace(one.regions, features=torch.full((1, 4), 0.1)))
    with StoreWriter(tmp_path, CONTRACT) as writer:
        writer.add(exact)
    read = Store(tmp_path).record(0).regions
    assert read is not None
    assert read.features is not None
    assert read.features.dtype == torch.float32
    assert read.features.equal(torch.full((1, 4), 0.1).half().float())
    assert read.boxes.equal(exact.regions.boxes)  # type: ignore[union-attr]


def test_what_was_whole_once_is_not_summed_up_again(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store, sums = make_store(3), list[int]()
    monkeypatch.setattr(shards, "tensors_check", lambda columns, check=tensors_check: sums.append(1) or check(columns))
    for _ in range(3):
        store.regions(1)
    store.regions(2)
    assert len(sums) == 3, "of the tables, and of two records"


def test_a_store_goes_to_another_process_without_what_it_has_read(make_store: MakeStore) -> None:
    store = make_store(3)
    before = store.record(1)
    again = pickle.loads(pickle.dumps(store))
    assert again.words(1) == store.words(1)
    assert same_regions(again.regions(1), before.regions)


def test_ids_come_back(tmp_path: Path) -> None:
    written = {}
    for name, ids in {"bare": {}, "named": {"image_id": 70, "caption_ids": ("7", "")}}.items():
        with StoreWriter(tmp_path / name, CONTRACT) as writer:
            writer.add(replace(record(0), **ids))  # type: ignore[arg-type]
            writer.add(record(1))
        written[name] = (tmp_path / name / "shard-00000.safetensors").read_bytes()
        store = Store(tmp_path / name)
        assert (store.record(0).image_id, store.record(0).caption_ids) == (
            ids.get("image_id"),
            ids.get("caption_ids", ()),
        )
        assert (store.record(1).image_id, store.record(1).caption_ids) == (None, ())
    assert written["bare"] != written["named"]
