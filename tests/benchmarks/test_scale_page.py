"""docs/scale.md: how cost grows, and what two large sets cost, computed by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.scale_page import DOCS, of_part, of_sets, saved, text

STORE = {"1000": {"s to make the loader": 0.02, "MiB": 12}, "1000000": {"s to make the loader": 22.0, "MiB": 1024}}


def cells(table: str, row: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {row} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_page_is_made_from_the_committed_figures() -> None:
    assert (DOCS / "scale.md").read_text() == text(saved()), "run `python -m benchmarks.scale page`"


def test_growth_is_the_last_figure_divided_by_the_first() -> None:
    words = {"10": {"CPU seconds": 0.1, "MiB": 11.0}, "40": {"CPU seconds": 9, "MiB": 9}}
    words["80"] = {"CPU seconds": 0.15, "MiB": 22.0}
    assert cells(of_part(words, "words"), "last / first") == ["1.5", "2"]
    assert cells(of_part(STORE, "records"), "last / first") == ["1,100", "85.3"]


def test_two_sets_by_hand() -> None:
    """12 million images in 30 epochs at 2,800 samples a second: 35.7 hours; 12e6 * 732 kB: 8.78 TB."""
    rates = {"Unified VLP": {"samples a second": 2800}, "ImageBERT": {"samples a second": 1000}}
    detector = {"Unified VLP's": {"whole, bfloat16": {"pictures_per_second": 0.5}}}
    made = of_sets(
        figures(gpu={"a pre-training step, bf16": rates}, scale={"store": STORE}, official_detectors=detector)
    )
    assert cells(made, "hours, one GPU")[:2] == ["35.7", "47.2"]
    assert cells(made, "hours, eight GPUs")[:2] == ["4.5", "5.9"]
    assert cells(made, "hours, eight GPUs, 6 GB/s")[:2] == ["12.2", "5.9"]  # LAIT: 5.8, the step is slower
    assert cells(made, "TB on disk, 100 regions")[:2] == ["8.8", "7.3"]
    assert cells(made, "GB/s to read, eight GPUs")[:2] == ["16.4", "5.9"]
    assert cells(made, "seconds to make a loader")[:2] == ["264", "220"]
    assert cells(made, "GiB of memory, eight processes")[:2] == ["96", "80"]
    assert cells(made, "core hours to extract")[:2] == ["6,667", "5,556"]
    assert cells(made, "dollars, one GPU")[:2] == ["107", "142"]
    assert cells(made, "dollars, eight GPUs, 6 GB/s")[:2] == ["293", "142"]
    assert all(how.split(":")[0] in ("measured", "computed", "assumed") for *_, how in (
        cells(made, line.split("|")[1].strip()) for line in made.splitlines()[2:]
    ))  # fmt: skip


def test_steps_were_measured_with_amx_alone() -> None:
    """The page states so. If this fails, state the other processor's figures in `PROCESSORS`."""
    assert all(saved()[name]["machine"]["amx"] for name in ("vlp", "encoders", "tden", "decoding"))


def figures(**found: Any) -> dict[str, Any]:
    return {name: {"figures": of} for name, of in found.items()}
