"""docs/scale.md: how cost grows, what two large sets cost, and where speed was measured, computed by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.scale_page import DOCS, saved, text
from benchmarks.scale_sets import growth, processors, sets

STORE = {"1000": {"s to make the loader": 0.02, "MiB": 12}, "1000000": {"s to make the loader": 22.0, "MiB": 1024}}


def cells(table: str, row: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {row} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_page_is_made_from_the_committed_figures() -> None:
    assert (DOCS / "scale.md").read_text() == text(saved()), "run `python -m benchmarks.scale page`"


def test_growth_is_the_last_figure_divided_by_the_first() -> None:
    step = {"words": {"10": {"CPU seconds": 0.1, "MiB kept": 11.0}, "80": {"CPU seconds": 0.15, "MiB kept": 22.0}}}
    wide = {"128 wide": {"milliseconds_a_step": 8000}, "256 wide": {"milliseconds_a_step": 10000}}
    made = growth(figures(scale={"step": step, "store": STORE}, scst_step=wide))
    assert cells(made, "words")[:2] == ["10 to 80", "CPU seconds × 1.5, MiB kept × 2"]
    assert cells(made, "records")[:2] == ["1,000 to 1,000,000", "s to make the loader × 1,100, MiB × 85.3"]
    assert cells(made, "width")[:2] == ["128 to 256", "ms a step of SCST × 1.25"]


def test_two_sets_by_hand() -> None:
    """12 million images in 30 epochs at 2,800 samples a second: 35.7 hours; 12e6 * 732 kB: 8.78 TB."""
    speed = {"Unified VLP": 2800, "ImageBERT": 1000}
    rates = {name: {"samples a second": rate, "share of the peak": 0.246} for name, rate in speed.items()}
    detector = {"Unified VLP's": {"whole, bfloat16": {"pictures_per_second": 0.5}}}
    made = sets(figures(gpu={"a pre-training step, bf16": rates}, scale={"store": STORE}, official_detectors=detector))
    assert cells(made, "share of the GPU's peak")[:2] == ["0.25", "0.25"]
    assert cells(made, "hours, one GPU")[:2] == ["35.7", "47.2"]
    assert cells(made, "hours, eight GPUs")[:2] == ["4.5", "5.9"]
    assert cells(made, "hours, eight GPUs, disks of 6 GB/s")[:2] == ["12.2", "5.9"]  # LAIT: 5.8, the step is slower
    assert cells(made, "TB on disk, 100 regions")[:2] == ["8.8", "7.3"]
    assert cells(made, "GB/s to read, eight GPUs")[:2] == ["16.4", "5.9"]
    assert cells(made, "seconds to make a loader")[:2] == ["264", "220"]
    assert cells(made, "GiB of memory, eight processes")[:2] == ["96", "80"]
    assert cells(made, "core hours to extract the regions")[:2] == ["6,667", "5,556"]
    assert cells(made, "dollars, one GPU")[:2] == ["107", "142"]
    assert cells(made, "dollars, eight GPUs, disks of 6 GB/s")[:2] == ["293", "142"]
    assert all(how.split(":")[0] in ("measured", "computed", "assumed") for *_, how in (
        cells(made, line.split("|")[1].strip()) for line in made.splitlines()[2:]
    ))  # fmt: skip


def test_a_speed_stands_below_the_instructions_of_its_machine() -> None:
    seconds = {"BERT, fp32, memory kept": 3.0, "ours, fp32": 2.0}
    ratios = {"BERT over ours (goal 2.6)": 2.5, "BERT with its memory kept over ours": 2.4}
    found = figures(vlp=ratios | {"CPU seconds, median": seconds})
    work, both = "Unified VLP, a training step in bf16, relative to BERT", "the same, memory kept, both in fp32"
    assert cells(processors(found), work) == ["not measured", "not measured", "2.5"]
    assert cells(processors(found), both) == ["not measured", "not measured", "1.5"]
    found["vlp"]["machine"] = {"amx": True, "instructions": "AVX512"}
    assert cells(processors(found), work) == ["2.5", "not measured", "not measured"]
    found["vlp"]["machine"] = {"amx": False}
    assert cells(processors(found), work) == ["not measured", "not measured", "not measured"]


def figures(**found: Any) -> dict[str, Any]:
    return {name: {"figures": of, "machine": {"amx": False, "instructions": "AVX2"}} for name, of in found.items()}
