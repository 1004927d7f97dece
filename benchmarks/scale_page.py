"""Make docs/scale.md and its plots from the saved figures of benchmarks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.encoders import BASE
from benchmarks.machine import RESULTS
from benchmarks.scale_sets import growth, image_bytes, processors, sets, table
from diptych.runs.reports.charts import draw
from diptych.runs.reports.environment import environment
from diptych.runs.reports.report import Chart, Curve

DOCS = Path(__file__).parent.parent / "docs"
PEAK, NVLINK, SHARE, GPUS = 989e12, 450e9, 0.5, 8  # an H200's data sheet (PEAK: dense bf16); SHARE is assumed
PICTURES, REGIONS, WORDS, EPOCHS, BATCH = 3_300_000, 100, 21, 30, 512  # Unified VLP on Conceptual Captions
WEIGHTS = 115e6  # number of weights of Unified VLP, base size


def numbers(of: Mapping[str, Any], what: str, logarithm: bool) -> Iterator[tuple[float, float]]:
    """Yield the points of a curve: the changed number (if `logarithm`, its decimal logarithm) and the figure `what`."""
    for count, figures in of.items():
        yield (math.log10(int(count)) if logarithm else float(count)), float(figures[what])


def charts(figures: Mapping[str, Any]) -> dict[str, list[Chart]]:
    """Return the charts of each drawing, by its name."""

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


def of_part(of: Mapping[str, Any], first: str) -> str:
    names = [name for name in next(iter(of.values())) if name != "rounds"]
    return table([first, *names], [[f"{int(count):,}", *(found[n] for n in names)] for count, found in of.items()])


def paper(samples_a_process: float | None) -> str:
    """Return a table of what training on 3.3 million images costs, calculated from known and assumed figures."""
    sample = image_bytes(REGIONS)
    positions = REGIONS + WORDS + 2
    weights = BASE.layers * (4 * BASE.width**2 + 2 * BASE.width * BASE.ffn)
    each = 3 * 2 * positions * (weights + BASE.layers * 2 * positions * BASE.width)
    rate = GPUS * SHARE * PEAK / each
    hours = EPOCHS * PICTURES / rate / 3600
    step, sent = BATCH / rate, 2 * (GPUS - 1) / GPUS * WEIGHTS * 4
    rows = [
        ["an image on disk", f"{sample / 1e3:.0f} kB", "features and classes of 100 regions in half precision"],
        ["all 3.3 million images on disk", f"{PICTURES * sample / 1e12:.2f} TB", ""],
        ["operations per sample, forward and backward", f"{each / 1e9:.1f} GFLOP", "12 layers, 123 positions"],
        ["samples per second on eight GPUs", f"{rate:,.0f}", f"assumed: {SHARE:.0%} of {PEAK / 1e12:.0f} TFLOP/s each"],
        ["hours on eight GPUs", f"{hours:.2f}", f"{EPOCHS} epochs, if reading data never delays them"],
        ["data read for this", f"{rate * sample / 1e9:.0f} GB/s", "only memory is this fast: few disks are"],
        ["hours if data is read at 6 GB/s", f"{EPOCHS * PICTURES * sample / 6e9 / 3600:.1f}", "assumed: two NVMe"],
        ["sent by each GPU per step", f"{sent / 1e9:.2f} GB", "gradients of 115 million fp32 weights, ring all-reduce"],
        ["network speed needed", f"{sent / step / 1e9:.0f} GB/s", f"batch {BATCH}, if sending does not overlap with "
         f"backward. NVLink has {NVLINK / 1e9:.0f} GB/s each way. Between machines, use a larger batch or accumulate"],
    ]  # fmt: skip
    if samples_a_process is not None:
        rows.insert(6, ["processes that make batches", f"{rate / samples_a_process:.0f}",
                        f"{samples_a_process:,.0f} samples per second each (measured on this machine: loader, `wide`), "
                        "if more processes are faster in proportion"])  # fmt: skip
    return table(["what", "figure", "from"], rows)


def saved() -> dict[str, Any]:
    """Return all results of benchmarks by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def text(found: Mapping[str, Any]) -> str:
    """Return docs/scale.md. `found` has the results by name; those of `scale`, `gpu` and `official_detectors` must be
    there."""
    figures = found["scale"]["figures"]
    rates = found.get("loader", {}).get("figures", {}).get("wide", {}).get("samples a second", {})
    parts = [HEAD, GROWTH, growth(found)]
    for name in charts(figures):
        parts.append(f"## {TITLES[name]}\n\n![](scale/{name}.svg)")
        if name == "step":
            parts += [of_part(of, changed) for changed, of in figures["step"].items()]
        else:
            parts.append(of_part(figures[name], FIRST[name]))
        parts.append(fill(SAID[name], 120, break_on_hyphens=False))
    if missing := sorted(TITLES.keys() - charts(figures).keys()):
        parts.append(f"Not measured yet: {', '.join(missing)} (`python -m benchmarks.scale {' '.join(missing)}`).")
    parts += [PROCESSORS, processors(found), SETS_HEAD, sets(found)]
    parts += ["## 3.3 million images with 100 regions on eight H200, calculated", paper(rates.get("1 process"))]
    parts.append(
        "`examples/nodes.sh` has the command for several machines, for each system. `python -m benchmarks.gpu` "
        "measures one GPU."
    )
    return "\n\n".join(parts) + "\n"


HEAD = """# How cost grows

`python -m benchmarks.scale page` makes this page from `benchmarks/results`. The machine was not idle, so rely on CPU
seconds and ratios more than on times. The figures for eight GPUs are calculated from stated assumptions; [one
GPU](results/gpu.md) was measured."""
GROWTH = """## In short

A step's words, regions, pictures and layers, and the other tables below, each from its smallest to its largest size.
"Width" is that of a small Unified VLP in self-critical training. In a layer's matrix products, operations grow with the
square of the width (computed). A step of a small model also has work that does not."""
PROCESSORS = """## Processors

Speed relative to other code in the same run, by the instructions of the processor. `not measured`: no page of results
has it. [The log](../experiments/LOG.md) has earlier figures of a processor without AMX. [All
comparisons](results/speed.md) name their processor; those before 2026-11-30 record only whether it had AMX."""
SETS_HEAD = """## Conceptual 12M and LAIT

One pre-training on 12 million images with Unified VLP, and one on LAIT's 10 million with ImageBERT. A measured figure
comes from the page of its link; no set was trained. Mining LAIT is not included. With one H100, the loader alone was
[faster than the step](results/gpu.md), from memory; slower disks delay training."""
TITLES = {"step": "A step", "processes": "Processes", "store": "Stores", "gallery": "Galleries"}
FIRST = {"processes": "processes", "store": "records", "gallery": "vectors"}
SAID = {
    "step": "The tables show one forward and backward pass of Unified VLP, with the published width and 2 layers "
    "(except where the layers vary), in fp32, on one thread. `MiB kept` is the memory of the activations that backward "
    "needs. It includes attention scores, which a GPU does not store, and excludes weights.",
    "processes": "A small model, trained over gloo on one machine with two cores. With four processes, each step waits "
    "for a core. These figures do not show the speed of a cluster.",
    "store": "Opening a store reads only its index. To find a split, and to make a loader, the texts of each record "
    "are parsed and tokenised once, so time and memory grow with the number of records. At most 200,000 samples stay "
    "in memory. Most samples of a larger store are parsed again when they are read, so its rate is a quarter lower. "
    "The rate at 1,000 records is higher, because they fit in the processor's caches. Stores above 10,000 records "
    "repeat the first 10,000: their other shards are links.",
    "gallery": "The query is multiplied with every vector, in memory. [These results](results/gallery.md) "
    "include faiss and pgvector.",
}


def write(figures: Mapping[str, Any]) -> None:
    (DOCS / "scale").mkdir(exist_ok=True)
    for name, made in charts(figures).items():
        names = sorted({curve.name for chart in made for curve in chart.curves})
        drawings = [draw(chart) for chart in made]
        svg = environment().get_template("plot.svg.jinja").render(drawings=drawings, hues=dict.fromkeys(names, 0))
        (DOCS / "scale" / f"{name}.svg").write_text(svg)
    (DOCS / "scale.md").write_text(text(saved()))
