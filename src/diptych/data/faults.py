"""Known faults in the outputs of earlier versions of Diptych.

`diptych check` reports each fault with the command that repairs it. Stores, models and score files record the version
of Diptych that wrote them, under the key `diptych`. Files without this key were written before 0.1.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.data.store.store import INDEX, Store, iterate
from diptych.data.store.texts import SPECIAL
from diptych.data.store.tokens import FILE
from diptych.runtime.errors import DataError
from diptych.runtime.files import parse_json, text_of


@dataclass(frozen=True)
class Fault:
    """A known fault in files that earlier versions wrote."""

    what: str
    mended: str  # the first version of Diptych without the fault
    touches: Callable[[Path], bool]  # True for a store, model, tokeniser or score file that may have the fault
    again: str  # the command that makes a correct file
    shows: bool = False  # True: `touches` finds the fault with certainty, so the version is not compared


def _json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Return {} if the file has no JSON object, or has 64 MiB or more."""
    try:
        values = parse_json(text_of(path)) if path.is_file() and path.stat().st_size < 2**26 else {}
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _has_tiffs(path: Path) -> bool:
    records = iterate(Store(path)) if (path / INDEX).is_file() else ()
    return any(str(one.image).lower().endswith((".tif", ".tiff")) for one in records)


def _strips(path: Path) -> bool:
    """Return True for a vocabulary that Diptych trained with BERT's normaliser.

    The tokens of such a vocabulary are in alphabetical order.
    """
    tokens = _json(path / FILE)
    ids: dict[str, int] = tokens["model"]["vocab"] if tokens["normalizer"]["type"] == "BertNormalizer" else {}
    words = sorted(ids, key=ids.__getitem__)[len(SPECIAL) :]
    return bool(words) and words == sorted(words)


def _scores(task: str) -> Callable[[Path], bool]:
    return lambda path: "scores" in (values := _json(path)) and values.get("task") == task


FAULTS = (
    Fault("rotated TIFF images have misplaced boxes, and grey ones are distorted", "0.1.0", _has_tiffs,
          "diptych extract DATA --out STORE --detector ..."),
    Fault("answers with capital letters, signs or articles were never right if all annotators agree", "0.1.0",
          lambda path: (path / "answers.json").is_file(), "diptych finetune vqa --data STORE --model MODEL --out RUN"),
    Fault("right answers with capital letters, signs or articles were scored as wrong if all annotators agree", "0.1.0",
          _scores("vqa"), "diptych evaluate --model MODEL --data STORE --json"),
    Fault("the vocabulary drops accents and splits Chinese words, so decoding does not restore texts", "0.1.0",
          _strips, "diptych tokenizer train or diptych pretrain, then fine-tune the new model", shows=True),
    Fault("recall counted identical captions of other images as errors", "0.1.0",
          _scores("retrieval"), "diptych rank --model MODEL --data STORE --json"),
)  # fmt: skip


def has_no_records(path: Path) -> bool:
    """Return True if `path` is an output of `evaluate --json` or `rank --json`, or a tokeniser: it has no records."""
    return {"task", "scores"} <= _json(path).keys() or (path / FILE).is_file()


def known_faults(path: Path) -> list[str]:
    """Return one line per known fault of a store, model, tokeniser or score file, or of the files in a run's folder."""
    lines = []
    for part in (path, path / "model", path / "store", *sorted(path.glob("*.json"))):
        described = [_json(part / name) for name in (".", INDEX, "config.json")]
        made = next((str(one["diptych"]) for one in described if one.get("diptych")), "")
        lines += [
            f"{part}, by Diptych {made or 'before 0.1'}: {one.what} (fixed in {one.mended}); run {one.again}"
            for one in FAULTS
            if (one.shows or _numbers(made) < _numbers(one.mended)) and _touches(one, part)
        ]
    return lines


def _touches(fault: Fault, part: Path) -> bool:
    with suppress(DataError, KeyError, TypeError):  # a damaged file is reported by other checks
        return fault.touches(part)
    return False


def _numbers(version: str) -> list[int]:
    return list(map(int, re.findall(r"\d+", version)[:3]))
