"""docs/results.md from committed metrics files: no figure is typed by hand.

uv run python -m diptych.reports.results
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEAD = """# Results

Made by `make docs` from the files in `benchmarks/results/`; each has its command, machine, date and commit. The machine
is shared and noisy: what counts are the ratios within a table, all taken in one run.
"""


def render(folder: Path) -> str:
    """The page, from all metrics files of a folder in the order of their names."""
    files = sorted(folder.glob("*.json"))
    return "\n".join([HEAD, *(_section(path.stem, json.loads(path.read_text("utf-8"))) for path in files)])


def _section(name: str, result: dict[str, Any]) -> str:
    machine = result["machine"]
    where = ", ".join(f"{key} {value}" for key, value in machine.items())
    rows = [f"| {key} | {value} |" for key, value in _flat(result["figures"])]
    lines = [
        f"## {name.replace('_', ' ').capitalize()}", "", f"`{result['command']}`", "",
        f"{result['date']}, commit {result['commit']}; {where}", "", "| figure | value |", "|---|---|", *rows, "",
    ]  # fmt: skip
    return "\n".join(lines)


def _flat(figures: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(figures, dict):
        for key, value in figures.items():
            if key != "rounds":  # the single measurements stay in the file
                yield from _flat(value, f"{prefix}{key}: " if prefix or isinstance(value, dict) else f"{key}: ")
    else:
        yield prefix.removesuffix(": "), _short(figures)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_short(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    root = Path(__file__).parents[3]
    (root / "docs" / "results.md").write_text(render(root / "benchmarks" / "results"), "utf-8")


if __name__ == "__main__":
    main()
