"""Write results as Markdown tables: all figures of a file, or a pivot table with the best scores in bold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Literal

from experiments.figures import is_figure

AT_CHANCE = "†"
NEAR = 2.0  # points above the blind baseline: a lower score without an interval is at chance
SINGLE = "rounds"  # a result's single measurements, which pages leave out
Path = tuple[str, ...]


@dataclass(frozen=True)
class Column:
    path: Path  # path of a figure, without the parts that name the row
    title: str
    best: Literal["max", "min"] | None = "max"


@dataclass(frozen=True)
class Pivot:
    """A table of chosen figures. A figure has a path, such as ("vqa", "tden", "accuracy").

    `rows` has the positions in this path that name the table's row, such as (1,), and `heads` has their titles. Rows
    that differ only in the last position are compared: the best score is bold.
    """

    heads: Path
    rows: tuple[int, ...]
    columns: tuple[Column, ...]
    names: Mapping[str, str]  # part of a path -> its title; rows have this order

    def table(self, figures: Mapping[str, Any]) -> list[str]:
        cells = self._cells(figures)
        lines = [[*(self.names.get(part, part) for part in row), *self._shown(cells, row)] for row in cells]
        lines += [[name.capitalize(), *[""] * (len(self.heads) - 1), *held] for name, held in self._held(cells)]
        return markdown([*self.heads, *(column.title for column in self.columns)], lines)

    def _cells(self, figures: Mapping[str, Any]) -> dict[Path, dict[Path, Any]]:
        wanted, cells = {column.path for column in self.columns}, dict[Path, dict[Path, Any]]()
        for path, leaf in leaves(figures):
            rest = tuple(part for at, part in enumerate(path) if at not in self.rows)
            if rest in wanted:
                cells.setdefault(tuple(path[at] for at in self.rows), {})[rest] = leaf
        if empty := wanted - {path for cell in cells.values() for path in cell}:
            raise ValueError(f"no figure at {' / '.join(min(empty))}; correct the column's path in the study")
        order = list(self.names)
        return dict(sorted(cells.items(), key=lambda cell: [order.index(p) if p in order else -1 for p in cell[0][:1]]))

    def _shown(self, cells: Mapping[Path, Mapping[Path, Any]], row: Path) -> Iterator[str]:
        for column in self.columns:
            leaf = cells[row].get(column.path)
            if leaf is None:
                yield "–"
            elif at_chance(leaf):
                yield f"{shown(leaf)} {AT_CHANCE}"
            else:
                rivals = [cells[other].get(column.path) for other in cells if other[:-1] == row[:-1] and _ranked(other)]
                yield shown(leaf, bold=_ranked(row) and _is_best(leaf, rivals, column.best))

    def _held(self, cells: Mapping[Path, Mapping[Path, Any]]) -> Iterator[tuple[str, list[str]]]:
        """Yield a row for the blind baseline and one for the ceiling. A cell is "–" unless all scores of its column
        have the same value."""
        for name in ("blind", "ceiling"):
            every = [
                {cell[c.path][name] for cell in cells.values() if name in _fields(cell.get(c.path))}
                for c in self.columns
            ]
            if any(every):
                yield name, [number(*held) if len(held) == 1 else "–" for held in every]


def _fields(leaf: Any) -> Mapping[str, float]:
    return leaf if is_figure(leaf) else {}


def _ranked(row: Path) -> bool:
    return not row[-1].startswith("gain")


def _is_best(leaf: Any, rivals: Sequence[Any], best: str | None) -> bool:
    known = [_rank(rival) for rival in rivals if rival is not None]
    return best is not None and len(known) > 1 and _rank(leaf) == {"max": max, "min": min}[best](known)


def _rank(leaf: Any) -> float:
    return float(leaf["value"] if is_figure(leaf) else mean(leaf) if isinstance(leaf, list) else leaf)


def at_chance(leaf: Any) -> bool:
    """Return whether a score's interval reaches the blind baseline. Without an interval: whether the score is less than
    `NEAR` points above the baseline."""
    if "blind" not in _fields(leaf):
        return False
    if "low" in leaf and "seeds" not in leaf:
        return bool(leaf["low"] <= leaf["blind"])
    return bool(leaf["value"] < leaf["blind"] + NEAR)


def leaves(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(node, Mapping) and not is_figure(node):
        for key, value in node.items():
            if key != SINGLE:
                yield from leaves(value, (*path, key))
    else:
        yield path, node


def shown(leaf: Any, bold: bool = False) -> str:
    """Format a figure for a cell, such as `**12.3** (11.0 to 13.4)`."""
    value, marked = leaf["value"] if is_figure(leaf) else leaf, "**" if bold else ""
    spread = "low" in _fields(leaf) and leaf.get("seeds") != 1
    between = f" ({number(leaf['low'])} to {number(leaf['high'])})" if spread else ""
    return f"{marked}{number(value)}{marked}{between}"


def number(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(number(one) for one in value)
    if not isinstance(value, float):
        return str(value)
    if round(value, 1) == value or abs(value) >= 1000:
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}"
    return f"{value:.4g}"


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    line = "| {} |".format
    return [
        line(" | ".join(heads)),
        "|" + "---|" * len(heads),
        *(line(" | ".join(cell.replace("|", r"\|") for cell in row)) for row in rows),
    ]


def whole(node: Mapping[str, Any], level: int) -> list[str]:
    """Return all figures as lines of Markdown: numbers as a list, similar parts as one table, deeper parts below
    headings."""
    plain = {key: value for key, value in node.items() if key != SINGLE and not _branches(value)}
    parts = {key: value for key, value in node.items() if key != SINGLE and _branches(value)}
    flat = {key: part for key, part in parts.items() if not any(map(_branches, part.values()))}
    lines = _list("", plain) if plain else []
    for group in _alike(flat):
        if len(group) == 1:
            lines += [line for name, part in group.items() for line in _list(name, part)]
            continue
        heads = list(dict.fromkeys(key for part in group.values() for key in part))
        rows = [(name, *(in_full(part[key]) if key in part else "–" for key in heads)) for name, part in group.items()]
        lines += [*markdown(("", *heads), rows), ""]
    for key, part in parts.items():
        if key not in flat:
            lines += [f"{'#' * level} {key}", "", *whole(part, level + 1)]
    return lines


def _list(name: str, part: Mapping[str, Any]) -> list[str]:
    return [*markdown((name, "value"), [(key, in_full(leaf)) for key, leaf in part.items()]), ""]


def _alike(parts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Mapping[str, Any]]]:
    """Group the parts that share at least half of their figures' names. Each group is shown as one table."""
    groups = list[dict[str, Mapping[str, Any]]]()
    for name, part in parts.items():
        for group in groups:
            if any(2 * len(part.keys() & one.keys()) >= min(len(part), len(one)) for one in group.values()):
                group[name] = part
                break
        else:
            groups.append({name: part})
    return groups


def _branches(value: Any) -> bool:
    return isinstance(value, Mapping) and not is_figure(value)


def in_full(leaf: Any) -> str:
    """Format a figure with its interval and baselines, such as `12.3 (11.0 to 13.4; blind 3.1, ceiling 40.2)`."""
    if not is_figure(leaf):
        return number(leaf)
    known = [f"{number(leaf['low'])} to {number(leaf['high'])}"] if "low" in leaf else []
    known += [f"{number(leaf['seeds'])} seeds"] if "seeds" in leaf else []
    held = [f"{name} {number(leaf[name])}" for name in ("blind", "ceiling") if name in leaf]
    told = "; ".join(", ".join(part) for part in (known, held) if part)
    return number(leaf["value"]) + (f" ({told})" if told else "")
