"""Measure what mining is worth: pre-train on mined pairs, on the raw web or not at all, then fine-tune on few labels.

    uv run python -m experiments.mining --detector demo/detector --out runs/out/gain --keep

On a drawn web (`diptych storybook web`), the text of an image may be right, wrong, junk or about another image. Arms:

    nothing   no pre-training.
    raw       every image over 300 pixels with its first text; all other rules are off.
    rules     pairs mined without a scorer.
    mined     pairs mined with a scorer that was trained on a few labelled images.
    oracle    the images of `mined` with true captions.
    fewer     only as many images of `raw` as `mined` has.
    mixed     images of `mined` and labelled scenes in one stage; the other arms have two (the question of Table 3).
    raw-mixed the same with images of `raw`.

Each arm pre-trains for the same number of steps. It then fine-tunes retrieval on the same few labelled scenes, with
several seeds. All arms search the same test split, whose images are excluded from mining (`--exclude`). All share one
vocabulary and one detector. If the command is stopped, repeat it to resume. More seeds, systems and arms can be added
later.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from rich.console import Console

from diptych.core import Record
from diptych.core.folders import INNER
from diptych.data.extract.own_data import extract_regions
from diptych.data.formats import table as formats
from diptych.data.store.store import INDEX, Store, StoreWriter
from diptych.data.store.tokens import FILE as TOKENS
from diptych.data.store.tokens import Tokens
from diptych.metrics.bootstrap import bootstrap_interval, paired_interval, rows_by_picture
from diptych.metrics.retrieval import RECALLS
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.evaluation.retrieve import Extent
from diptych.runs.folder import CONFIG, ModelFolder, open_model
from diptych.runs.run import run
from diptych.runs.start import fit_to
from diptych.runtime.errors import DataError
from diptych.runtime.files import write_atomically
from diptych.systems import find_recipe
from diptych.tasks.matching import AT
from diptych.vision.detectors.open import open_detector
from diptych_mine import funnel
from diptych_mine.layout import RunLayout
from diptych_mine.rules import RULES, TEXT_RULES
from diptych_mine.run import Mine
from diptych_mine.scorer import held_out_hashes, load_scorer, scorer_version, train_scorer
from diptych_mine.settings import MiningSettings, changed
from diptych_mine.tables import lines_of
from diptych_world import web
from diptych_world.files import write as write_world
from experiments.claiming import claim
from experiments.figures import of_interval, save

ARMS = ("nothing", "raw", "rules", "mined", "oracle", "fewer", "mixed", "raw-mixed")
SYSTEMS = ("tden", "image-bert")
GAINS = (("mined", "nothing"), ("raw", "nothing"), ("mined", "raw"), ("mined", "fewer"), ("mined", "rules"),
         ("oracle", "raw"), ("mined", "mixed"), ("raw", "raw-mixed"))  # fmt: skip
ROW, WORLD, LABELLED, MINED = "row.json", "world", "labelled", "mined"
KEPT_ON = ("address", "fetch", "unreadable", "pixels", "sides", "refused", "exclude", "no_text", "best_pair")
SWITCHES = [rule.name for rule in (*RULES, *TEXT_RULES) if rule.name not in (*KEPT_ON, "score")]


@dataclass(frozen=True)
class GainStudy:
    """The settings of the study, as plain values."""

    detector: str
    out: str
    pages: int = 2_000
    labelled: int = 300  # training scenes for retrieval
    held_out: int = 64  # scenes of val, which selects the best weights
    gallery: int = 300  # test scenes to search
    queries: int = 100  # number of queries in each direction, for a model that scores pairs
    scorer_pictures: int = 200
    steps: int = 1_200  # steps of pre-training
    taught: int = 600  # steps of fine-tuning for retrieval
    settings: tuple[str, ...] = ("training.threads=1", "training.batch=32")
    seeds: int = 2

    @property
    def folder(self) -> Path:
        return Path(self.out)


def study(plan: GainStudy, system: str, arms: Sequence[str], only_done: bool = False) -> dict[str, Any]:
    """Train and score the arms and seeds that have no result yet; return the figures of one system. If `only_done`,
    train nothing and return the figures of the seeds whose arms are all done."""
    claim(plan, plan.out)
    labelled = make_labelled(plan)
    mined = make_web(plan)
    stores = make_stores(plan, mined, labelled)
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    seeds = [s for s in range(plan.seeds) if not only_done or all(_row(plan, system, a, s).exists() for a in arms)]
    for seed in seeds:
        for arm in arms:
            rows[arm, seed] = one = teach(plan, system, arm, seed, stores, labelled)
            print(json.dumps({name: value for name, value in one.items() if name != "found"}), flush=True)
    if not rows:
        raise DataError(f"no seed of {system} has all arms in {plan.out}; leave out --done to train them")
    asked = asdict(plan) | {"settings": dict(_assigned(plan.settings)), "seeds": len(seeds)}
    return {
        "asked": {name: value for name, value in asked.items() if name not in ("detector", "out")},
        "pictures": {arm: len(stores[arm]) for arm in arms if arm in stores},
        "pairs that are true": _share_true(plan, mined),
        **figures(rows, seeds, arms),
    }


def _assigned(settings: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for one in settings:
        name, _, value = one.partition("=")
        with suppress(ValueError):
            yield name, json.loads(value)


def _row(plan: GainStudy, system: str, arm: str, seed: int) -> Path:
    return plan.folder / system / f"{arm}-{seed}" / ROW


def make_labelled(plan: GainStudy) -> Store:
    """Return the store of labelled scenes, with splits train (fine-tuning), val (choice of weights) and test
    (gallery)."""
    world, out = plan.folder / WORLD, plan.folder / LABELLED
    if not (out / INDEX).exists():
        write_world(world, {"train": plan.labelled, "val": plan.held_out, "test": plan.gallery}, 0)
        extract_regions(formats.read(world), open_detector(plan.detector, []), out)
    return Store(out)


def make_web(plan: GainStudy) -> dict[str, list[Record]]:
    """Mine the same drawn web in several ways. Return the records of each arm, such as "raw"."""
    pages, every = plan.folder / "web", MiningSettings(offline=True)
    if not (pages / "truth.jsonl").exists():
        web.write(pages, plan.pages)
    raw = changed(every, ["rules.near_bits=off", *(f"rules.{name}=off" for name in SWITCHES)])
    exclude = held_out_hashes(plan.folder / WORLD)

    def mine(name: str, settings: MiningSettings, scorer: Path | None = None) -> list[Record]:
        with_scorer: dict[str, Any] = {} if scorer is None else {
            "scorer": str(scorer), "scorer_version": scorer_version(str(scorer)), "load_scorer": load_scorer
        }  # fmt: skip
        Mine(plan.folder / name, [pages / "warc"], settings, exclude=exclude, tell=lambda _: None, **with_scorer).run()
        return formats.read(plan.folder / name)

    found = {"raw": mine("raw", raw), "rules": mine("rules", every)}
    truth = _truth(pages)
    found[MINED] = mine(MINED, every, _scorer(plan, truth))
    true = {row["sha256"]: truth.get((row["page"], row["address"])) for row in _decisions(plan, MINED)}
    found["oracle"] = [
        replace(record, captions=tuple(about["captions"]))
        for record in found[MINED]
        if (about := true.get(_name(record))) and about.get("captions")
    ]
    found["fewer"] = Random(0).sample(found["raw"], min(len(found["raw"]), len(found[MINED])))
    return found


def _truth(pages: Path) -> dict[tuple[str, str | None], dict[str, Any]]:
    lines = map(json.loads, (pages / "truth.jsonl").read_text("utf-8").splitlines())
    return {(line["page"], line["address"]): line for line in lines}


def _decisions(plan: GainStudy, name: str) -> Iterable[dict[str, Any]]:
    return (row for row in funnel.decisions(RunLayout(plan.folder / name)) if row["kept"] is not None)


def _scorer(plan: GainStudy, truth: Mapping[tuple[str, str | None], dict[str, Any]]) -> Path:
    """Train a scorer on texts of images that the rules kept, and return its folder. The web's truth labels each text as
    right or wrong."""
    out = plan.folder / "scorer"
    if not (out / "scorer.json").exists():
        rows = [row for row in _decisions(plan, "rules") if (row["page"], row["address"]) in truth]
        lines = []
        for row in Random(1).sample(rows, min(len(rows), plan.scorer_pictures)):
            right = {text["text"]: text["right"] for text in truth[row["page"], row["address"]]["texts"]}
            picture = RunLayout(plan.folder / "rules").picture(row["sha256"], row["type"])
            for text in row["texts"]:
                if not text["fails"]:
                    lines.append({"image": str(picture.absolute()), "statement": text["text"], "kind": text["kind"],
                                  "true": right.get(text["text"], False), "title": row["title"],
                                  "address": row["address"]})  # fmt: skip
        write_atomically(plan.folder / "labels.jsonl", lines_of(lines))
        train_scorer([plan.folder / "labels.jsonl"], out, detector=plan.detector)
    return out


def _name(record: Record) -> str:
    return "" if record.image is None else record.image.stem


def make_stores(plan: GainStudy, mined: Mapping[str, list[Record]], labelled: Store) -> dict[str, Store]:
    """Return the arms' stores. The regions of each image are detected once; the arms' stores copy them."""
    everything = plan.folder / "pictures"
    if not (everything / INDEX).exists():
        pictures = {_name(one): Record(_name(one), image=one.image) for records in mined.values() for one in records}
        extract_regions(list(pictures.values()), open_detector(plan.detector, []), everything)
    seen = Store(everything)
    at = {seen.words(row).key: row for row in range(len(seen))}
    train = [labelled.record(row) for row in labelled.split("train")]
    stores = {}
    for arm, records in {**mined, "mixed": mined[MINED], "raw-mixed": mined["raw"]}.items():
        out = plan.folder / f"store-{arm}"
        if not (out / INDEX).exists():
            both = arm.endswith("mixed")
            with StoreWriter(out, seen.contract, len(records) + len(train)) as writer:
                for record in records:
                    if _name(record) in at:
                        whole = seen.record(at[_name(record)])
                        writer.add(replace(whole, split="train", captions=record.captions))
                for record in train if both else ():
                    writer.add(record)
        stores[arm] = Store(out)
    if not (plan.folder / TOKENS).exists():
        texts = [text for records in (*mined.values(), train) for record in records for text in record.captions]
        Tokens.train(texts, 4_000).save(plan.folder)
    return stores


def teach(
    plan: GainStudy, system: str, arm: str, seed: int, stores: Mapping[str, Store], labelled: Store
) -> dict[str, Any]:
    """Pre-train, fine-tune and score one arm with one seed; return its row of results."""
    torch.set_num_threads(1)
    done, quiet = _row(plan, system, arm, seed), Console(quiet=True)
    out = done.parent
    if done.exists():
        kept: dict[str, Any] = json.loads(done.read_text("utf-8"))
        return kept
    own = [*plan.settings, f"training.seed={seed}"]
    words = f"data.vocabulary={plan.folder / TOKENS}"
    start: ModelFolder | None = None
    if arm in stores:
        recipe = find_recipe(f"{system}/small/pretrain").override(
            [*own, words, "data.split=train", "training.validate_every=null", f"training.steps={plan.steps}"]
        )
        folder = out / "pretrain"
        if not (folder / INNER / CONFIG).is_file():
            run(recipe, stores[arm], folder, None, quiet)
        start = open_model(folder / INNER)
    recipe = find_recipe(f"{system}/small/retrieval")
    recipe = fit_to(recipe, start) if start is not None else recipe.override([words])
    recipe = recipe.override([f"training.steps={plan.taught}", f"training.validate_every={plan.taught // 3}", *own])
    made = run(recipe, labelled, out / "retrieval", start, quiet)
    pairs: dict[str, Any] = {}
    if "match" in made.model.architecture.heads:
        pairs = {"extent": Extent(plan.queries), "pairs": out / "pairs"}
    found, scores = score_model(made.model, labelled, "test", task="retrieval", **pairs)
    row: dict[str, Any] = {"system": system, "arm": arm, "seed": seed, "best step": made.result.best_step}
    row |= {score.name: round(score.value, 2) for score in scores.scores}
    row["found"] = _ranks(found)
    write_atomically(done, json.dumps(row).encode())
    return row


def _ranks(found: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return, for each query, what it searches ("captions" or "pictures"), its image, and the rank of the first right
    answer. `found` has scored pairs, or the vectors of two towers."""
    if "vector" not in found[0]:
        return [[one["asks"], one["picture"], one["rank"]] for one in found]
    pictures = [one for one in found if one["key"] == "picture"]
    texts = [one for one in found if one["key"] != "picture"]
    products = np.array([one["vector"] for one in pictures]) @ np.array([one["vector"] for one in texts]).T
    right = np.array([[a["picture"] == b["picture"] for b in texts] for a in pictures])
    best = np.where(right, products, -np.inf)
    captions = (products > best.max(1, keepdims=True)).sum(1)
    images = (products > best.max(0, keepdims=True)).sum(0)
    return [
        *(["captions", one["picture"], int(rank)] for one, rank in zip(pictures, captions, strict=True)),
        *(["pictures", one["picture"], int(rank)] for one, rank in zip(texts, images, strict=True)),
    ]


def figures(
    rows: Mapping[tuple[str, int], Mapping[str, Any]], seeds: Sequence[int], arms: Sequence[str]
) -> dict[str, Any]:
    """Return the recalls of each arm over all seeds, and the gains between arms, with 95% bootstrap intervals. An image
    is resampled together with its queries."""
    hits = {
        (arm, f"{of} R@{at}"): _hits([rows[arm, seed] for seed in seeds], asks, at)
        for arm in arms for asks, of in RECALLS.items() for at in AT
    }  # fmt: skip
    recalls = [f"{of} R@{at}" for of in RECALLS.values() for at in AT]
    gains = {
        f"{a} minus {b}": {name: of_interval(paired_interval(hits[a, name], hits[b, name])) for name in recalls}
        for a, b in GAINS if a in arms and b in arms
    }  # fmt: skip
    found: dict[str, Any] = {
        "recall": {arm: {name: of_interval(bootstrap_interval(hits[arm, name])) for name in recalls} for arm in arms},
        "gains": gains,
        "rounds": [{k: v for k, v in row.items() if k != "found"} for row in rows.values()],
    }
    if "mined minus raw" in gains and (whole := gains.get("oracle minus raw")) is not None:
        part = gains["mined minus raw"]
        found["percent of the way from raw to oracle"] = {
            name: round(100 * part[name]["value"] / whole[name]["value"]) for name in recalls if whole[name]["low"] > 0
        }
    return found


def _share_true(plan: GainStudy, mined: Mapping[str, list[Record]]) -> dict[str, float]:
    """Return the percentage of mined pairs that are right by the web's truth, for each way of mining."""
    truth, shares = _truth(plan.folder / "web"), {}
    for name in ("raw", "rules", MINED):
        right = 0
        for row in _decisions(plan, name):
            texts = truth.get((row["page"], row["address"]), {}).get("texts", ())
            right += any(one["right"] and one["text"] == row["texts"][row["kept"]]["text"] for one in texts)
        shares[name] = round(100 * right / max(1, len(mined[name])), 1)
    return shares


def _hits(rows: Sequence[Mapping[str, Any]], asks: str, at: int) -> Any:
    found = [each for row in rows for each in row["found"] if each[0] == asks]
    return rows_by_picture([100.0 * (rank < at) for _, _, rank in found], [picture for _, picture, _ in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--detector", required=True, help="a folder, such as demo/detector")
    parser.add_argument("--out", required=True)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="some of these, separated by commas")
    parser.add_argument("--arms", default=",".join(ARMS), help="some of these, separated by commas")
    numbers = ("pages", "labelled", "held-out", "gallery", "queries", "scorer-pictures", "steps", "taught", "seeds")
    for name in numbers:
        parser.add_argument(f"--{name}", type=int, default=getattr(GainStudy, name.replace("-", "_")))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    parser.add_argument("--done", action="store_true", help="print the figures of finished seeds; train nothing")
    parser.add_argument("--keep", action="store_true", help="write experiments/results/mining_SYSTEM.json")
    given = parser.parse_args()
    sizes = {name.replace("-", "_"): getattr(given, name.replace("-", "_")) for name in numbers}
    plan = GainStudy(given.detector, given.out, settings=(*GainStudy.settings, *given.set), **sizes)
    arms = given.arms.split(",")
    if unknown := sorted(set(arms) - set(ARMS)):
        parser.error(f"unknown --arms {', '.join(unknown)}; choose from {', '.join(ARMS)}")
    for system in given.systems.split(","):
        found = study(plan, system, arms, given.done)
        command = f"uv run python -m experiments.mining --detector DETECTOR --out OUT --systems {system} --keep"
        name = f"mining_{system.replace('-', '_')}"
        print(save(name, command, found) if given.keep else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
