"""Measure the rules and the scorer of mining on the drawn test web, whose truth is known.

The weights that select a page's dominant image, and all rules, were tuned on six of the twelve page templates. The
other six are held out and reported separately. The same person wrote the templates and the rules. So the figures show
that the rules work as intended, not how they perform on the real web.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from diptych.metrics.auroc import auroc
from diptych.metrics.bootstrap import resampled_interval
from diptych.runs.folder import open_model
from diptych.vision.detectors.open import open_detector
from diptych.vision.fingerprints import NEAR, matrix, near_pairs
from diptych.vision.pictures import to_picture
from diptych_mine import funnel
from diptych_mine.judge import features
from diptych_mine.judge.decode import measure
from diptych_mine.judge.judges import load_judge
from diptych_mine.judge.logistic import Logistic
from diptych_mine.judge.picture_judge import train_judge
from diptych_mine.judge.scoring import Pair
from diptych_mine.judge.statistics import small
from diptych_mine.layout import RunLayout
from diptych_mine.run import Mine
from diptych_mine.scorer import MEASURED, Reader
from diptych_mine.settings import MiningSettings
from diptych_world.book import Storybook
from diptych_world.render import render
from diptych_world.web import plan
from diptych_world.web.pictures import UNNATURAL, file_of, unnatural
from diptych_world.web.plan import true_caption
from experiments.figures import save

Truth = dict[tuple[str, str | None], dict[str, Any]]
SHUFFLES = 200
EXACT = ("opt_out", "language", "unreadable", "pixels", "sides", "ratio", "one_colour")


def truth_of(web: Path) -> Truth:
    lines = map(json.loads, (web / "truth.jsonl").read_text("utf-8").splitlines())
    return {(line["page"], line["address"]): line for line in lines}


def share(count: int, total: int) -> float:
    return round(100 * count / total, 2) if total else 0.0


def dominant(rows: Iterable[dict[str, Any]], truth: Truth, held_out: bool) -> dict[str, float]:
    of_page = {line["page"]: line for line in truth.values()}
    right = wrong = 0
    for row in rows:
        page = of_page[row["page"]]
        if page["held_out"] == held_out and not {"opt_out", "language", "dominant"} & set(row["fails"]):
            line = truth.get((row["page"], row["address"]))
            right += line is not None and line["dominant"]
            wrong += line is None or not line["dominant"]
    meant = [
        one
        for one in truth.values()
        if one["held_out"] == held_out and one["dominant"] and one["drop"] not in EXACT[:2]
    ]
    return {"precision": share(right, right + wrong), "recall": share(right, len(meant)), "pictures": len(meant)}


def language(rows: Iterable[dict[str, Any]], truth: Truth, held_out: bool) -> dict[str, float]:
    found = {row["page"]: "language" in row["fails"] for row in rows}
    pages = {one["page"]: one for one in truth.values() if one["held_out"] == held_out and one["kind"] != "opt_out"}
    foreign = [found[name] for name, page in pages.items() if page["language"] != "en" and name in found]
    english = [found[name] for name, page in pages.items() if page["language"] == "en" and name in found]
    return {"foreign_found": share(sum(foreign), len(foreign)), "foreign_pages": len(foreign),
            "english_lost": share(sum(english), len(english)), "english_pages": len(english)}  # fmt: skip


def texts(rows: dict[tuple[str, str | None], dict[str, Any]], truth: Truth, held_out: bool) -> dict[str, Any]:
    """Return the precision and recall of each text rule, in percent. A text counts as positive if the truth expects the
    rule to drop it."""
    dropped: Counter[str] = Counter()
    rightly: Counter[str] = Counter()
    meant: Counter[str] = Counter()
    met: Counter[str] = Counter()
    for key, line in truth.items():
        row = rows.get(key)
        if row is None or line["held_out"] != held_out or not row["texts"]:
            continue
        for text in line["texts"]:
            wanted = text["rule"] if text["rule"] != "common_text" else None
            said = [one for one in row["texts"] if one["kind"] == text["kind"]][:1]
            fails = [name for one in said for name in one["fails"] if name != "score"]
            if wanted is not None:
                meant[wanted] += 1
                met[wanted] += wanted in fails
                dropped[wanted] += wanted in fails
                rightly[wanted] += wanted in fails
            elif fails:
                dropped[fails[0]] += 1
                rightly[fails[0]] += fails[0] == "short" and len(text["text"].split()) < 3
    return {name: {"precision": share(rightly[name], dropped[name]), "recall": share(met[name], meant[name])}
            for name in sorted(meant)}  # fmt: skip


def exact(rows: dict[tuple[str, str | None], dict[str, Any]], truth: Truth) -> dict[str, Any]:
    """Count, for each rule with an exact criterion (such as a minimum size), the images that it drops rightly
    (`found`), should drop (`of`) and drops wrongly (`false`). Only images that reach the rule are counted."""
    found = {}
    for name in EXACT:
        with_truth = [(rows[key], line) for key, line in truth.items() if key in rows and line["dominant"]]
        reached = [(row, line) for row, line in with_truth if "dominant" not in row["fails"]]
        hits = sum(row["dropped_by"] == name for row, line in reached if line["drop"] == name)
        total = sum(line["drop"] == name for _, line in reached)
        false = sum(row["dropped_by"] == name for row, line in reached if line["drop"] != name)
        found[name] = {"found": hits, "of": total, "false": false}
    return found


def copies(seed: int, pages: int) -> dict[str, float]:
    """Compare image hashes. Return the percentage of resized and re-encoded copies found (at most NEAR different bits),
    and the number of pairs of different scenes that are as near."""
    cases = [plan(seed, number) for number in range(pages)]
    hashes: dict[int, list[bytes]] = {}
    from diptych_world.web.pictures import original_of

    for case in cases:
        if case.page == "page" and case.picture in ("scene", "resized", "copy"):
            row, _, _ = measure(file_of(seed, case)[0], MEASURED)
            shown = original_of(seed, case) if case.picture != "scene" else case.number
            hashes.setdefault(shown, []).append(row["phash"])
    known = (matrix(same) for same in hashes.values())
    near = [
        b in near_pairs(same[a : a + 1], same, NEAR)[1] for same in known for b in range(len(same)) for a in range(b)
    ]
    first = matrix(same[0] for same in hashes.values())
    false = (len(near_pairs(first, first, NEAR)[0]) - len(first)) // 2
    pairs = len(first) * (len(first) - 1) // 2
    return {"copies_found": share(sum(near), len(near)), "copies": len(near), "false_pairs": false, "pairs": pairs,
            "pictures": len(first)}  # fmt: skip


def realism(scenes: int) -> dict[str, Any]:
    """Return the AUC (times 100) of a judge of natural images for each kind of unnatural image. The judge is trained on
    three of the five kinds."""
    taught, rng = UNNATURAL[:3], Random(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for number, one in enumerate(Storybook(0, "train", scenes)[:]):
            _save(Image.fromarray(render(one, 2 + number % 2)), folder / "classes" / "natural" / f"{number}.png")
            _save(unnatural(taught[number % 3], rng), folder / "classes" / "unnatural" / f"{number}.png")
        train_judge(folder / "classes", folder / "judge")
        judge = load_judge(str(folder / "judge"))
        val = Storybook(0, "val", scenes)[:]
        right = judge.judge([to_picture(small(Image.fromarray(render(one, 2)))) for one in val])
        found = {}
        for kind in UNNATURAL:
            wrong = judge.judge([to_picture(small(unnatural(kind, rng))) for _ in range(scenes // 2)])
            value = auroc(np.array([*right, *wrong]), np.arange(len(right) + len(wrong)) < len(right))
            found[f"{kind}{'' if kind in taught else ', not taught'}"] = round(100 * value, 1)
    return found


def _save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def candidates(seed: int, web: Path, truth: Truth, out: Path) -> tuple[list[Pair], list[bool], list[int], list[bool]]:
    """Return candidate pairs of image and text. Also return, for each pair, whether the text is right, the page's
    number, and whether the text is a caption of another image.

    The texts come from pages whose images the truth covers; prose counts as wrong. A caption of another image is added
    for each image.
    """
    pairs, labels, pages, swapped = [], [], [], []
    for row in funnel.decisions(RunLayout(out)):
        line = truth.get((row["page"], row["address"]))
        if (
            line is None
            or row["sha256"] is None
            or (row["fails"] and not set(row["fails"]) <= {"best_pair", "common_text"})
        ):
            continue
        place = web / "files" / row["address"].removeprefix("http://")
        body = place.read_bytes()
        right = {text["text"]: text["right"] for text in line["texts"]}
        said = [
            (text["kind"], text["text"], right.get(text["text"], False), False)
            for text in row["texts"]
            if not text["fails"]
        ]
        other = true_caption(Random(f"other {line['number']}"), seed, line["number"] + 7_000)
        kind = next(iter(line["texts"]), {"kind": "alt"})["kind"]
        own = line["captions"][0] if line["captions"] else None
        said += [(kind, other, False, True), *([(kind, own, True, True)] if own else [])]
        for kind, text, true, swap in said:
            pairs.append(Pair(text, kind, body, row))
            labels.append(true)
            pages.append(line["number"])
            swapped.append(swap)
    return pairs, labels, pages, swapped


def scorer(web: Path, truth: Truth, out: Path, detector: str, model: Path | None, seed: int) -> dict[str, Any]:
    """Return the scorer's AUC (times 100) on held-out templates: over all candidates, and of right captions against
    captions of another image."""
    reader = Reader(open_detector(detector, []), open_model(model) if model is not None else None)
    pairs, labels, pages, swapped = candidates(seed, web, truth, out)
    table = np.concatenate([reader.table(pairs[at : at + 64]) for at in range(0, len(pairs), 64)])
    truths, numbers, swap = np.array(labels), np.array(pages), np.array(swapped)
    held = np.array([plan(seed, number).held_out for number in pages])
    text_columns = [n for n, name in enumerate(reader.names) if name in features.TEXT]
    own = [n for n, name in enumerate(reader.names) if name not in features.MODEL]
    rng = np.random.default_rng(seed)
    taught = rng.permutation(np.unique(numbers[~held]))
    found: dict[str, Any] = {"candidates_held_out": int(held.sum()), "pictures_held_out": len(np.unique(numbers[held]))}

    def aucs(scores: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> dict[str, float]:
        some, right = scores[rows], truths[rows]
        images = [str(number) for number in numbers[rows]]
        auc = resampled_interval(lambda drawn: auroc(some[drawn], right[drawn]), images)
        return {name: round(100 * value, 1) for name, value in vars(auc).items()}

    def both(scores: np.ndarray[Any, Any]) -> dict[str, dict[str, float]]:
        return {"over all": aucs(scores, held), "against another's": aucs(scores, held & swap)}

    def shuffled(
        features: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], all_features: np.ndarray[Any, Any]
    ) -> dict[str, dict[str, float]]:
        """Return the mean AUC over many shuffles of the labels, and its central 95%. One shuffle gives random weights,
        whose AUC may differ from 50 by chance."""
        drawn: dict[str, list[float]] = {"over all": [], "against another's": []}
        for _ in range(SHUFFLES):
            scores = Logistic.fit(features, rng.permutation(labels))(all_features)
            for name, rows in zip(drawn, (held, held & swap), strict=True):
                drawn[name].append(100 * auroc(scores[rows], truths[rows]))
        return {
            name: {"value": round(float(np.mean(values)), 1),
                   "low": round(float(np.quantile(values, 0.025)), 1),
                   "high": round(float(np.quantile(values, 0.975)), 1)}
            for name, values in drawn.items()
        }  # fmt: skip

    for count in (50, 200, 1000):
        rows = np.isin(numbers, taught[:count]) & ~held
        if count > len(taught):
            continue
        arms = {"all features": own, "text alone": text_columns}
        if model is not None:
            arms["all features and a model's"] = list(range(len(reader.names)))
        for name, columns in arms.items():
            fitted = Logistic.fit(table[rows][:, columns], truths[rows])
            found[f"{name}, {count} pictures"] = both(fitted(table[:, columns]))
        found[f"shuffled labels, {count} pictures"] = shuffled(table[rows][:, own], truths[rows], table[:, own])
    named = table[:, reader.names.index("named_seen")] - table[:, reader.names.index("named_unseen")]
    found["words that name what is seen, untaught"] = both(named)
    for column in set(range(len(reader.names))).difference(own):
        found[f"a model's {reader.names[column]}, untaught"] = both(table[:, column])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("web", type=Path, help="Folder made by `diptych storybook web`.")
    parser.add_argument("detector", help="Folder made by `diptych storybook detector`.")
    parser.add_argument("--model", type=Path, help="A pre-trained model whose matching the scorer also reads.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the web.")
    options = parser.parse_args()
    truth = truth_of(options.web)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        found = Mine(out, [options.web / "warc"], MiningSettings(offline=True), tell=lambda _: None).run()
        assert found is not None
        rows = list(funnel.decisions(RunLayout(out)))
        by_key = {(row["page"], row["address"]): row for row in rows}
        figures: dict[str, Any] = {"pages": len({line["page"] for line in truth.values()}), "pictures": len(rows)}
        for name, held_out in (("templates that rules were set on", False), ("held-out templates", True)):
            figures[name] = {"dominant": dominant(rows, truth, held_out), "language": language(rows, truth, held_out),
                             "texts": texts(by_key, truth, held_out)}  # fmt: skip
        figures["exact rules"] = exact(by_key, truth)
        figures["near copies"] = copies(options.seed, min(figures["pages"], 1500))
        figures["realism"] = realism(120)
        figures["scorer"] = scorer(options.web, truth, out, options.detector, options.model, options.seed)
    save("mining_web", "uv run python -m experiments.mining_web WEB DETECTOR", figures)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
