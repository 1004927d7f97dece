"""docs/scale.md and its plots, of what `benchmarks.scale` and `benchmarks.loader` measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.encoders import BASE
from benchmarks.machine import RESULTS
from diptych.runs.reports.charts import draw
from diptych.runs.reports.html import environment
from diptych.runs.reports.report import Chart, Curve

DOCS = Path(__file__).parent.parent / "docs"
PEAK, NVLINK, SHARE, GPUS = 989e12, 450e9, 0.5, 8  # of an H200 (NVIDIA's data sheet, dense bf16; each way); assumed
PICTURES, REGIONS, WORDS, EPOCHS, BATCH = 3_300_000, 100, 21, 30, 512  # Conceptual Captions; Unified VLP's recipe
WEIGHTS = 115e6  # of Unified VLP, base size


def numbers(of: Mapping[str, Any], what: str, logarithm: bool) -> Iterator[tuple[float, float]]:
    """Points of a curve: what was measured by the number that was changed."""
    for count, figures in of.items():
        yield (math.log10(int(count)) if logarithm else float(count)), float(figures[what])


def charts(figures: Mapping[str, Any]) -> dict[str, list[Chart]]:
    """By the name of a drawing."""

    def one(title: str, of: Mapping[str, Any], what: str, x: str, logarithm: bool = False) -> Chart:
        return Chart(title, (Curve(what, tuple(numbers(of, what, logarithm))),), x=x, y=what, from_zero=True)

    made: dict[str, list[Chart]] = {}
    if "step" in figures:
        made["step"] = [
            one(f"{what}, by {name}", of, what, name)
            for name, of in figures["step"].items()
            for what in ("CPU seconds", "MiB kept")
        ]
    if "processes" in figures:
        made["processes"] = [one("by processes", figures["processes"], "samples a second", "processes")]
    if "store" in figures:
        of_store = ("s to open", "s to find a split", "s to make the loader", "MiB", "samples a CPU second",
                    "records written a CPU second")  # fmt: skip
        made["store"] = [one(what, figures["store"], what, "records, powers of ten", True) for what in of_store]
    if "gallery" in figures:
        made["gallery"] = [one("a query", figures["gallery"], "ms a query", "vectors, powers of ten", True)]
    return made


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def of_part(of: Mapping[str, Any], first: str) -> str:
    names = [name for name in next(iter(of.values())) if name != "rounds"]
    return table([first, *names], [[f"{int(count):,}", *(found[n] for n in names)] for count, found in of.items()])


def paper(samples_a_process: float | None) -> str:
    """What 3.3 million pictures cost, from what is known and what is assumed."""
    sample = REGIONS * (2 * (2048 + 1601) + 4 * 5)
    positions = REGIONS + WORDS + 2
    weights = BASE.layers * (4 * BASE.width**2 + 2 * BASE.width * BASE.ffn)
    each = 3 * 2 * positions * (weights + BASE.layers * 2 * positions * BASE.width)
    rate = GPUS * SHARE * PEAK / each
    hours = EPOCHS * PICTURES / rate / 3600
    step, sent = BATCH / rate, 2 * (GPUS - 1) / GPUS * WEIGHTS * 4
    rows = [
        ["a picture on the disk", f"{sample / 1e3:.0f} kB", "features and classes of 100 regions in half precision"],
        ["all of them", f"{PICTURES * sample / 1e12:.2f} TB", ""],
        ["operations of a sample, forward and back", f"{each / 1e9:.1f} GFLOP", "12 layers, 123 positions"],
        ["samples a second of eight GPUs", f"{rate:,.0f}", f"assumed: {SHARE:.0%} of {PEAK / 1e12:.0f} TFLOP/s each"],
        ["hours of eight GPUs", f"{hours:.2f}", f"{EPOCHS} epochs; so long as they are fed"],
        ["read to feed them", f"{rate * sample / 1e9:.0f} GB/s", "from memory: disks seldom give as much"],
        ["hours at 6 GB/s", f"{EPOCHS * PICTURES * sample / 6e9 / 3600:.1f}", "assumed: what two NVMe disks read"],
        ["sent by each GPU a step", f"{sent / 1e9:.2f} GB", "gradients of 115 million weights in fp32, a ring (DDP)"],
        ["network that this wants", f"{sent / step / 1e9:.0f} GB/s", f"batch {BATCH}, if none of it is hidden behind "
         f"backward; NVLink has {NVLINK / 1e9:.0f} each way, between machines accumulate or raise the batch"],
    ]  # fmt: skip
    if samples_a_process is not None:
        rows.insert(6, ["processes that make batches", f"{rate / samples_a_process:.0f}",
                        f"{samples_a_process:,.0f} samples a second each, measured here (loader, `wide`), if N "
                        "do not wait for each other"])  # fmt: skip
    return table(["what", "figure", "from"], rows)


def text(figures: Mapping[str, Any], feeding: Mapping[str, Any]) -> str:
    rates = feeding.get("wide", {}).get("samples a second", {})
    parts = [HEAD]
    for name in charts(figures):
        parts.append(f"## {TITLES[name]}\n\n![](scale/{name}.svg)")
        if name == "step":
            parts += [of_part(of, changed) for changed, of in figures["step"].items()]
        else:
            parts.append(of_part(figures[name], FIRST[name]))
        parts.append(fill(SAID[name], 120, break_on_hyphens=False))
    if missing := sorted(TITLES.keys() - charts(figures).keys()):
        parts.append(f"Not measured yet: {', '.join(missing)} (`python -m benchmarks.scale {' '.join(missing)}`).")
    parts += ["## 3.3 million pictures with 100 regions on eight H200, on paper", paper(rates.get("1 process"))]
    parts.append(
        "The command on several machines, for each system: `examples/nodes.sh`. A GPU's own figures: "
        "`python -m benchmarks.gpu`."
    )
    return "\n\n".join(parts) + "\n"


HEAD = """# How cost grows

Made by `python -m benchmarks.scale page` of `benchmarks/results/scale.json`; the machine is shared, so CPU seconds and
ratios count. Figures of GPUs are computed, with their assumptions; [one GPU](results/gpu.md) was measured."""
TITLES = {"step": "A step", "processes": "Processes", "store": "Stores", "gallery": "Galleries"}
FIRST = {"processes": "processes", "store": "records", "gallery": "vectors"}
SAID = {
    "step": "Unified VLP of the published width, 2 layers, one thread, fp32, forward and backward. The activations "
    "that forward keeps for backward are counted tensor by tensor, with attention scores (absent on a GPU), without "
    "weights.",
    "processes": "A small model over gloo, on the two cores of one machine: more processes than cores wait for each "
    "other in every step. It does not show the speed of a cluster.",
    "store": "A store opens by its index alone. To find a split and to make a loader, the words of each record are "
    "parsed and tokenised once: that grows with the records, and so does the memory. 200,000 samples stay parsed. Most "
    "samples of a larger store are parsed again when they are read, so the last rate is a quarter below the others "
    "(10% were allowed). A thousand records fit in the processor's caches. Only the first 10,000 records are written; "
    "the others are links to their files.",
    "gallery": "Products with every vector, in memory; faiss and pgvector are in [results](results/gallery.md).",
}


def write(figures: Mapping[str, Any]) -> None:
    kept = RESULTS / "loader.json"
    feeding: dict[str, Any] = json.loads(kept.read_text())["figures"] if kept.exists() else {}
    (DOCS / "scale").mkdir(exist_ok=True)
    for name, made in charts(figures).items():
        names = sorted({curve.name for chart in made for curve in chart.curves})
        drawings = [draw(chart) for chart in made]
        svg = environment().get_template("plot.svg.jinja").render(drawings=drawings, hues=dict.fromkeys(names, 0))
        (DOCS / "scale" / f"{name}.svg").write_text(svg)
    (DOCS / "scale.md").write_text(text(figures, feeding))
