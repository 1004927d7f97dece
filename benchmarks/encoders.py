"""Compare training steps of VL-BERT and ImageBERT at their published size with Hugging Face's BERT.

    OMP_WAIT_POLICY=passive uv run --with transformers python -m benchmarks.encoders [--threads N] [--tiny]
        [--without-pixels]

A step is forward, backward and optimizer: ours with the recipe's optimizer, BERT with AdamW. The batch has eight images
of 100 regions with texts of 36 words, [SEP] included. VL-BERT then has 139 positions ([CLS], the whole image and [END]
are added), ImageBERT 137. VL-BERT also has a mixed batch: eight images of 42 regions with 22 words, and eight texts of
64 words. Some words of each text and 15% of the regions are masked and predicted. BERT has the same width and the same
numbers of layers, positions and predictions.

Each library runs with its default settings (see `benchmarks.vlp`). All run in turn in each round, in CPU seconds of all
threads, and the figures are medians of the ratios. The authors' VL-BERT step took 3.18 s on two threads of an idle Xeon
with AMX.

VL-BERT from pixels is measured in two sizes, with the step split into pixels and words. `official` has two images of
600 x 1,000 pixels with 100 regions, and ResNet-101. `small` has sixteen images of 128 x 192 with 8 regions, a ResNet-18
with 4 x 4 cells per region, and the width of the small recipe. `pixels` is forward and backward of the image network
alone. `words` is the same step on stored features.

Writes benchmarks/results/encoders.json, then pixels.json. With --tiny (a test of this program) it writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from statistics import median
from typing import Any

import torch

from benchmarks.machine import save_result
from benchmarks.steps import Apart, Step, bert_step, in_turn, median_ratio, product_seconds, random_regions, stepping
from diptych.core import BIDIRECTIONAL, Batch, Sample, Vocabulary, collate
from diptych.models import SystemModel
from diptych.objectives import MaskedLanguage, MaskedRegionClass, OneForward
from diptych.runtime.configs import derive
from diptych.runtime.memory import keep_freed_memory
from diptych.systems import SYSTEMS, find_recipe
from diptych.systems.vl_bert.model import VLBert
from diptych.systems.vl_bert.network import FastRCNN

COMMAND = "OMP_WAIT_POLICY=passive uv run --with transformers python -m benchmarks.encoders"
MARKS = {"vl-bert": 3, "image-bert": 1}  # positions besides words and regions, such as [CLS]
HEADS = ("word", "region_class")


@dataclass(frozen=True)
class Sizes:
    pictures: int = 8
    regions: int = 100
    words: int = 36
    hidden: int = 5  # masked words of each text
    vocabulary: int = 30_522
    classes: int = 1601
    features: int = 2048
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn: int = 3072
    rounds: int = 7
    network: str = "resnet101"  # the network that reads pixels
    cells: int = 14  # rows and columns of cells in a region
    height: int = 600
    across: int = 1000
    texts: int = 0  # number of texts without image, of `alone` words each
    alone: int = 64
    goal: float = 2.5

    def shape(self) -> dict[str, int]:
        return {"width": self.width, "layers": self.layers, "heads": self.heads, "ffn": self.ffn}


BASE = Sizes()
MIXED = replace(BASE, regions=42, words=22, hidden=3, texts=8, goal=2.6)
TINY = Sizes(pictures=2, regions=4, words=6, hidden=1, vocabulary=50, classes=7, features=6, width=16, layers=1,
             heads=2, ffn=32, rounds=2)  # fmt: skip
PIXELS = {
    "official": replace(BASE, pictures=2, rounds=3),
    "small": replace(BASE, pictures=16, regions=8, words=16, hidden=2, width=128, layers=3, heads=4, ffn=512,
                     network="resnet18", cells=4, height=128, across=192),
}  # fmt: skip
TINY_PIXELS = {"tiny": replace(TINY, network="resnet18", cells=4, height=64, across=96)}


def prepared(sizes: Sizes, pixels: bool = False) -> tuple[OneForward, Batch]:
    """Return the update, and a batch of random images and texts prepared for it."""
    vocabulary = Vocabulary(sizes.vocabulary, 0, 1, 2, 3, 4)
    words = MaskedLanguage(vocabulary, rate=1.0, most=sizes.hidden, attention=((BIDIRECTIONAL, 1.0),), hides_end=False)
    update = OneForward((words, MaskedRegionClass(rate=0.15, hidden=0.9)))

    def sample(number: int) -> Sample:
        looked_at = (sizes.height, sizes.across) if pixels else None
        seen = random_regions(sizes.regions, sizes.classes, 0 if pixels else sizes.features, looked_at)
        text = torch.randint(5, sizes.vocabulary, (sizes.words,))
        text[-1] = vocabulary.sep
        return Sample(str(number), str(number), seen, text)

    samples = [sample(number) for number in range(sizes.pictures)]
    for number in range(sizes.texts):
        words_alone = torch.randint(5, sizes.vocabulary, (sizes.alone,))
        samples.append(Sample(f"text {number}", "", None, words_alone))
    batch = collate(update.prepare(samples, Random(0)))
    assert int((batch.text_labels >= 0).sum()) == len(batch) * sizes.hidden
    return update, batch


def built(system: str, sizes: Sizes, **changes: Any) -> SystemModel:
    config = SYSTEMS[system].resolved(
        vocabulary=Vocabulary(sizes.vocabulary, 0, 1, 2, 3, 4),
        feature_size=sizes.features,
        classes=sizes.classes,
        max_regions=sizes.regions,
        **sizes.shape(),
        **changes,
    )
    return SYSTEMS[system].model(config, HEADS).train()


def ours(
    model: SystemModel, update: OneForward, batch: Batch, half: bool = True, system: str = "vl-bert"
) -> Callable[[], None]:
    """Return a function that makes one training step, with the optimizer of the system's published recipe."""
    counts = update.counts(batch)

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            (losses,) = list(update.losses(model, batch))
        return sum((cost / counts[name].clamp(min=1) for name, cost in losses.items()), torch.zeros(()))

    return stepping(model, loss, derive(find_recipe(f"{system}/pretrain").optimizer, lr_multipliers={}))


def beside_bert(system: str, sizes: Sizes) -> dict[str, Any]:
    positions = max(sizes.words + sizes.regions, sizes.alone if sizes.texts else 0) + MARKS[system]
    update, batch = prepared(sizes)
    asked = int(update.counts(batch)["masked_region_class"])
    shape = {"hidden_size": sizes.width, "num_hidden_layers": sizes.layers, "num_attention_heads": sizes.heads,
             "intermediate_size": sizes.ffn}  # fmt: skip
    bert = (sizes.vocabulary, len(batch), positions, sizes.hidden, sizes.classes, asked)
    half, full = (ours(built(system, sizes), update, batch, half, system) for half in (True, False))
    steps: dict[str, Step] = {
        "ours, bf16": half,
        "ours, fp32": full,
        "BERT, fp32": Apart(bert_step, *bert, **shape),
        "BERT, fp32, memory kept": bert_step(*bert, **shape),
    }
    taken = in_turn(steps, sizes.rounds)
    taken["its products alone"] = [product_seconds(half) for _ in range(sizes.rounds)]
    return {
        "positions": positions,
        "CPU seconds, median": _medians(taken),
        f"BERT over ours (goal {sizes.goal})": median_ratio(taken["BERT, fp32"], taken["ours, bf16"]),
        "BERT with its memory kept over ours": median_ratio(taken["BERT, fp32, memory kept"], taken["ours, bf16"]),
        "of the step, products alone": round(median(taken["its products alone"]) / median(taken["ours, bf16"]), 2),
        "rounds": taken,
    }


def from_pixels(sizes: Sizes) -> dict[str, Any]:
    """Time the whole step, the network alone, and the same step on stored features."""
    update, batch = prepared(sizes, pixels=True)
    whole = built("vl-bert", sizes, network=sizes.network, network_cells=sizes.cells)
    assert isinstance(whole, VLBert)
    network = whole.regions.network
    assert network is not None
    stored = replace(sizes, features=network.size)
    told, features = prepared(stored)
    steps = {
        "step": ours(whole, update, batch),
        "pixels": _looking(network, batch),
        "words": ours(built("vl-bert", stored), told, features),
    }
    taken = in_turn(steps, sizes.rounds)
    medians = _medians(taken)
    return {
        "pictures": sizes.pictures,
        "height": sizes.height,
        "width": sizes.across,
        "regions": sizes.regions,
        "network": sizes.network,
        "CPU seconds, median": medians,
        "share of the step, pixels": round(medians["pixels"] / medians["step"], 2),
        "share of the step, words": round(medians["words"] / medians["step"], 2),
        "rounds": taken,
    }


def _looking(network: FastRCNN, batch: Batch) -> Callable[[], None]:
    assert batch.pixels is not None
    assert batch.pixel_sizes is not None
    boxes = batch.boxes * batch.pixel_sizes[:, [0, 1, 0, 1]][:, None]
    pixels = batch.pixels

    def look() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            found = network(pixels, boxes, batch.regions_present)
        found.float().sum().backward()
        network.zero_grad(set_to_none=True)

    return look


def _medians(taken: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(median(all_), 4) for name, all_ in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--without-pixels", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    keep_freed_memory()  # the command line does this, too
    figures: dict[str, Any] = {"threads": given.threads}
    for system in MARKS:
        figures[system] = beside_bert(system, TINY if given.tiny else BASE)
        print(system, figures[system], flush=True)
    figures["vl-bert with text"] = beside_bert("vl-bert", replace(TINY, texts=2, alone=9) if given.tiny else MIXED)
    print("vl-bert with text", figures["vl-bert with text"], flush=True)
    if not given.tiny:
        print(save_result("encoders", COMMAND, figures))
    figures = {"threads": given.threads}
    for name, sizes in {} if given.without_pixels else (TINY_PIXELS if given.tiny else PIXELS).items():
        figures[f"vl-bert from pixels, {name}"] = from_pixels(sizes)
        print(name, figures[f"vl-bert from pixels, {name}"], flush=True)
    if not given.tiny and not given.without_pixels:
        print(save_result("pixels", COMMAND, figures))


if __name__ == "__main__":
    main()
