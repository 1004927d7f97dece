"""Folders and files of weights, those that Diptych writes and those of others, and bodies for its service."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tests.attack.fuzz import Fuzzer


def png(kind: str = "PNG") -> bytes:
    """A picture of noise."""
    content = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (20, 30, 3), np.uint8)
    Image.fromarray(noise).save(content, kind)
    return content.getvalue()


def weights() -> Iterator[Fuzzer]:
    """Of others."""
    from tests.support.detector_layouts import LAYOUTS as DETECTORS

    for system in ("unified-vlp", "vl-bert"):
        yield Fuzzer(f"{system}'s checkpoint", partial(_official, system), partial(_read_official, system), 30)
    yield Fuzzer("BERT's weights", _bert, _read_bert, 50)
    for write in DETECTORS:
        yield Fuzzer(f"a detector, {write.__name__}", write, _read_detector_file, 20)


def _official(system: str, folder: Path) -> None:
    from safetensors.torch import save_file

    from tests.support.exporting import export_unified_vlp

    torch.manual_seed(0)
    if system == "unified-vlp":
        from tests.support.official_weights import official

        tensors, count = export_unified_vlp(official()), 15
    else:
        from diptych.core import Vocabulary
        from diptych.systems.vl_bert.model import VLBert, VLBertResolvedConfig
        from tests.support.official_names import under_their_names

        sizes: Any = {"width": 64, "layers": 1, "heads": 1, "ffn": 32, "positions": 40, "coordinates": 4, "classes": 9}
        vocabulary = Vocabulary(20, 0, 1, 2, 3, 4)
        config = VLBertResolvedConfig(vocabulary=vocabulary, feature_size=6, hidden_regions="official", **sizes)
        tensors, count = under_their_names(VLBert(config, ("word", "region_class"))), 15
    tensors = {name: value.detach().clone() for name, value in tensors.items()}
    torch.save(tensors, folder / "theirs.bin")
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "theirs.safetensors")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(count))]
    (folder / "vocab.txt").write_text("\n".join(words))


def _read_official(system: str, folder: Path) -> None:
    """Each by itself, as one is whole where the other is not."""
    from diptych.runs.importing import import_checkpoint
    from diptych.runtime.errors import DiptychError

    for name in ("theirs.bin", "theirs.safetensors"):
        out = folder.parent / "out"
        shutil.rmtree(out, ignore_errors=True)
        try:
            import_checkpoint(system, folder / name, out, folder / "vocab.txt")
        except DiptychError:
            assert not out.exists()


def _bert(folder: Path) -> None:
    from tests.support import toy
    from tests.support.exporting import export_unified_vlp

    form: Any = {"region_embedding": "official", "geometry": "official", "box_norm": "official"}
    model = toy.model("word", seed=1, segments=2, positions=40, layers=3, **form)
    tensors = {n: v.detach().clone() for n, v in export_unified_vlp(model).items() if not n.startswith("vis_")}
    torch.save(tensors, folder / "pytorch_model.bin")


def _read_bert(folder: Path) -> None:
    from diptych.runs.start import initialise
    from tests.support import toy

    initialise(toy.tden("word", seed=2), "tden", str(folder))


def _read_detector_file(folder: Path) -> None:
    from diptych.vision.detectors.open import open_detector

    (path,) = folder.iterdir()
    open_detector(str(path), files=True)


def own(world: Path) -> Iterator[Fuzzer]:
    """What Diptych itself wrote, and what its service is sent."""
    for name, place, read in (
        ("a store", "store", _read_store),
        ("a model folder", "captioner/model", _read_model),
        ("a detector folder", "detector", _read_detector),
        ("a run's checkpoints", "start/checkpoints", _read_checkpoints),
        ("what a run logged", "start", _read_run),
    ):
        yield Fuzzer(name, partial(_content, world / place), read, 60)
    yield Fuzzer("HTTP bodies", _requests, partial(_ask, world), 200)


def _content(source: Path, folder: Path) -> None:
    shutil.copytree(source, folder, dirs_exist_ok=True)


def _read_store(folder: Path) -> None:
    from diptych.data.check import check
    from diptych.data.store.store import Store
    from diptych.runtime.errors import DataError

    store = Store(folder)
    check(store, pictures=False)
    for index in range(len(store)):
        try:
            store.record(index)
        except DataError:
            continue


def _read_model(folder: Path) -> None:
    from diptych.inference.model_facts import model_facts, offered_tasks
    from diptych.runs.folder import damaged_files, open_model
    from diptych.vision.detectors.load import load_detector

    hurt = damaged_files(folder)
    made = open_model(folder)
    model_facts("a", made, offered_tasks(made))
    assert made.detector is not None
    load_detector(made.detector)
    assert not hurt, f"opened, and yet {hurt[0]}"


def _read_detector(folder: Path) -> None:
    from diptych.vision.detectors.load import load_detector

    load_detector(folder)


def _read_checkpoints(folder: Path) -> None:
    from diptych.training.checkpoint import load_latest

    load_latest(folder)


def _read_run(folder: Path) -> None:
    from diptych.runs.reports.charts import read_log
    from diptych.systems.recipe import Recipe

    Recipe.load(folder)
    read_log(folder)


def _requests(folder: Path) -> None:
    """Raw bodies of each kind, the first line their content type."""
    image = base64.b64encode(png()).decode()
    asked = {"image": image, "question": "what is it", "task": "caption", "beams": 2, "captions": 2}
    (folder / "a.json").write_text(json.dumps(asked))
    head = b'--X\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'
    form = (
        head % (b"image", b'; filename="a.png"') + png() + b"\r\n" + head % (b"question", b"") + b"is it\r\n--X--\r\n"
    )
    (folder / "b.form").write_bytes(form)


def _ask(world: Path, folder: Path) -> None:
    """Every answer is below 500, and a refusal says what is wrong."""
    service = _service(world)
    for name, kind in (("a.json", "application/json"), ("b.form", "multipart/form-data; boundary=X")):
        body = (folder / name).read_bytes()
        for path in ("/v1/caption", "/v1/ask"):
            answer = service.ask("POST", path, content=body, headers={"content-type": kind})
            assert answer.status_code < 500, f"{path}: {answer.status_code} {answer.text[:200]}"
            assert answer.status_code < 400 or answer.headers["content-type"] == "application/problem+json", path


SERVICE: dict[Path, Any] = {}


def _service(world: Path) -> Any:
    if world not in SERVICE:
        from diptych.inference.predictor import Predictor
        from diptych.runs.folder import open_model
        from diptych_serve.service.service import Service
        from tests.support.service import Local

        SERVICE[world] = Local(Service({"a": Predictor(open_model(world / "captioner"))}))
    return SERVICE[world]
