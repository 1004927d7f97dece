"""h5 files that lead to other files of the user, or take more memory than they may."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from diptych.core import Record
from diptych.runtime.errors import DataError
from diptych.vision.detectors.given import GivenRegions
from diptych.vision.features import vlp
from diptych.vision.limited import LimitedProcesses, Reply
from tests.support.feature_files import FILES, IDS, PREFIX, VLP, copied, features_of, read, size_of

FEATURES = f"feat_cls_1000/{PREFIX}_feat042.h5"
ROWS = np.ones((5, 32), np.float32)


def external_storage(file: h5py.File, secret: Path) -> None:
    file.create_dataset(IDS[0], (5, 32), "f4", external=[(str(secret), 0, ROWS.nbytes)])


def external_link(file: h5py.File, secret: Path) -> None:
    file[IDS[0]] = h5py.ExternalLink(str(secret.with_suffix(".h5")), "a")


def soft_link(file: h5py.File, _: Path) -> None:
    file["rows"] = ROWS
    file[IDS[0]] = h5py.SoftLink("/rows")


def virtual(file: h5py.File, secret: Path) -> None:
    layout = h5py.VirtualLayout((5, 32), "f4")
    layout[:] = h5py.VirtualSource(str(secret.with_suffix(".h5")), "a", (5, 32))
    file.create_virtual_dataset(IDS[0], layout)


def claims_much(file: h5py.File, _: Path) -> None:
    file.create_dataset(IDS[0], (2**20, 2**11), "f4", maxshape=(None, 2**11), chunks=(5, 32))


def large_chunk(file: h5py.File, _: Path) -> None:
    file.create_dataset(IDS[0], (5, 32), "f4", maxshape=(None, None), chunks=(2**14, 2**14))


def many_chunks(file: h5py.File, _: Path) -> None:
    file.create_dataset(IDS[0], (5000, 32), "f4", chunks=(1, 32))


def gzip_bomb(file: h5py.File, _: Path) -> None:
    rows = file.create_dataset(IDS[0], (5, 32), "f4", chunks=(5, 32), compression="gzip")
    rows.id.write_direct_chunk((0, 0), zlib.compress(bytes(4 * 2**20)))


def large_stored(file: h5py.File, _: Path) -> None:
    rows = file.create_dataset(IDS[0], (5, 32), "f4", chunks=(5, 32), compression="gzip")
    rows.id.write_direct_chunk((0, 0), bytes(2**16))


def gzip_twice(file: h5py.File, _: Path) -> None:
    stored = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    stored.set_chunk((5, 32))
    stored.set_deflate(9)
    stored.set_deflate(9)
    h5py.h5d.create(file.id, IDS[0].encode(), h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((5, 32)), stored)


def texts(file: h5py.File, _: Path) -> None:
    file.create_dataset(IDS[0], (5, 32), h5py.string_dtype())


def group(file: h5py.File, _: Path) -> None:
    file.create_group(IDS[0])["rows"] = ROWS


def nothing(file: h5py.File, _: Path) -> None:
    file[IDS[0]] = h5py.Empty("f4")


HOSTILE: list[tuple[Callable[[h5py.File, Path], None], str]] = [
    (external_storage, "found an array in .* whose numbers are in another file, expected numbers in this file"),
    (external_link, "found a link to another place, expected an array in this file"),
    (soft_link, "found a link to another place, expected an array in this file"),
    (virtual, "found an array in .* whose numbers are in another file"),
    (claims_much, "found 8589934592 bytes of .*, expected at most 268435456"),
    (large_chunk, "found 1073741824 bytes of `a chunk of .*, expected at most"),
    (many_chunks, "found an array in .* of 5000 chunks, expected at most 4096"),
    (gzip_bomb, "found a chunk in .* of more bytes than its array, expected 640 bytes as in its header"),
    (large_stored, "found a chunk in .* of more bytes than its array"),
    (gzip_twice, r"with the filters \[1, 1\], expected shuffle, gzip and fletcher32"),
    (texts, "found no array of numbers"),
    (group, "found no array of numbers"),
    (nothing, "found no array of numbers"),
]


@pytest.mark.parametrize(("write", "message"), HOSTILE, ids=lambda one: getattr(one, "__name__", ""))
def test_hostile_h5_is_refused(write: Callable[[h5py.File, Path], None], message: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(ROWS.tobytes())
    with h5py.File(secret.with_suffix(".h5"), "w") as file:
        file["a"] = ROWS
    folder = copied(VLP, tmp_path)
    with h5py.File(folder / FEATURES, "a") as file:
        del file[IDS[0]]
        write(file, secret)
    with pytest.raises(DataError, match=message):
        read(folder, IDS[0], (64, 48))


@pytest.mark.parametrize(
    "options",
    [{}, {"chunks": (2, 32)}, {"compression": "gzip"}, {"compression": "gzip", "shuffle": True, "fletcher32": True}],
)
def test_compressed_h5_is_read(options: dict[str, object], tmp_path: Path) -> None:
    folder = copied(VLP, tmp_path)
    with h5py.File(folder / FEATURES, "a") as file:
        rows = file[IDS[0]][()]
        del file[IDS[0]]
        file.create_dataset(IDS[0], data=rows, **options)
    features = read(folder, IDS[0], (64, 48)).features
    assert features is not None
    assert np.array_equal(features.numpy(), rows)


def test_names_with_folders_are_hard_links_in_each_part(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["val/1"] = ROWS
        file["link"] = h5py.SoftLink("/val")
    opened = vlp.OpenFiles()
    assert np.array_equal(opened.array(path, "val/1", "here"), ROWS)
    assert opened.find(path, "val/2", "here") is None
    assert opened.find(path, "/val/1", "here") is None
    with pytest.raises(DataError, match="link/1: found a link to another place"):
        opened.find(path, "link/1", "here")


def test_the_next_image_is_requested_while_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = list[tuple[str, bool]](), LimitedProcesses.ask
    records = [Record(name, size=size_of(name)) for name in IDS]
    opened = GivenRegions.of(FILES / VLP, records)

    def recorded(self: LimitedProcesses, request: dict[str, Any], content: bytes = b"") -> Reply:
        asked.append((request["name"], threading.current_thread() is not threading.main_thread()))
        return ask(self, request, content)

    monkeypatch.setattr(LimitedProcesses, "ask", recorded)
    both = opened.detect([], records)
    assert asked == [(name, True) for name in IDS]
    for regions, record in zip(both, records, strict=True):
        assert np.array_equal(features_of(regions), features_of(opened.detect([], [record])[0]))


def test_a_fault_ahead_is_raised_where_its_image_is_read(tmp_path: Path) -> None:
    folder = copied(VLP, tmp_path)
    with h5py.File(folder / FEATURES, "a") as file:
        del file[IDS[0]]
        texts(file, tmp_path)
    records = [Record(name, size=size_of(name)) for name in IDS]
    opened = GivenRegions.of(folder, records)
    with pytest.raises(DataError, match=IDS[0]):
        opened.detect([], records)
    assert len(opened.detect([], records[1:])) == 1  # its reply waits
    with pytest.raises(DataError, match=IDS[0]):
        opened.detect([], records[::-1])
    assert list(opened.damaged) == [IDS[0]]
