"""Make docs/scale.md and its plots from the saved figures of benchmarks."""

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
from diptych.runs.reports.environment import environment
from diptych.runs.reports.report import Chart, Curve

DOCS = Path(__file__).parent.parent / "docs"
PEAK, NVLINK, SHARE, GPUS = 989e12, 450e9, 0.5, 8  # an H200's data sheet (PEAK: dense bf16); SHARE is assumed
PICTURES, REGIONS, WORDS, EPOCHS, BATCH = 3_300_000, 100, 21, 30, 512  # Unified VLP on Conceptual Captions
WEIGHTS = 115e6  # number of weights of Unified VLP, base size
IMAGE = REGIONS * (2 * (2048 + 1601) + 4 * 5)  # bytes in a store: features and classes in half precision, and boxes
READ, GPU_HOUR, TB_MONTH = 6e9, 3, 80  # assumed: bytes a second of two NVMe, and prices in dollars
SETS = {"Conceptual 12M": (12e6, 30, "Unified VLP"), "LAIT": (10e6, 17, "ImageBERT")}  # images, epochs, system


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


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def of_part(of: Mapping[str, Any], first: str) -> str:
    names = [name for name in next(iter(of.values())) if name != "rounds"]
    rows = [[f"{int(count):,}", *(found[n] for n in names)] for count, found in of.items()]
    least, most = of[min(of, key=int)], of[max(of, key=int)]
    growth = [f"{float(f'{most[n] / least[n]:.3g}'):,g}" if least[n] else "–" for n in names]  # 0: rounded
    return table([first, *names], [*rows, ["last / first", *growth]])


def of_verbs(verbs: Mapping[str, Any]) -> str:
    """Return a table with a row for each verb, and a column for each number of records."""
    sizes = list(next(iter(verbs.values())))
    rows = [
        [name, *(f"{of[one]['CPU s']:,} s, {of[one]['MiB']:,} MiB" if one in of else "" for one in sizes)]
        for name, of in verbs.items()
    ]
    return table(["records", *(f"{int(one):,}" for one in sizes)], rows)


def of_sets(found: Mapping[str, Any]) -> str:
    """Return a table of what pre-training on `SETS` costs in hours, disk, memory and money. Only one row is measured;
    each other row has its formula."""
    rows = zip(*(of_set(found, *of) for of in SETS.values()), strict=True)
    return table(("what", *SETS, "source"), [[one[0], one[1], two[1], one[2]] for one, two in rows])


def of_set(found: Mapping[str, Any], images: float, epochs: int, system: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and source of each row for one set."""
    rate = found["gpu"]["figures"]["a pre-training step, bf16"][system]["samples a second"]
    store = found["scale"]["figures"]["store"]["1000000"]
    detector = found["official_detectors"]["figures"]["Unified VLP's"]["whole, bfloat16"]["pictures_per_second"]
    hours = images * epochs / rate / 3600
    read, disk = max(hours / GPUS, images * epochs * IMAGE / READ / 3600), images * IMAGE / 1e12
    yield "epochs", f"{epochs}, {system}", "assumed: those of the two papers"
    yield "samples a second, one GPU", f"{rate:,}", "measured: [one H100](results/gpu.md), 100 regions, batch 256"
    yield "hours, one GPU", f"{hours:.1f}", "computed: images × epochs / samples a second / 3,600"
    yield "hours, eight GPUs", f"{hours / GPUS:.1f}", "computed: an eighth; several GPUs were never measured"
    yield (
        "hours, eight GPUs, 6 GB/s",
        f"{read:.1f}",
        "computed: bytes read / 6 GB/s (assumed), or the row above if more",
    )
    yield "GB/s to read, eight GPUs", f"{GPUS * rate * IMAGE / 1e9:.1f}", "computed: 8 × samples a second × 732 kB"
    yield "TB on disk, 100 regions", f"{disk:.1f}", "computed: images × 732 kB; with 36 regions 36% of it"
    loader, memory = (images / 1e6 * store[name] for name in ("s to make the loader", "MiB"))
    yield "seconds to make a loader", f"{loader:.0f}", f"computed: images / 10^6 × {MILLION}"
    yield "GiB of memory, eight processes", f"{GPUS * memory / 1024:.0f}", f"computed: 8 × images / 10^6 × {MILLION}"
    yield "core hours to extract", f"{images / detector / 3600:,.0f}", DETECTOR
    yield "dollars, one GPU", f"{hours * GPU_HOUR:.0f}", f"computed: hours × {GPU_HOUR} dollars (assumed)"
    yield "dollars, eight GPUs, 6 GB/s", f"{read * GPUS * GPU_HOUR:.0f}", f"computed: 8 × hours × {GPU_HOUR} dollars"
    yield "dollars a month of disk", f"{disk * TB_MONTH:.0f}", f"computed: TB × {TB_MONTH} dollars (assumed)"


def paper(samples_a_process: float | None) -> str:
    """Return a table of what training on 3.3 million images costs, calculated from known and assumed figures."""
    positions = REGIONS + WORDS + 2
    weights = BASE.layers * (4 * BASE.width**2 + 2 * BASE.width * BASE.ffn)
    each = 3 * 2 * positions * (weights + BASE.layers * 2 * positions * BASE.width)
    rate = GPUS * SHARE * PEAK / each
    hours = EPOCHS * PICTURES / rate / 3600
    step, sent = BATCH / rate, 2 * (GPUS - 1) / GPUS * WEIGHTS * 4
    rows = [
        ["an image on disk", f"{IMAGE / 1e3:.0f} kB", "features and classes of 100 regions in half precision"],
        ["all 3.3 million images on disk", f"{PICTURES * IMAGE / 1e12:.2f} TB", ""],
        ["operations per sample, forward and backward", f"{each / 1e9:.1f} GFLOP", "12 layers, 123 positions"],
        ["samples per second on eight GPUs", f"{rate:,.0f}", f"assumed: {SHARE:.0%} of {PEAK / 1e12:.0f} TFLOP/s each"],
        ["hours on eight GPUs", f"{hours:.2f}", f"{EPOCHS} epochs, if reading data never delays them"],
        ["data read for this", f"{rate * IMAGE / 1e9:.0f} GB/s", "only memory is this fast: few disks are"],
        ["hours if data is read at 6 GB/s", f"{EPOCHS * PICTURES * IMAGE / READ / 3600:.1f}", "assumed: two NVMe"],
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
    """Return docs/scale.md. `found` has the results by name: `scale`, `loader`, `scst_step`, `gpu` and
    `official_detectors`."""
    figures, rates = found["scale"]["figures"], found["loader"]["figures"]["wide"]["samples a second"]
    widths = {name.split()[0]: {WIDTH: of["milliseconds_a_step"]} for name, of in found["scst_step"]["figures"].items()}
    parts = [HEAD]
    for name in charts(figures):
        parts.append(f"## {TITLES[name]}\n\n![](scale/{name}.svg)")
        if name == "step":
            parts += [of_part(of, changed) for changed, of in (figures["step"] | {"width": widths}).items()]
        else:
            parts.append(of_part(figures[name], FIRST[name]))
        parts.append(fill(SAID[name], 120, break_on_hyphens=False))
    if missing := sorted(TITLES.keys() - charts(figures).keys()):
        parts.append(f"Not measured yet: {', '.join(missing)} (`python -m benchmarks.scale {' '.join(missing)}`).")
    if "verbs" in figures:
        parts += [VERBS, of_verbs(figures["verbs"]), fill(SAID["verbs"], 120, break_on_hyphens=False)]
    parts += [PROCESSORS, SETS_HEAD, of_sets(found)]
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
WIDTH, MILLION = "ms a step of SCST", "the figure of [10^6 records](results/scale.md)"
DETECTOR = "computed: images / images a second of one core with AMX, [measured](results/official_detectors.md) / 3,600"
PROCESSORS = """## Processors

[One table](results/speed.md) has speed relative to other code, with the processor's instructions. With AVX2 alone, a
training step of Unified VLP in fp32 is [1.24 times as fast](results/vlp_fp32.md) as that of BERT; its matrix products
alone take 72% of it. Beam search was measured with AMX. Nothing was measured with AVX-512 without AMX.
[The log](../experiments/LOG.md) has older figures of a processor without AMX."""
VERBS = """## Verbs

CPU seconds and peak memory, with the pages of mapped files, of `python -m benchmarks.verbs`."""
SETS_HEAD = """## Conceptual 12M and LAIT

One pre-training on 12 million images with Unified VLP, and one on 10 million with ImageBERT. Neither was run. Mining
LAIT is not included; extraction on a GPU was not measured. From memory, one loader made samples [faster than one H100
needs them](results/gpu.md)."""
TITLES = {"step": "A step", "processes": "Processes", "store": "Stores", "gallery": "Galleries"}
FIRST = {"processes": "processes", "store": "records", "gallery": "vectors"}
SAID = {
    "step": "The tables show one forward and backward pass of Unified VLP, with the published width and 2 layers "
    "(except where the layers vary), in fp32, on one thread. `MiB kept` is the memory of the activations that backward "
    "needs. It includes attention scores, which a GPU does not store, and excludes weights. The last table shows "
    "[SCST](results/scst_step.md) of a small model. A layer's operations grow with the square of its width (computed).",
    "processes": "A small model, trained over gloo on one machine with two cores. With four processes, each step waits "
    "for a core. These figures do not show the speed of a cluster.",
    "store": "Opening a store reads only its index. To find a split, one table of each shard is read. To make a "
    "loader, the texts of each record are parsed and tokenised once, so its time grows with the number of records. "
    "`MiB` leaves out the pages of mapped files, which the processes of a machine share. At most 200,000 samples stay "
    "in memory. Most samples of a larger store are parsed again when they are read, so its rate is lower. "
    "The rate at 1,000 records is higher, because they fit in the processor's caches and are read again. At 10,000,000 "
    "records, a shard was opened for almost each sample that was measured. Stores above 10,000 records repeat the "
    "first 10,000: their other shards are links, so `GB on disk` is the sum of all shards, and is not used.",
    "verbs": "On ten records, almost all time is that of the start. A small model that was trained for one step "
    "evaluates and augments. Search is measured under Galleries.",
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
