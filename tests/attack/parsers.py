"""Good files for each parser of foreign bytes that no reader of a whole set reaches, and what calls it."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from tests.attack.folders import png
from tests.attack.fuzz import Fuzzer

CFG = """EPS: 1e-14
MODEL: !!python/object/new:detectron.utils.collections.AttrDict
  dictitems:
    NUM_CLASSES: 1601
    PIXEL_MEANS: [102.9, 115.9,
      122.7]
TEST: {RPN_NMS_THRESH: 0.7, SCALE: 600, BBOX: {NMS: 0.5}}
SCALES:
- 600
- 800
"""
SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
TIMES = count(10**18)  # nanoseconds
IMAGES = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "PPM")


def parsers() -> Iterator[Fuzzer]:
    """Parsers of features, archives, networks, bodies, tables and texts."""
    yield Fuzzer("h5, in this process", _h5, _read_h5, 100)
    yield Fuzzer("values of an LMDB", _values, _read_values, 100)
    yield Fuzzer("pages of an LMDB", _pages, _read_pages, 100)
    yield Fuzzer("archives of images", _archives, _read_archives, 100)
    yield Fuzzer("images, in this process", _images, _read_images, 100)
    yield Fuzzer("a package of tfjs", _package, _read_package, 60)
    yield Fuzzer("an ONNX network", _network, _read_network, 60)
    yield Fuzzer("a judge in a wheel", _wheel, _read_wheel, 100)
    yield Fuzzer("bodies of answers", _bodies, _read_bodies, 200)
    yield Fuzzer("tables of mining", _tables, _read_tables, 100)
    yield Fuzzer("a cfg", lambda folder: (folder / "a.yml").write_text(CFG), _read_cfg)
    yield Fuzzer("a vocabulary", _vocabulary, _read_vocabulary)
    yield Fuzzer("weights", _weights, _read_weights, 100)
    yield Fuzzer("replies of a process", _replies, _read_replies)


def _h5(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "a.h5", "w") as file:
        file["plain"] = np.ones((3, 4), np.float32)
        file.create_dataset("group/packed", data=np.ones((8, 6)), chunks=(2, 6), compression="gzip", shuffle=True)


def _read_h5(folder: Path) -> None:
    from diptych.runtime.errors import DataError
    from diptych.vision.features.h5 import FilesHere

    files, path = FilesHere(), folder / "a.h5"
    try:
        for name in ("plain", "group/packed", *files.names(path)[:20]):
            with suppress(DataError):
                files.each([path], name, "here")
    finally:
        files.close()


def _values(folder: Path) -> None:
    import msgpack

    array = np.ones((2, 4), np.float32)
    one = {b"nd": True, b"type": b"<f4", b"kind": b"", b"shape": (2, 4), b"data": array.tobytes()}
    (folder / "uniter").write_bytes(msgpack.packb({b"features": one, b"norm_bb": one, b"conf": one}))
    np.savez(folder / "uniter.npz", features=array, norm_bb=array)
    from tests.support.feature_files import FILES

    content = (FILES / "mmf" / "npy" / "COCO_val2014_000000000042_info.npy").read_bytes()
    (folder / "mmf").write_bytes(content[content.index(b"\x80") :])  # a pickle after npy's header
    (folder / "__keys__").write_text('["uniter", "mmf"]')


def _read_values(folder: Path) -> None:
    from diptych.runtime.errors import DataError
    from diptych.vision.features.lmdb import Database

    class Held(Database):
        """Its values are files."""

        def _value(self, key: bytes) -> bytes:
            return (self.path / key.decode()).read_bytes()

    held = Held(folder)
    with suppress(DataError):
        list(held._names())
    for name in ("uniter", "uniter.npz", "mmf"):
        with suppress(DataError):
            held.read(name)


def _pages(folder: Path) -> None:
    from tests.support.databases import opened

    (folder.parent / "lmdb").mkdir(exist_ok=True)
    with opened(folder.parent / "lmdb", map_size=2**16) as database, database.begin(write=True) as transaction:
        for number, size in enumerate((3, 300, 9000)):
            transaction.put(f"{number}".encode(), bytes(size))
    content = (folder.parent / "lmdb" / "data.mdb").read_bytes()
    (folder / "data.mdb").write_bytes(content[: len(content) - 100])


def _read_pages(folder: Path) -> None:
    from diptych.vision.features.lmdb_pages import CutDatabase

    for size in (4096, 512):
        if (folder / "data.mdb").stat().st_size:
            database = CutDatabase(folder / "data.mdb", size)
            for key in (*database.keys(), *database.cut()):
                database.get(key)


def _archives(folder: Path) -> None:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1.png", png())
    with tarfile.open(folder / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("1.png", "é" * 120 + ".png"):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))


def _read_archives(folder: Path) -> None:
    from diptych.runtime.errors import DataError
    from diptych.vision.archives import damaged_members, members, read_member

    for path in (folder / "a.zip", folder / "a.tar"):
        os.utime(path, ns=(now := next(TIMES), now))  # it may have the time and size of the last one, which are kept
        with suppress(DataError):
            if path.suffix == ".tar":
                damaged_members(path)
            for name in list(members(path))[:20]:
                with suppress(DataError):
                    read_member(path, name)


def _images(folder: Path) -> None:
    for kind in IMAGES:
        (folder / f"a.{kind.lower()}").write_bytes(png(kind))


def _read_images(folder: Path) -> None:
    from diptych.runtime.errors import DataError
    from diptych.vision.image_files import count_frames, read_header, read_pixels

    for path in sorted(folder.iterdir()):
        for read in (read_header, count_frames, read_pixels):
            with suppress(DataError):
                read(path.read_bytes(), "an image")


def _package(folder: Path) -> None:
    weights = [{"name": "a", "shape": [2], "dtype": "float32"},
               {"name": "b", "shape": [2, 1], "dtype": "float32", "quantization": {"dtype": "float16"}}]  # fmt: skip
    nodes = [{"name": "a", "op": "Const"}, {"name": "c", "op": "Add", "input": ["a", "b"], "attr": {}}]
    manifest = [{"paths": ["a.bin"], "weights": weights}]
    described = {"format": "graph-model", "modelTopology": {"node": nodes}, "weightsManifest": manifest}
    files = {"a.json": json.dumps(described).encode(), "a.bin": bytes(12)}
    from tests.support.tfjs_files import packed

    packed(folder / "a.tgz", files)
    unpacked = gzip.decompress((folder / "a.tgz").read_bytes())
    (folder / "a.tar").write_bytes(unpacked)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _read_package(folder: Path) -> None:
    """The tar is packed here, since a fuzzer seldom meets the checksum of gzip."""
    from diptych.runtime.errors import CheckpointError
    from diptych.vision.detectors.proposers.tfjs import read_graph

    (folder.parent / "b.tgz").write_bytes(gzip.compress((folder / "a.tar").read_bytes(), 1))
    for path in (folder / "a.tgz", folder.parent / "b.tgz", folder / "a.json"):
        with suppress(CheckpointError):
            read_graph(path, "a")


def _network(folder: Path) -> None:
    from tests.support.onnx_files import write_map

    write_map(folder / "a.onnx")


def _read_network(folder: Path) -> None:
    from diptych.vision.backbones.onnx_graph import Feed, Graph

    graph = Graph.read(folder / "a.onnx")
    feed = Feed.guess(graph, {})
    feed.side(graph)
    sorted([*graph.outputs, *graph.class_names])


def _wheel(folder: Path) -> None:
    with zipfile.ZipFile(folder / "a.whl", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a/network.onnx", bytes(100))


def _read_wheel(folder: Path) -> None:
    from diptych.runtime.errors import RecipeError
    from diptych_mine.judge.onnx_judge import OnnxJudge

    with suppress(RecipeError):  # its network is not a known one
        OnnxJudge.load(folder / "a.whl")


def _bodies(folder: Path) -> None:
    import brotli

    body = b"<html><body>a dog" + bytes(range(32, 100)) * 20
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for name, content in {"gzip": gzip.compress(body), "br": brotli.compress(body), "chunked": chunked}.items():
        (folder / name).write_bytes(content)


def _read_bodies(folder: Path) -> None:
    from diptych_mine.pages.bodies import kind_of, too_slow, unpacked

    for path in sorted(folder.iterdir()):
        for encodings in (path.name, "deflate, gzip", "br"):
            with suppress(ValueError):  # its callers count it
                body = unpacked(path.read_bytes(), path.name == "chunked", encodings, 2**20)
                assert len(body) <= 2**20
                kind_of(body)
                too_slow(body.decode("utf-8", "replace"))


def _tables(folder: Path) -> None:
    from diptych_mine.tables import write_rows

    row: dict[str, Any] = {"address": "http://a.test/k", "reason": "", "moved": "", "hops": 0, "offset": 0, "length": 1}
    write_rows(folder / "index.parquet", [row, row], "index")
    text = {"kind": "alt", "text": "a dog", "fails": [], "score": 0.5}
    page = {"page": "http://a.test", "address": "http://a.test/k", "place": 0, "texts": [text], "fails": []}
    write_rows(folder / "pages.parquet", [page | {"licence": "", "features": []}], "pages")
    (folder / "journal.json").write_text(json.dumps({"rows": [], "times": {"http://a.test": 1.5}}))


def _read_tables(folder: Path) -> None:
    from diptych.runtime.errors import DataError
    from diptych_mine.checking import FetchJournal, read_json
    from diptych_mine.tables import read_rows

    for kind in ("index", "pages"):
        with suppress(DataError):
            read_rows(folder / f"{kind}.parquet", kind)
    read_json(folder / "journal.json", FetchJournal)


def _read_cfg(folder: Path) -> None:
    from diptych.vision.detectors.official.cfg import cfg_values, number

    values = cfg_values((folder / "a.yml").read_bytes().decode("utf-8", "replace"))
    for name in list(values)[:50]:
        number(values, name)


def _vocabulary(folder: Path) -> None:
    from diptych.data.store.tokens import Tokens

    (folder / "vocab.txt").write_text(f"{SPECIAL}dog\n##s\n")
    Tokens.from_vocabulary(folder / "vocab.txt", True).save(folder)


def _read_vocabulary(folder: Path) -> None:
    from diptych.data.store.tokens import Tokens
    from diptych.runtime.errors import CheckpointError

    for path in (folder / "vocab.txt", folder):
        with suppress(CheckpointError):
            tokens = Tokens.from_vocabulary(path, True)
            tokens.decode(tokens.encode("Two dogs, a cat"))
            tokens.words("two dogs")


def _weights(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    tensors = {"a": torch.ones(2, 3), "b": torch.zeros(4, dtype=torch.int64)}
    save_file(tensors, folder / "a.safetensors")
    torch.save(tensors, folder / "a.bin")
    torch.save(tensors, folder / "b.pth", _use_new_zipfile_serialization=False)


def _read_weights(folder: Path) -> None:
    from diptych.runtime.errors import CheckpointError
    from diptych.runtime.weight_files import read_weights

    for name in ("a.safetensors", "a.bin", "b.pth"):
        with suppress(CheckpointError):
            read_weights(folder / name)


def _replies(folder: Path) -> None:
    (folder / "values").write_bytes(b'{"array": [[2, 3], "<f4"], "frames": 1}\n')
    (folder / "piped").write_bytes(b'{"array": [[5000000], "<f4"]}\n' + bytes(1000))
    (folder / "error").write_bytes(b'{"error": "DataError", "message": "a"}\n')


def _read_replies(folder: Path) -> None:
    from diptych.runtime.errors import DataError
    from diptych.vision import limited

    with tempfile.TemporaryFile() as file:
        file.truncate(limited.SHARED)
        for path in sorted(folder.iterdir()):
            process = SimpleNamespace(stdin=io.BytesIO(), stdout=io.BytesIO(path.read_bytes()), poll=lambda: None)
            asked = limited.LimitedProcesses("none", {"DataError": DataError}, 1)
            with mock.patch.object(limited, "_end", return_value=-9), suppress(DataError, limited.Ended):
                asked._idle.append(limited._Child(process, file.fileno()))  # type: ignore[arg-type]
                asked.ask({})
