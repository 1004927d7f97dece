"""Parts of docs/scale.md: growth in short, the cost of two large sets, and speed by a processor's instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

READ, GPU_HOUR, TB_MONTH, GPUS = 6e9, 3.0, 80.0, 8  # assumed: bytes a second of two NVMe, and prices in dollars
SETS = {"Conceptual 12M": (12e6, 30, "Unified VLP"), "LAIT": (10e6, 17, "ImageBERT")}  # images, epochs, system
HOW = {
    "images": "assumed: the sizes that the sets' authors state; some addresses no longer answer",
    "epochs": "assumed: those of Unified VLP and of ImageBERT, which are trained",
    "samples a second, one GPU": "measured: [one H100](results/gpu.md), 100 regions, bf16, batch 256",
    "share of the GPU's peak": "measured: [the layers' rate](results/gpu.md) divided by that of one matrix product. "
    "The next section assumes half of the data sheet's peak",
    "hours, one GPU": "computed: images × epochs / samples a second / 3,600",
    "hours, eight GPUs": "computed: an eighth; several GPUs were never measured",
    "hours, eight GPUs, disks of 6 GB/s": "computed: images × epochs × 732 kB / 6 GB/s / 3,600, or the row above if "
    "that is more; the disks are assumed",
    "TB on disk, 100 regions": "computed: images × 100 × 7,318 bytes (features and classes in half precision, boxes)",
    "TB on disk, 36 regions": "computed: images × 36 × 7,318 bytes",
    "GB/s to read, one GPU": "computed: samples a second × 732 kB",
    "GB/s to read, eight GPUs": "computed: eight times the row above",
    "seconds to make a loader": "computed: images / 10^6 × the seconds of [10^6 records](results/scale.md)",
    "GiB of memory, eight processes": "computed: eight × images / 10^6 × the MiB of [10^6 records](results/scale.md)",
    "core hours to extract the regions": "computed: images / images a second / 3,600; [measured](results/"
    "official_detectors.md) with Unified VLP's detector on one core with AMX, in bf16. On a GPU: not measured",
    "dollars, one GPU": "computed: hours × 3 dollars, an assumed price of an H100 hour",
    "dollars, eight GPUs, disks of 6 GB/s": "computed: hours × 8 × 3 dollars",
    "dollars a month of disk, 100 regions": "computed: TB × 80 dollars, an assumed price",
}
KINDS = {"AMX": "AMX", "AVX512": "AVX-512, no AMX", "AVX2": "AVX2 alone"}
WORKS = {  # title: file, and the path of a ratio, or of its two parts
    "Unified VLP, a training step in bf16, relative to BERT": ("vlp", "BERT over ours (goal 2.6)"),
    "the same, memory kept": ("vlp", "BERT with its memory kept over ours"),
    "the same, memory kept, both in fp32": ("vlp", "CPU seconds, median", "BERT, fp32, memory kept", "ours, fp32"),
    "TDEN, a training step, relative to the authors' code": ("tden", "peer over ours, two steps (goal 2.5)"),
    "beam search in bf16, relative to a cache of states": ("decoding", "hidden states, fp32, over ours, bf16 (goal 8)"),
    "the same, both in fp32": ("decoding", "hidden states, fp32, over ours, fp32"),
}


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def image_bytes(regions: int) -> int:
    """Return the size of an image in a store: 2,048 features and 1,601 classes in half precision, and boxes."""
    return regions * (2 * (2048 + 1601) + 4 * 5)


def growth(found: Mapping[str, Any]) -> str:
    """Return a table of each figure at the largest size divided by that at the smallest."""
    scale, wide = found["scale"]["figures"], found.get("scst_step", {}).get("figures", {})
    parts = [(name, of, "[scale](results/scale.md)") for name, of in scale.get("step", {}).items()]
    names = {"store": "records", "processes": "processes", "gallery": "vectors"}
    parts += [(names[part], scale[part], "[scale](results/scale.md)") for part in names if part in scale]
    steps = {name.split()[0]: {"ms a step of SCST": of["milliseconds_a_step"]} for name, of in wide.items()}
    parts += [("width", steps, "[SCST](results/scst_step.md)")] if steps else []
    rows = []
    for name, of, source in parts:
        first, last = next(iter(of)), list(of)[-1]
        ratios = {what: of[last][what] / of[first][what] for what in of[first] if what != "rounds"}
        times = (f"{what} × {float(f'{ratio:.3g}'):,g}" for what, ratio in ratios.items())
        rows.append([name, f"{int(first):,} to {int(last):,}", ", ".join(times), f"measured: {source}"])
    return table(("what grows", "from, to", "largest divided by smallest", "source"), rows)


def sets(found: Mapping[str, Any]) -> str:
    """Return a table of what pre-training on `SETS` costs in hours, disk, memory and money."""
    columns = [dict(zip(HOW, _cells(found, *of), strict=True)) for of in SETS.values()]
    return table(("what", *SETS, "source"), [[what, *(each[what] for each in columns), HOW[what]] for what in HOW])


def _cells(found: Mapping[str, Any], images: float, epochs: int, system: str) -> Iterator[str]:
    step = found["gpu"]["figures"]["a pre-training step, bf16"][system]
    rate = step["samples a second"]
    store = found["scale"]["figures"]["store"]["1000000"]
    detector = found["official_detectors"]["figures"]["Unified VLP's"]["whole, bfloat16"]["pictures_per_second"]
    size, hours = image_bytes(100), images * epochs / rate / 3600
    read = max(hours / GPUS, images * epochs * size / READ / 3600)
    yield from (f"{images:,.0f}", f"{epochs}, {system}", f"{rate:,}", f"{step['share of the peak']:.2g}")
    yield from (f"{hours:.1f}", f"{hours / GPUS:.1f}", f"{read:.1f}")
    yield from (f"{images * image_bytes(regions) / 1e12:.1f}" for regions in (100, 36))
    yield from (f"{gpus * rate * size / 1e9:.1f}" for gpus in (1, GPUS))
    yield f"{images / 1e6 * store['s to make the loader']:.0f}"
    yield f"{GPUS * images / 1e6 * store['MiB'] / 1024:.0f}"
    yield f"{images / detector / 3600:,.0f}"
    yield from (f"{hours * GPU_HOUR:.0f}", f"{read * GPUS * GPU_HOUR:.0f}", f"{images * size / 1e12 * TB_MONTH:.0f}")


def processors(found: Mapping[str, Any]) -> str:
    """Return a table of speed by the instructions of the processor. A result that does not state them has no cell."""
    rows = []
    for title, (file, *path) in WORKS.items():
        if file in found:
            machine, figure = found[file]["machine"], found[file]["figures"][path[0]]
            value = figure[path[1]] / figure[path[2]] if len(path) > 1 else figure
            kind = "AMX" if machine["amx"] else machine.get("instructions")
            rows.append([title, *(f"{value:.3g}" if kind == one else "not measured" for one in KINDS)])
    return table(("work", *KINDS.values()), rows)
