"""Compare exported programs with Diptych itself: whether token ids are equal, and the time per image on one core.

    uv run python -m benchmarks.export PICTURES MODEL [MODEL ...] [--made FOLDER]

PICTURES is a folder, from which 100 images are taken. Each MODEL is the folder of a caption model, or of a VL-BERT that
answers questions (it gets the same question for all images). Exported programs are kept in `--made`.

Four programs run in turn for each image, on one core, from the file to the words: Diptych in fp32, Diptych with
precision `auto`, torch.export, and ONNX. Times are medians. The reference for ids is Diptych's greedy search in fp32.
The ids of ONNX are also compared with a run whose detector is in fp32, because onnxruntime has no bfloat16 on a CPU.
Writes benchmarks/results/export.json.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from runpy import run_path
from statistics import median
from types import SimpleNamespace
from typing import Any, get_args
from unittest.mock import patch

import torch

from benchmarks.machine import save_result
from diptych.api.model import load
from diptych.core import Writer, collate
from diptych.inference.model_facts import offered_tasks
from diptych.inference.predictor import Predictor
from diptych.models.decoding import decode
from diptych.runtime.configs import derive
from diptych.runtime.devices import predicting
from diptych.tasks.caption import Captioning
from diptych.tasks.vqa import VQA, AskRequest
from diptych.vision.image_files import find_pictures
from diptych_serve.export.write import Format, export

PICTURES = 100
QUESTION = "what colour is the dog?"
Ids = Callable[[Path], Sequence[int]]


def eager(predictor: Predictor) -> Ids:
    """Return a function from an image file to the ids of its greedy caption, or to the index of the answer."""
    model, decoding = predictor.folder.model, derive(predictor.decoding, beams=1)
    task = Captioning(predictor.tokens, decoding)

    def written(picture: Path) -> Sequence[int]:
        (record,) = predictor.extract([picture])
        if predictor.folder.answers is not None:
            (answer,) = predictor.answers(VQA, [(record, AskRequest(question=QUESTION))])
            return [predictor.folder.answers.names.index(answer.text)]
        assert isinstance(model, Writer)
        with predicting(model):
            ((best, *_),) = decode(model, collate(task.queries(record)), decoding)
        return best.tokens

    return written


def exported(folder: Path) -> Ids:
    """Return a function like that of `eager`, which uses the exported folder's own runner on one thread."""
    import onnxruntime

    runner = SimpleNamespace(**run_path(str(folder / "run.py")))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession
    with patch.object(onnxruntime, "InferenceSession", partial(session, sess_options=options)):
        model = runner.ExportedModel(folder)

    def written(picture: Path) -> Sequence[int]:
        opened = [runner.open_picture(picture)]
        if model.facts["answers"] is not None:
            return [int(model.answers(opened, [QUESTION])[0][0])]
        found: list[int] = model.captions(opened)[0][0]
        return found

    return written


@contextmanager
def single_precision() -> Iterator[None]:
    with patch.object(torch, "autocast", lambda *_, **__: nullcontext()):
        yield


def measured(source: Path, pictures: Sequence[Path], made: Path) -> dict[str, Any]:
    plain, chosen = load(source, precision="fp32").predictor, load(source).predictor
    ways = {"eager, fp32": eager(plain), f"eager, {chosen.precision} (auto)": eager(chosen)}
    sizes = {}
    for form in get_args(Format):
        out = made / f"{plain.fingerprint[:12]}-{form}"
        if not out.exists():
            export(plain.folder, out, form)
        ways[form] = exported(out)
        sizes[form] = sum(file.stat().st_size for file in out.iterdir()) / 2**20
    milliseconds: dict[str, list[float]] = {way: [] for way in ways}
    ids: dict[str, list[Sequence[int]]] = {way: [] for way in ways}
    for number, picture in enumerate((pictures[0], *pictures)):
        for way, written in ways.items():
            begun = time.perf_counter()
            found = written(picture)
            if number:  # the first call warms up
                milliseconds[way].append(1000 * (time.perf_counter() - begun))
                ids[way].append(list(found))
    with single_precision():
        unrounded = [list(ways["eager, fp32"](picture)) for picture in pictures]
    alike = {way: _equal(ids[way], ids["eager, fp32"]) for way in ways}
    figures: dict[str, Any] = {
        way: {"ms a picture": round(median(milliseconds[way]), 1), "equal ids": alike[way]} for way in ways
    }
    for form in get_args(Format):
        figures[form]["MiB"] = round(sizes[form], 1)
    figures["onnx"]["equal ids, detectors in fp32"] = _equal(ids["onnx"], unrounded)
    figures["different answers"] = len(set(map(tuple, unrounded)))
    return figures


def _equal(found: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> int:
    return sum(one == other for one, other in zip(found, wanted, strict=True))


def main(folder: Path, models: Sequence[Path], made: Path) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    pictures = find_pictures(folder)[:PICTURES]
    figures: dict[str, Any] = {"pictures": len(pictures)}
    for source in models:
        opened = load(source).predictor
        looks = opened.folder.contract.extractor.partition(" ")[0]
        name = f"{opened.folder.architecture.system}, {offered_tasks(opened.folder)[0]}, {looks}"
        figures[name] = measured(source, pictures, made)
    words = " ".join(map(str, (folder, *models)))
    print(save_result("export", f"uv run python -m benchmarks.export {words}", figures).read_text())


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("pictures", type=Path)
    words.add_argument("models", type=Path, nargs="+")
    words.add_argument("--made", type=Path)
    asked = words.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        main(asked.pictures, asked.models, asked.made or Path(temporary))
