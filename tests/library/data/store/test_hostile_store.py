"""Stores whose maker computed every checksum, and wrote something else than Diptych does: named, never a traceback."""

import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from diptych.core import FeatureContract
from diptych.data.check import check
from diptych.data.store.record_json import record_from_json, record_to_json
from diptych.data.store.shards import PER_REGION, TABLES, index_check, tensors_check
from diptych.data.store.store import Store, StoreWriter
from diptych.runtime.errors import DataError
from tests.support import deciding

CONTRACT = FeatureContract("given", "", 6, deciding.KINDS)
SHARD = "shard-00000.safetensors"
Tensors = dict[str, Tensor]
NAN = float("nan")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with StoreWriter(tmp_path / "store", CONTRACT) as writer:
        for number in range(3):
            writer.add(replace(deciding.record(number), captions=("a kite",)))
    return tmp_path / "store"


def forge(folder: Path, change: Callable[[Tensors], object] = lambda tensors: None, **of_shard: Any) -> None:
    """With the checks that the changed tensors have."""
    tensors = load_file(folder / SHARD)
    change(tensors)
    with_rows = [name for name in PER_REGION if name in tensors]
    ends = tensors["ends"].flatten().long().tolist()
    spans = list(zip([0, *ends], ends, strict=False))
    columns = [{name: tensors[name][start:end] for name in with_rows} for start, end in spans]
    tensors["checks"] = torch.tensor([tensors_check(one) for one in columns])
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / SHARD)
    index = json.loads((folder / "store.json").read_text())
    index["shards"][0] |= {"check": tensors_check({name: tensors[name] for name in TABLES})} | of_shard
    (folder / "store.json").write_text(json.dumps(index | {"check": index_check(index)}))


def wrote(*records: object) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        texts = [json.dumps(record).encode() for record in records]
        tensors["words"] = torch.frombuffer(bytearray(b"".join(texts)), dtype=torch.uint8)
        tensors["word_ends"] = torch.tensor(np.cumsum([len(text) for text in texts]))
        tensors["word_checks"] = torch.tensor([zlib.crc32(text) for text in texts])

    return change


def read(folder: Path) -> None:
    """All of it, and as `diptych check` does, which goes on after a bad record."""
    with suppress(DataError):
        assert any(one.severity == "error" for one in check(Store(folder)).findings)
    store = Store(folder)
    with pytest.raises(DataError) as raised:
        _ = store.splits, [store.record(number) for number in range(len(store))]
    assert len(str(raised.value)) < 600 + 2 * len(str(folder))
    raise raised.value


OTHERS = [{"key": "b", "split": "train"}, {"key": "c", "split": "train"}]
WORDS: list[tuple[object, str]] = [
    ([], "all of it: Input should be an object"),
    ({"key": "a"}, "split: Field required"),
    ({"key": 5}, "key: Input should be a valid string"),
    ({"captions": "a kite"}, "captions: Input should be a valid array"),
    ({"captions": [5]}, r"captions\.0: Input should be a valid string"),
    ({"captions": ["\ud800"]}, "Invalid JSON"),
    ({"questions": [{"key": "1", "text": None, "answers": []}]}, r"questions\.0\.text"),
    ({"questions": [{"key": "1", "text": "x", "answers": [], "more": 1}]}, r"questions\.0\.more"),
    ({"image": "a\0b"}, "image: found a null byte, expected a file name"),
    ({"size": [0, 1]}, r"size\.0: Input should be greater than 0, found 0"),
    (
        {"expressions": [{"key": "1", "text": "x", "box": [NAN] * 4}]},
        r"box\.0: Input should be a finite",
    ),
    ({"expressions": [{"key": "1", "text": "x", "box": [0, 1]}]}, r"expressions\.0\.box\.2"),
    ({"objects": [{"kind": "x", "box": [0, 0, 1, 10**400]}]}, r"box"),
    (
        {"choices": [{"key": "1", "question": "x", "answers": ["x"], "answer": 1}]},
        "the index of the right answer is 1, expected -1 to 0",
    ),
    ({"relations": [[0, "on", 9]]}, "relations: found indices 0 and 9 into 0 objects"),
    ({"regions": {}}, "regions: Extra inputs"),
    ({"captions": [{"x": "y" * 10**6}]}, r"captions\.0"),
]


@pytest.mark.parametrize(("said", "match"), WORDS)
def test_words_that_no_record_has_are_named(folder: Path, said: object, match: str) -> None:
    first = {"key": "a", "split": "train"} | said if isinstance(said, dict) and said != {"key": "a"} else said
    forge(folder, wrote(first, *OTHERS))
    with pytest.raises(DataError, match=match):
        read(folder)


def changed(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.__setitem__(name, change(tensors[name]))


TENSORS: dict[str, tuple[Callable[[Tensors], object], str]] = {
    "boxes of three": (changed("boxes", lambda x: x[:, :3]), "`boxes` is .*, expected .* x 4 of torch.float32"),
    "boxes of whole numbers": (changed("boxes", lambda x: x.long()), "`boxes` is .* of torch.int64"),
    "no boxes": (lambda tensors: tensors.pop("boxes"), "the tensor `boxes` is missing"),
    "fewer scores": (changed("scores", lambda x: x[:1]), r"`scores` is \(1,\)"),
    "flat features": (changed("features", lambda x: x[:, 0]), "`features` is"),
    "ends that decrease": (changed("ends", lambda x: x.flip(0) + 9), "the values of `ends` are not in ascending order"),
    "ends below zero": (changed("ends", lambda x: x - 100), "the values of `ends` are not in ascending order"),
    "ends far off": (changed("ends", lambda x: x * 10**12), r"`boxes` is .*, expected \d{14} x 4"),
    "fractions of ends": (changed("ends", lambda x: x.float()), "`ends` is .* of torch.float32"),
    "words that end elsewhere": (
        changed("word_ends", lambda x: x + 5),
        r"`words` is \(\d+,\) .*, expected \d+ of",
    ),
    "words in rows": (changed("words", lambda x: x[:, None]), "`words` is"),
    "fewer checks": (changed("word_checks", lambda x: x[:1]), r"`word_checks` is \(1,\)"),
    "sizes of nothing": (changed("sizes", lambda x: x * 0), "an image size is below 1 pixel"),
    "sizes of one": (changed("sizes", lambda x: x[:, 0]), "`sizes` is"),
    "one for the whole": (lambda tensors: tensors.update(whole=torch.ones(1, 6).half()), r"`whole` is \(1, 6\)"),
}


@pytest.mark.parametrize("what", TENSORS)
def test_tensors_of_another_kind_are_named(folder: Path, what: str) -> None:
    change, match = TENSORS[what]
    forge(folder, change)
    with pytest.raises(DataError, match=match):
        read(folder)


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"records": -1}, r"`int` >= 1 - at `\$\.shards\[0\]\.records`"),
        ({"records": 10**18}, r"`int` <= 1000000 - at .*records"),
        ({"records": "3"}, r"`int`, got `str` - at .*records"), ({"records": True}, r"got `bool` - at .*records"),
        ({"name": "../x"}, "matching regex .* - at .*name"), ({"name": "a\0"}, "matching regex .* - at .*name"),
        ({"name": 5}, "`str`, got `int` - at .*name"), ({"check": None}, "`int`, got `null` - at .*check"),
    ],
)  # fmt: skip
def test_shards_that_are_none_are_named(folder: Path, said: dict[str, Any], match: str) -> None:
    forge(folder, **said)
    with pytest.raises(DataError, match=match):
        read(folder)


def test_the_name_of_a_picture_need_not_be_utf8_and_all_else_is(folder: Path) -> None:
    record = replace(deciding.record(0), image=Path("\udcff.png"), regions=None)
    written = json.dumps(record_to_json(record), ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert record_from_json(written) == record
    for odd in (written.replace(b"image", b"imago"), b"\xff", b'["\xff"]', written.replace(b'"split"', b'"\xffplit"')):
        with pytest.raises(ValueError, match=r"."):
            record_from_json(odd)
