"""Train and score the models that test the papers' claims (docs/claims.md).

The detector is that of `diptych demo`:

    uv run diptych demo
    uv run diptych storybook write --out runs/world --train 6000
    uv run diptych extract runs/world --out runs/store --detector demo/detector/detector
    uv run python -m experiments.claims --store runs/store --out runs/claims

`--list` prints the claims, their arms, and what is left to run. Arms that several claims share are trained once. Every
score is kept in experiments/results/claims.json, under a hash of the arm's recipes and of the detector that made the
features. So the same command resumes where it stopped, also on another machine. Two arms are compared only if the same
detector made their features. One claim, about true boxes, needs a second store: the same detector's features of the
true boxes. Make this store as follows, and add `--store true=runs/true` to the command:

    uv run python -m experiments.claims.true_boxes runs/world demo/detector/detector runs/true

`--scale real` trains the papers' own recipes on your stores (splits web, train, val and test). `--init` gives the
initial weights that a paper names: a folder with weights and vocab.txt, or the id of a model on the Hugging Face hub.
The scores are kept in OUT/claims.json:

    uv run python -m experiments.claims --scale real --store pairs --out runs/real --text books.txt \\
        --init "BERT base=bert-base-uncased" --init UniLM=unilm
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.machine import save_result
from diptych.data.store.store import Store
from diptych.runs.distributed import ending_children, workers
from diptych.runs.known_words import vocabulary_settings
from diptych.runtime.errors import DiptychError
from diptych.runtime.files import write_atomically
from diptych.runtime.processes import PROCESSES
from diptych_world.book import record
from diptych_world.layout import scene
from experiments.claims.arms import Arm, Place, Stage, describe, in_turns, key_of, scores_of
from experiments.claims.claim import Claim
from experiments.claims.table import CLAIMS
from experiments.claims.verdicts import Difference, difference
from experiments.figures import RESULTS

NAME = "claims"
COMMAND = "uv run python -m experiments.claims --store runs/store --store true=runs/true --out runs/claims"
FEATURES = 12  # hexadecimal digits of a detector's hash
SCENES, OTHER_WORLD = 10_000, 1  # text-only scenes: as many as pre-training pairs; a seed that no store has
Kept = dict[str, dict[str, Any]]  # rows by arm and seed (`_name`), then by detector
Round = tuple[int, str]  # a seed and a detector


def waiting(claims: Iterable[Claim], seeds: int, place: Place, kept: Kept) -> list[tuple[Arm, int]]:
    """Return the pairs (arm, seed) that a claim needs and that have no score yet. All arms of one seed come before the
    next seed. Arms with the same first training are spread out, so that they do not wait for each other."""
    there = {name for name, _ in place.stores}
    jobs: list[tuple[Arm, int]] = []
    for seed in range(seeds):
        found: dict[str, Arm] = {}
        for claim in claims:
            if claim.study or seed in paired(terms_of(claim, place, kept)):
                continue
            for _, arm in claim.terms:
                name = _name(arm, seed, place)
                if arm.stores <= there and place.features not in kept.get(name, {}):
                    found.setdefault(name, arm)
        jobs += [(arm, seed) for arm in in_turns(found.values(), lambda arm: arm.last.chain[0])]
    return jobs


def judge(claim: Claim, place: Place, kept: Kept) -> dict[str, Any]:
    """Return the claim's difference, verdict and mean scores, over the seeds for which all its arms have a score."""
    terms = terms_of(claim, place, kept)
    shared = list(paired(terms).values())
    if not shared:
        return {"verdict": "not run", "seeds": 0}
    found = difference([sum(term.weight * term.by_round[one] for term in terms) for one in shared])
    means = [round(fmean(term.by_round[one] for one in shared), 1) for term in terms]
    return _to_json(found) | {"scores": means, "blind": [term.blind for term in terms]}


@dataclass(frozen=True)
class Term:
    """One term of a claim: its weight, the arm's scores by seed and detector, and the blind baseline."""

    weight: float
    by_round: dict[Round, float]
    blind: float | None = None


def paired(terms: Sequence[Term]) -> dict[int, Round]:
    """Return, by seed, a pair (seed, detector) for which all terms have a score."""
    return {seed: (seed, whose) for seed, whose in sorted(set.intersection(*(set(term.by_round) for term in terms)))}


def terms_of(claim: Claim, place: Place, kept: Kept) -> list[Term]:
    return list(_of_study(claim)) if claim.study else [_scored(*term, claim, place, kept) for term in claim.terms]


def _scored(weight: float, arm: Arm, claim: Claim, place: Place, kept: Kept) -> Term:
    score = arm.score or claim.score
    seeds = {row["seed"] for by_features in kept.values() for row in by_features.values()}
    rows = {(seed, whose): row for seed in seeds for whose, row in kept.get(_name(arm, seed, place), {}).items()}
    blind = next((row["blind"][score] for row in rows.values() if score in row["blind"]), None)
    return Term(weight, {one: row["scores"][score] for one, row in rows.items()}, blind)


def _of_study(claim: Claim) -> Iterator[Term]:
    """Yield the terms of a claim that another study tests, from the committed results of that study."""
    rounds = _read(RESULTS / f"{claim.study}.json")["figures"]["rounds"]
    for weight, name, score in claim.rounds:
        yield Term(weight, {(row["seed"], ""): row[score] for row in rounds if row["arm"] == name})


def _name(arm: Arm, seed: int, place: Place) -> str:
    return f"{key_of(arm.last, seed, place)}/{arm.task}"


def _to_json(found: Difference) -> dict[str, Any]:
    known = {"value": found.value, "low": found.low, "high": found.high}
    shown = {name: round(value, 2) for name, value in known.items() if math.isfinite(value)}
    return (shown if len(shown) == 3 else {}) | {"seeds": found.seeds, "verdict": found.verdict}


def run(claims: Sequence[Claim], seeds: int, place: Place, figures: dict[str, Any], processes: int) -> None:
    """Train and score the missing arms. Each score is saved at once: in experiments/results, or with `--scale real` in
    OUT."""
    kept = figures.setdefault("arms", {})
    jobs = waiting(claims, seeds, place, kept)
    _keep(figures, place)
    with workers(processes) as pool, ending_children():
        running = {pool.submit(scores_of, arm, seed, place): (arm, seed) for arm, seed in jobs}
        for number, done in enumerate(as_completed(running), start=1):
            arm, seed = running[done]
            scores, blind = done.result()
            row = {"chain": list(describe(arm.last)), "seed": seed, "scores": scores, "blind": blind}
            kept.setdefault(_name(arm, seed, place), {})[place.features] = row
            _keep(figures, place)
            print(f"{number} of {len(jobs)}: {arm.last.recipe} seed {seed}: {_short(scores)}", flush=True)


def _keep(figures: dict[str, Any], place: Place) -> None:
    figures["claims"] = {claim.id: judge(claim, place, figures["arms"]) for claim in CLAIMS}
    save_result(NAME, COMMAND, figures, _results(place))


def _results(place: Place) -> Path:
    return Path(place.out) if place.real else RESULTS


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _short(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in list(scores.items())[:3])


def _draw_text(file: Path) -> None:
    """If `file` is missing, write captions of scenes that no store has, for text-only training."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [caption for index in range(SCENES) for caption in record(scene(OTHER_WORLD, "web", index)).captions]
        write_atomically(file, "\n".join([*lines, ""]).encode())


def _places(named: Sequence[str]) -> Iterator[tuple[str, str]]:
    for one in named:
        name, equals, path = one.partition("=")
        yield (name, path) if equals else ("detected", one)


def _begun(named: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each name of `--init` with the settings that load its weights and vocabulary."""
    for one in named:
        name, _, source = one.partition("=")
        begins = [f"init={source}"]
        try:
            words = vocabulary_settings(begins)
        except DiptychError as error:
            raise SystemExit(str(error)) from error
        if not words:
            raise SystemExit(
                f"--init {one}: {source or 'nothing'} has no vocab.txt next to its weights; pass NAME=FOLDER (with "
                "model.safetensors or pytorch_model.bin, and vocab.txt) or NAME=ID of such a model on the hub"
            )
        yield name, (*begins, *words)


def _whose(store: str) -> str:
    """Return an identifier of the detector that made a store's features: the start of its weights' hash."""
    try:
        return Store(Path(store)).contract.weights[:FEATURES]
    except DiptychError as error:
        raise SystemExit(str(error)) from error


def _listed(claims: Sequence[Claim], seeds: int, place: Place, kept: Kept) -> Iterator[str]:
    for claim in claims:
        found = judge(claim, place, kept)
        yield f"{claim.id}: {claim.says} ({claim.source}); {found['verdict']}, {found['seeds']} seeds"
        if claim.study:
            yield f"    {_read(RESULTS / f'{claim.study}.json')['command']}"
        for weight, arm in claim.terms:
            yield f"    {weight:+.0f} {arm.task}: {' > '.join(map(_stage, arm.last.chain))}"
    yield f"{len(waiting(claims, seeds, place, kept))} arms and seeds are left to run"


def _stage(one: Stage) -> str:
    share = [] if one.share == 1 else [f"({one.share:g} of the steps)"]
    return " ".join([one.recipe, *one.settings, *one.small, *share])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="append", default=[], help="a store, or NAME=STORE; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("runs/claims"), help="folder for the runs")
    parser.add_argument("--claims", default="*", help="pattern of ids, such as 'tden-*' (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=PROCESSES, help="arms at once, with one thread each")
    parser.add_argument("--scale", choices=("small", "real"), default="small")
    parser.add_argument("--init", action="append", default=[], help="NAME=FOLDER: initial weights of real recipes")
    parser.add_argument("--text", type=Path, help="file for text-only training (default: drawn captions)")
    parser.add_argument("--list", action="store_true", help="print the claims and what is left; run nothing")
    given = parser.parse_args()
    chosen = [claim for claim in CLAIMS if fnmatch.fnmatch(claim.id, given.claims)]
    if not chosen:
        raise SystemExit(f"no claim matches --claims {given.claims!r}; --list prints all ids")
    stores = dict(_places(given.store))
    if not given.list and "detected" not in stores:
        raise SystemExit("Missing --store runs/store; --help shows how to make it")
    place = Place(
        tuple(stores.items()) or (("detected", ""),),
        str(given.out),
        str(given.text or given.out / "text.txt"),
        given.scale == "real",
        tuple(_begun(given.init)),
        _whose(stores["detected"]) if "detected" in stores else "",
    )
    path = _results(place) / f"{NAME}.json"
    figures: dict[str, Any] = _read(path)["figures"] if path.exists() else {}
    if given.list:
        print("\n".join(_listed(chosen, given.seeds, place, figures.get("arms", {}))))
        return
    if given.text is None:
        _draw_text(Path(place.text))
    try:
        run(chosen, given.seeds, place, figures, given.processes)
    except DiptychError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
