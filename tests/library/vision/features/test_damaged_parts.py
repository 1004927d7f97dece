"""One damaged entry of an archive or of a file of features costs itself, and is named; a wrong structure is refused."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from diptych.core import Record
from diptych.data.extract.own_data import extract_regions
from diptych.data.formats.parsing import BAD, Skips
from diptych.data.formats.table import read
from diptych.data.store.store import Store
from diptych.runtime.errors import DataError
from diptych.vision.archives import damaged_members, members
from diptych.vision.detectors.given import GivenRegions
from diptych.vision.features.files import open_features
from tests.support.databases import opened
from tests.support.feature_files import FILES, IDS, JSON, PREFIX, VLP, copied

MANY = 6


def tar_of(path: Path) -> list[int]:
    """Write pictures with captions; return where each member's header begins."""
    picture = io.BytesIO()
    Image.new("RGB", (64, 48)).save(picture, "PNG")
    with tarfile.open(path, "w") as tar:
        for n in range(MANY):
            for ending, content in (("txt", b"a dog"), ("png", picture.getvalue())):
                member = tarfile.TarInfo(f"{n}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    with tarfile.open(path) as tar:
        return [one.offset for one in tar]


def test_a_tar_whose_last_picture_is_cut_loses_that_picture(tmp_path: Path) -> None:
    places = tar_of(tmp_path / "0.tar")
    (tmp_path / "0.tar").write_bytes((tmp_path / "0.tar").read_bytes()[: places[-1] + 512 + 40])
    skips = Skips()
    assert [one.key for one in read(tmp_path, skips=skips)] == [f"0/{n}" for n in range(MANY - 1)]
    assert skips.counts == {BAD: 1, "captions without an image": 1}
    assert "0.tar: 5.png is cut short; download the archive" in skips.first[BAD]


@pytest.mark.parametrize("at", [4, 5])
def test_a_damaged_header_inside_a_tar_costs_its_member(at: int, tmp_path: Path) -> None:
    """Tar's own reader ends there without a word."""
    places = tar_of(tmp_path / "0.tar")
    content = bytearray((tmp_path / "0.tar").read_bytes())
    content[places[at] : places[at] + 512] = b"\x07" * 512
    (tmp_path / "0.tar").write_bytes(content)
    skips = Skips()
    assert [one.key for one in read(tmp_path, skips=skips)] == [f"0/{n}" for n in (0, 1, 3, 4, 5)]
    assert skips.counts[BAD] == 1
    assert f"0.tar: no file begins at byte {places[at]}" in skips.first[BAD]


def test_a_whole_tar_has_no_damage_and_what_is_no_tar_is_refused(tmp_path: Path) -> None:
    tar_of(tmp_path / "0.tar")
    assert (len(members(tmp_path / "0.tar")), damaged_members(tmp_path / "0.tar")) == (2 * MANY, [])
    (tmp_path / "0.tar").write_bytes(b"no tar" * 1000)
    with pytest.raises(DataError, match=r"0.tar: cannot be read as an archive"):
        read(tmp_path)


def arrow(folder: Path, change: Callable[[dict[str, Any]], None], batches: int = 1) -> Path:
    """Write the rows of the stored Arrow file, changed; the rows of each batch have their own names."""
    (source,) = (FILES / "hf_datasets").glob("*.arrow")
    table = pa.ipc.open_stream(pa.memory_map(str(source))).read_all()
    folder.mkdir()
    with pa.ipc.new_stream(folder / "t.arrow", table.schema) as writer:
        for n in range(batches):
            values = table.to_pydict()
            if n == 0:
                change(values)
            else:
                values["img_id"] = [1000 * n + name for name in values["img_id"]]
            writer.write_table(pa.table(values, table.schema))
    return folder


@pytest.mark.parametrize("column", ["img_id", "roi_features", "boxes", "preds_per_image", "sizes"])
def test_a_null_in_an_arrow_table_costs_its_row(column: str, tmp_path: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        values[column] = [None, *values[column][1:]]

    detector = GivenRegions.of(arrow(tmp_path / "a", change), [Record(name) for name in IDS])
    assert len(detector.detect([], [Record(IDS[1])])[0])
    with pytest.raises(DataError, match=r"found|cannot be read"):
        detector.detect([], [Record(IDS[0])])
    assert any("without `img_id`" in note for note in detector.files.notes) == (column == "img_id")
    assert "None" not in detector.files.exact


def test_an_arrow_stream_that_is_cut_is_read_up_to_there(tmp_path: Path) -> None:
    folder = arrow(tmp_path / "a", lambda _: None, batches=3)
    path = folder / "t.arrow"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 9 // 10])
    detector = GivenRegions.of(folder, [Record(name) for name in IDS])
    assert all(len(one) for one in detector.detect([], [Record(name) for name in ("1042", "1139")]))
    assert any("after 2 batches" in note for note in detector.files.notes)


@pytest.mark.parametrize("bad", [None, 5, [b"x"], {}])
def test_an_entry_of_an_lmdbs_list_that_is_no_name_costs_itself(bad: Any, tmp_path: Path) -> None:
    folder = copied("mmf/detectron.lmdb", tmp_path)
    with opened(folder) as environment, environment.begin(write=True) as held:
        held.put(b"keys", pickle.dumps([bad, *(name.encode() for name in IDS)]))
        held.put(IDS[0].encode(), b"\x80\x04X")
    detector = GivenRegions.of(folder, [Record(name) for name in IDS])
    assert len(detector.detect([], [Record(IDS[1])])[0])
    assert any("1 entries that are not names" in note for note in detector.files.notes)


@pytest.mark.parametrize("listed", [True, False])
def test_an_lmdb_that_is_cut_gives_its_whole_entries(listed: bool, tmp_path: Path) -> None:
    """At any place: what is read is what was written, or refused by name."""
    names, folder = [f"{number}" for number in range(40)], tmp_path / "a"
    with opened(folder, map_size=2**24) as environment:
        for name in names:  # entries that fill a part of a page, and such that fill several
            with environment.begin(write=True) as held:
                rows = np.full((1 + int(name) % 3, 90 if int(name) % 2 else 700), int(name), np.float32)
                info = {"features": rows, "bbox": np.array([[0, 0, 9, 9]] * len(rows)), "num_boxes": len(rows)}
                size = {"image_width": 10, "image_height": 10}
                held.put(name.encode(), pickle.dumps(info | size))
        if listed:
            with environment.begin(write=True) as held:
                held.put(b"keys", pickle.dumps([name.encode() for name in names]))
    whole = (folder / "data.mdb").read_bytes()
    read, refused = list[int](), list[str]()
    for at in range(2 * 4096, len(whole), 5 * 4096 + 999):
        cut = tmp_path / f"{at}"
        cut.mkdir()
        (cut / "data.mdb").write_bytes(whole[:at])
        try:
            files = open_features(cut)
        except DataError as error:
            refused.append(str(error))
            continue
        assert any("the LMDB is truncated" in note for note in files.notes)
        found = []
        for name in names:
            with suppress(DataError):
                found.append((name, files.read(Record(name), lambda raw: raw.features)))
        assert all((features == int(name)).all() for name, features in found)
        read.append(len(found))
    assert all("as in its header, and no entry is complete" in error for error in refused)
    assert read == sorted(read)
    assert read[-1] >= 35


def test_a_damaged_file_of_many_costs_itself(tmp_path: Path) -> None:
    """A part of an h5 release, the first of many files by which a folder is recognised, a line that names a zip."""
    folder = copied(VLP, tmp_path)
    (part,) = folder.rglob(f"{PREFIX}_feat042.h5")
    part.write_bytes(b"no h5")
    detector = GivenRegions.of(folder, [Record(name, size=(50, 80)) for name in IDS])
    assert len(detector.detect([], [Record(IDS[1], size=(50, 80))])[0])
    assert any("feat042.h5" in note for note in detector.files.notes)

    folder = copied(JSON, tmp_path / "more")
    (folder / "0.json").write_text('{"num_bo')
    assert len(GivenRegions.of(folder, [Record("42", size=(64, 48))]).detect([], [Record("42", size=(64, 48))])[0])


def test_a_table_whose_first_line_is_cut_is_recognised(tmp_path: Path) -> None:
    folder = copied("butd_tsv", tmp_path)
    (path,) = folder.iterdir()
    path.write_bytes(b"9\t6\n" + path.read_bytes())
    assert len(GivenRegions.of(folder, [Record(IDS[0], size=(64, 48))]).detect([], [Record(IDS[0], size=(64, 48))])[0])


def test_a_line_that_is_no_utf8_costs_itself(tmp_path: Path) -> None:
    lines = [json.dumps({"image": f"{n}.jpg", "captions": ["café"]}, ensure_ascii=False) for n in range(MANY)]
    content = [line.encode("latin1" if n == 2 else "utf-8") for n, line in enumerate(lines)]
    for name, mark in (("a.jsonl", b""), ("b.jsonl", b"\xef\xbb\xbf")):
        (tmp_path / name).write_bytes(mark + b"\n".join(content))
        skips = Skips()
        assert len(read(tmp_path / name, need_pictures=False, skips=skips)) == MANY - 1
        assert (skips.counts, "line 3: found bytes that are not UTF-8" in skips.first[BAD]) == ({BAD: 1}, True)
    for encoding, end in (("latin1", b""), ("utf-16", b"\n")):
        (tmp_path / "c.jsonl").write_bytes("\n".join(lines).encode(encoding) + end)
        with pytest.raises(DataError, match=r"c.jsonl.*bytes that are not UTF-8.*iconv"):
            read(tmp_path / "c.jsonl", need_pictures=False)


def test_a_part_of_a_mined_folder_without_one_whole_line_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "mine.json").write_text("{}")
    for n, line in enumerate(('{"image": "0.jpg", "captions": ["a dog"]}', '{"image": "1.jp')):
        (tmp_path / "records" / f"{n}.jsonl").write_text(line)
    Image.new("RGB", (8, 8)).save(tmp_path / "0.jpg")
    skips = Skips()
    assert [one.key for one in read(tmp_path, skips=skips)] == ["0.jpg"]
    assert skips.counts == {BAD: 1}


def test_a_picture_inside_an_npz_of_its_own_costs_itself(tmp_path: Path) -> None:
    """One npz is one image's: a member that is cut costs that image."""
    folder = copied("xmodaler_npz", tmp_path)
    first, second = sorted(folder.glob("*.npz"))
    np.savez(first, **dict(np.load(second)))
    first.write_bytes(first.read_bytes()[:-200])
    detector = GivenRegions.of(folder, [Record(one.stem) for one in (first, second)])
    assert len(detector.detect([], [Record(second.stem)])[0])
    with pytest.raises(DataError, match=r"npz"):
        detector.detect([], [Record(first.stem)])


def test_many_damaged_features_are_an_error_unless_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 10 and 1%; the store keeps the others, and images without features are no damage."""
    records = []
    for number in range(24):
        records.append(Record(f"{number:02d}", size=(10, 10)))
        content = np.full((2, 4), number if number > 11 else np.nan, np.float32)
        if number < 23:
            boxes = np.array([[0, 0, 9, 9]] * 2, np.float32)
            np.savez(tmp_path / f"{number:02d}.npz", features=content, boxes=boxes, width=10, height=10)

    def extracted(first: int, **options: int) -> tuple[int, int]:
        some = records[first:]
        done = extract_regions(some, GivenRegions.of(tmp_path, some), tmp_path / f"store {first}", **options)  # type: ignore[arg-type]
        return done.written, len(done.failed)

    assert extracted(2) == (11, 11), "10 are damaged, and one has none"
    monkeypatch.setattr("diptych.data.extract.extract.WINDOW", 1)
    with pytest.raises(DataError, match="11 of 24 entries"):  # the twelfth need not be read
        extracted(0, batch_size=1)
    monkeypatch.undo()
    for _ in range(2):
        with pytest.raises(DataError, match=r"\(.*store 0 keeps the regions already read\): 12 of 24 .*--skip-bad"):
            extracted(0)
        assert len(Store(tmp_path / "store 0")) == 11
    assert extracted(0, skip_bad=True) == (0, 13)
