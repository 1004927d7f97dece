"""Make docs/results.md, docs/results/, docs/papers.md and docs/claims.md from the saved results (`make docs`)."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments import attacks, papers
from experiments.claims.page import page, plot
from experiments.studies import SPEED, STUDIES, Study, page_of
from experiments.tables import AT_CHANCE, NEAR, leaves, markdown, number, whole

ROOT = Path(__file__).parent.parent
ABOUT: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("about.toml").read_text("utf-8"))
SHOWN = {"amx": "AMX", "onednn": "oneDNN may use", "load": "load average (1, 5, 15 minutes)"}
CLAIMS = "claims"
SHOWN_WITH = {"serve": {"With hostile clients": "serve_hostile"}}  # page -> {heading: another result to show on it}
GOAL = re.compile(r" ?\(goal ([\d.,]+(?:, at most [\d.]+)?)\)")
HEAD = f"""# Results

Made by `make docs` from `experiments/results/` (scores) and `benchmarks/results/` (speed): no figure is typed by hand.
Scores are multiplied by 100. **Bold** marks the best of the scores that are compared. {AT_CHANCE} marks chance: the 95%
interval reaches the blind baseline. A score without an interval has this mark
if it is less than {NEAR:.0f} points above the baseline.
Blind is the score without the image. The ceiling is the score of one annotator against the others. Each title links to
all figures of the study, with command, machine, date and commit.
"""
SPEED_HEAD = """## Speed

[One table](results/speed.md) has each work with its peer and its limit, measured in the same run.

The machine was not idle, so compare only the figures of one page, which are from one run. Each library
runs with its default settings: Diptych keeps freed memory, and the other library returns it after each step. In the
rows "memory kept", the other library keeps its freed memory too. The goals for training steps and beam search were set
for a processor with AVX512-BF16 and without AMX. Each page names its processor. [The log](../experiments/LOG.md) has
the most recent figures from a processor without AMX, on which only beam search reached its goal. A figure "relative to"
another library is a ratio: 2 means twice as fast.
"""


def results(root: Path = ROOT) -> dict[str, Any]:
    """Return all saved results by the name of their file. The claims are left out, because docs/claims.md shows them.
    Raises ValueError if two results would have the same page."""
    files = [path for folder in ("experiments", "benchmarks") for path in (root / folder / "results").glob("*.json")]
    files = [path for path in files if path.stem != CLAIMS]
    names = Counter([path.stem for path in files] + [name for name in STUDIES if name not in _in_studies()])
    if twice := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"two results would have the page docs/results/{twice[0]}.md; rename one of them")
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(files, key=lambda path: path.stem)}


def pages(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each page by its path below docs/. `found` has the saved results by name."""
    parts: dict[str, tuple[str, Mapping[str, str]]]
    parts = {name: (study.title, study.files) for name, study in STUDIES.items()}
    parts |= {name: (_title(name), {"": name}) for name in found if name not in _in_studies()}
    for name, others in SHOWN_WITH.items():
        title, files = parts[name]
        parts[name] = (title, {**files, **{heading: file for heading, file in others.items() if file in found}})
    made = {
        f"results/{name}.md": "\n".join(_details(ABOUT.get(name, {}).get("tables", ""), *part, found))
        for name, part in parts.items()
    }
    made["results/speed.md"] = "\n".join([ABOUT["speed"]["tables"], *speed(ABOUT["speed"]["rows"], found), ""])
    return {"results.md": "\n".join([HEAD, *_overview(found)]), "papers.md": papers.page(found)} | made


def speed(rows: str, found: Mapping[str, Any]) -> list[str]:
    """Return a table of benchmarks with their peer and their limit. Each line of `rows` has a file, work, peer,
    ratio, limit and floor, divided by `|`. Ratio and floor are paths of figures, or `A : B` for A divided by B."""

    def share(file: str, wanted: str) -> str:
        known = {"1": 1} | {" / ".join(path): leaf for path, leaf in leaves(found[file]["figures"])}
        over, _, under = wanted.partition(" : ")
        return number(round(known[over] / known[under or "1"], 2)) if wanted else "–"

    lines = []
    for row in rows.strip().splitlines():
        file, work, peer, ratio, limit, floor = (part.strip() for part in row.split("|"))
        made, machine = found[file], found[file]["machine"]
        processor = made["figures"].get("GPU") or ("AMX" if machine["amx"] else machine.get("instructions", "no AMX"))
        cells = (
            f"[{work}]({file}.md)",
            peer or "–",
            share(file, ratio),
            share(file, floor) + (limit and f" ({limit})"),
        )
        lines.append((*cells, processor, made["date"], made["commit"].replace(" with changes", ", changed")))
    return markdown(("work", "peer", "ratio", "floor", "processor", "date", "commit"), lines)


def claims(root: Path) -> dict[str, str]:
    """Return docs/claims.md and its plot by their paths below docs/."""
    kept = root / "experiments" / "results" / f"{CLAIMS}.json"
    figures = json.loads(kept.read_text("utf-8"))["figures"] if kept.exists() else {}
    return {f"{CLAIMS}.md": page(figures), f"{CLAIMS}.svg": plot(figures)}


def _overview(found: Mapping[str, Any]) -> Iterator[str]:
    for name, study in STUDIES.items():
        yield from (
            f"## [{study.title}](results/{name}.md)",
            "",
            _filled(name, study, found),
            "",
            *_pivot(study, found),
            "",
        )
    if attacks.NAME in found:
        yield from attacks.section(found[attacks.NAME]["figures"])
    yield SPEED_HEAD
    rows = []
    for name, path, title in SPEED:
        value, goal = dict(leaves(found[name]["figures"]))[path], GOAL.search(" ".join((*path, title)))
        rows.append((f"[{GOAL.sub('', title)}]({page_of(name)})", number(value), goal[1] if goal else ""))
    yield from markdown(("what", "figure", "goal"), rows)
    if others := sorted(set(found) - {name for name, _, _ in SPEED} - _in_studies() - {attacks.NAME}):
        yield from ("", "More results:", "", *(f"- [{_title(name)}](results/{name}.md)" for name in others))
    yield ""


def _title(name: str) -> str:
    return ABOUT.get(name, {}).get("title", name.replace("_", " ").capitalize())


def _in_studies() -> set[str]:
    return {file for study in STUDIES.values() for file in study.files.values()}


def _figures(study: Study, found: Mapping[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {name: found[file]["figures"] for name, file in study.files.items()}
    figures: dict[str, Any] = parts.get("", parts)
    return figures


def _pivot(study: Study, found: Mapping[str, Any]) -> list[str]:
    return study.pivot.table(_figures(study, found))


def _filled(name: str, study: Study, found: Mapping[str, Any]) -> str:
    known = {" / ".join(path): leaf for path, leaf in leaves(_figures(study, found))}
    about = re.sub(r"\{([^}]+)\}", lambda asked: number(known[asked[1]]), " ".join(ABOUT[name]["summary"].split()))
    return textwrap.fill(about, 120, break_on_hyphens=False)


def _details(about: str, title: str, files: Mapping[str, str], found: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"# {title}", "", "[All results](../results.md)", "", about)
    for name, file in files.items():
        result = found[file]
        where = ", ".join(f"{SHOWN.get(key, key)} {number(value)}" for key, value in result["machine"].items())
        if name:
            yield from (f"## {name}", "")
        made = f"{result['date']}, commit {result['commit'].replace('with', 'with uncommitted')}. Machine: {where}"
        yield from (f"`{result['command']}`", "", textwrap.fill(made, 120, break_on_hyphens=False), "")
        yield from whole(result["figures"], 3 if name else 2)


def main() -> None:
    found, docs = results(), ROOT / "docs"
    made = pages(found)
    for old in (docs / "results").glob("*.md"):
        if f"results/{old.name}" not in made:
            old.unlink()
    for name, text in made.items():
        (docs / name).parent.mkdir(exist_ok=True)
        (docs / name).write_text(text, "utf-8")
    for name, text in claims(ROOT).items():
        (docs / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
