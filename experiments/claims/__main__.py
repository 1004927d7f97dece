"""Test the papers' claims by training the arms of each (docs/claims.md).

    uv run diptych demo                                                          # the detector
    uv run diptych storybook write runs/world --train 6000
    uv run diptych extract runs/world runs/store --detector demo/detector/detector
    uv run python -m experiments.claims --store runs/store --out runs/claims
    uv run python -m experiments.claims --list                        # claims, their arms, and what is left to run

Arms that several claims share are trained once, and every score stands in experiments/results/claims.json by the key of
its recipes: the same command goes on where it stopped, on another machine too. `--scale real` trains the papers' own
recipes on your stores (splits web and train, as the claims name them). One claim wants a store of its own:

    uv run diptych extract runs/world runs/true --detector ground-truth           # --store true=runs/true
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

from diptych.errors import RecipeError
from diptych.files import write_atomically
from diptych.loading.store import Store, iterate
from diptych.processes import PROCESSES
from diptych.runs.distributed import ending_children, workers
from experiments.claims.arms import Arm, Place, describe, in_turns, key_of, scores_of
from experiments.claims.claim import Claim
from experiments.claims.table import CLAIMS
from experiments.claims.verdicts import Difference, difference
from experiments.figures import RESULTS, save

NAME = "claims"
COMMAND = "uv run python -m experiments.claims --store runs/store --store true=runs/true --out runs/claims"
STUDIES = {  # the figure of a study that is a claim's difference
    "scst_unified_vlp": ("gain of self-critical", "CIDEr"),
    "captions_as_data": ("gain of written captions", "image retrieval R@1"),
}


def waiting(claims: Iterable[Claim], seeds: int, place: Place, kept: dict[str, Any]) -> list[tuple[Arm, int]]:
    """Every arm and seed without a score, of all claims one seed before any has two, those that begin alike apart."""
    there = {name for name, _ in place.stores}
    jobs: list[tuple[Arm, int]] = []
    for seed in range(seeds):
        found: dict[tuple[str, str], Arm] = {}
        for arm in (arm for claim in claims for _, arm in claim.terms):
            name = key_of(arm.last, seed, place)
            if arm.stores <= there and str(seed) not in kept.get(f"{name}/{arm.task}", {}).get("seeds", {}):
                found.setdefault((name, arm.task), arm)
        jobs += [(arm, seed) for arm in in_turns(found.values(), lambda arm: arm.last.chain[0])]
    return jobs


def judge(claim: Claim, seeds: int, place: Place, kept: dict[str, Any]) -> dict[str, Any]:
    """The difference over the seeds of which all arms are scored, and the verdict."""
    if claim.study:
        return _of_study(claim)
    values = []
    for seed in range(seeds):
        rows = [kept.get(_name(arm, seed, place), {}).get("seeds", {}).get(str(seed)) for _, arm in claim.terms]
        if all(row is not None for row in rows):
            values.append(sum(weight * row[claim.score] for (weight, _), row in zip(claim.terms, rows, strict=True)))
    return _to_json(difference(values)) if values else {"verdict": "not run", "seeds": 0}


def _name(arm: Arm, seed: int, place: Place) -> str:
    return f"{key_of(arm.last, seed, place)}/{arm.task}"


def _to_json(found: Difference) -> dict[str, Any]:
    known = {"value": found.value, "low": found.low, "high": found.high}
    shown = {name: round(value, 2) for name, value in known.items() if math.isfinite(value)}
    return (shown if len(shown) == 3 else {}) | {"seeds": found.seeds, "verdict": found.verdict}


def _of_study(claim: Claim) -> dict[str, Any]:
    """From committed results; a study of fewer than three seeds is no verdict."""
    if claim.study not in STUDIES:
        return {"verdict": "not run", "seeds": 0}
    what, score = STUDIES[claim.study]
    figures = json.loads((RESULTS / f"{claim.study}.json").read_text("utf-8"))["figures"]
    gain = figures[what][score]
    seeds = int(gain.get("seeds", figures.get("asked", {}).get("seeds", 0)))
    return _to_json(Difference(gain["value"], gain["low"], gain["high"], seeds))


def run(claims: Sequence[Claim], seeds: int, place: Place, figures: dict[str, Any], processes: int) -> None:
    """Trains what is wanting, and keeps every score at once."""
    kept = figures.setdefault("arms", {})
    jobs = waiting(claims, seeds, place, kept)
    _keep(figures, seeds, place)
    with workers(processes) as pool, ending_children():
        running = {pool.submit(scores_of, arm, seed, place): (arm, seed) for arm, seed in jobs}
        for number, done in enumerate(as_completed(running), start=1):
            arm, seed = running[done]
            scores = done.result()
            row = kept.setdefault(_name(arm, seed, place), {"chain": list(describe(arm.last)), "seeds": {}})
            row["seeds"][str(seed)] = scores
            _keep(figures, seeds, place)
            print(f"{number} of {len(jobs)}: {arm.last.recipe} seed {seed}: {_short(scores)}", flush=True)


def _keep(figures: dict[str, Any], seeds: int, place: Place) -> None:
    figures["claims"] = {claim.id: judge(claim, seeds, place, figures["arms"]) for claim in CLAIMS}
    save(NAME, COMMAND, figures)


def _short(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in list(scores.items())[:3])


def _text_of(store: Path, out: Path) -> str:
    """The captions of the split web as a file of text: what is read without pictures."""
    file = out / "text.txt"
    if not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        lines = [caption for record in iterate(Store(store), "web") for caption in record.captions]
        write_atomically(file, "\n".join([*lines, ""]).encode())
    return str(file)


def _places(named: Sequence[str]) -> Iterator[tuple[str, str]]:
    for one in named:
        name, equals, path = one.partition("=")
        yield (name, path) if equals else ("detected", one)


def _listed(claims: Sequence[Claim], seeds: int, place: Place, kept: dict[str, Any]) -> Iterator[str]:
    for claim in claims:
        found = judge(claim, seeds, place, kept)
        yield f"{claim.id}: {claim.says} ({claim.source}); {found['verdict']}, {found['seeds']} seeds"
        for weight, arm in claim.terms:
            chain = " > ".join(" ".join([one.recipe, *one.settings]) for one in arm.last.chain)
            yield f"    {weight:+.0f} {arm.task}: {chain}"
    yield f"{len(waiting(claims, seeds, place, kept))} arms and seeds are left to run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="append", default=[], help="a store, or NAME=STORE; several times")
    parser.add_argument("--out", type=Path, default=Path("runs/claims"), help="keeps the runs")
    parser.add_argument("--claims", default="*", help="pattern of ids, such as 'tden-*' (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=PROCESSES, help="arms at once, a thread each")
    parser.add_argument("--scale", choices=("small", "real"), default="small")
    parser.add_argument("--list", action="store_true", help="what there is and what is left, and nothing run")
    given = parser.parse_args()
    chosen = [claim for claim in CLAIMS if fnmatch.fnmatch(claim.id, given.claims)]
    if not chosen:
        raise SystemExit(f"no claim is called {given.claims!r}; --list names all")
    stores = dict(_places(given.store))
    if not given.list and "detected" not in stores:
        raise SystemExit("give --store runs/store; --help says how it is made")
    text = _text_of(Path(stores["detected"]), given.out) if "detected" in stores else ""
    place = Place(tuple(stores.items()) or (("detected", ""),), str(given.out), text, given.scale == "real")
    path = RESULTS / f"{NAME}.json"
    figures: dict[str, Any] = json.loads(path.read_text("utf-8"))["figures"] if path.exists() else {}
    if given.list:
        print("\n".join(_listed(chosen, given.seeds, place, figures.get("arms", {}))))
        return
    try:
        run(chosen, given.seeds, place, figures, given.processes)
    except RecipeError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
