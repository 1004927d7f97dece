"""Run an exported model: python run.py PICTURE [QUESTION].

This script needs numpy, Pillow, tokenizers, and onnxruntime or torch, but not Diptych (a BPE vocabulary also needs
sacremoses, to read questions). Its folder also contains program.json, tokenizer.json, the programs, and `.diptych` with
the SHA-256 of each file. `diptych export` replaces the imports from Diptych by the source of the modules.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from diptych.data.store.texts import Encoder
from diptych.vision.upright import MOST_PIXELS, read_image, upright_pixels

GREY = 114  # value of padding pixels
SAMPLES = 14  # sampling points of a box and axis
Array = np.ndarray[Any, Any]


class Program:
    """A program in a torch or ONNX file, which maps {name: array} to a list of arrays."""

    def __init__(self, folder: Path, name: str, form: str) -> None:
        self.form = form
        if form == "onnx":
            import onnxruntime

            self.session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
            self.inputs = {one.name for one in self.session.get_inputs()}
        else:
            import torch

            self.torch = torch
            self.module = torch.export.load(folder / f"{name}.pt2").module(check_guards=False)  # accepts any batch size

    def __call__(self, **arrays: Array) -> list[Array]:
        if self.form == "onnx":
            given = {name: array for name, array in arrays.items() if name in self.inputs}
            return [np.asarray(one) for one in self.session.run(None, given)]
        with self.torch.inference_mode():
            made = self.module(*(self.torch.from_numpy(np.ascontiguousarray(array)) for array in arrays.values()))
        return [one.numpy() for one in (made if isinstance(made, tuple | list) else (made,))]


class ExportedModel:
    """The programs of a folder, its tokeniser, and the settings in program.json.

    Raises ValueError if a file is damaged or missing.
    """

    def __init__(self, folder: Path) -> None:
        check_files(folder)
        self.facts = json.loads((folder / "program.json").read_text("utf-8"))
        self.tokens = Encoder(Tokenizer.from_file(str(folder / "tokenizer.json")))
        self.programs = {name: Program(folder, name, self.facts["format"]) for name in self.facts["programs"]}

    def captions(self, pictures: Sequence[Array]) -> tuple[list[list[int]], list[str]]:
        """Return a greedily decoded caption of each image (H, W, 3), as (lists of token ids, texts)."""
        ids = self.write(self.regions(pictures))
        return ids, [self.tokens.decode(one) for one in ids]

    def write(self, regions: dict[str, Array]) -> list[list[int]]:
        """Decode a caption for each row of `regions` greedily. Return the token ids."""
        facts, vocabulary = self.facts, self.facts["vocabulary"]
        scores, closed, read, written = self.programs["begin"](**regions)
        texts: list[list[int]] = [[] for _ in scores]
        going = np.ones(len(scores), bool)
        while True:
            words = np.array([self.next_word(row, text) for row, text in zip(scores, texts, strict=True)], np.int64)
            for row in np.flatnonzero(going):
                if words[row] == vocabulary["sep"]:
                    going[row] = False
                else:
                    texts[row].append(int(words[row]))
                    going[row] = len(texts[row]) < facts["max_words"]
            if not going.any():
                return texts
            scores, written = self.programs["follow"](words=words, closed=closed, read=read, written=written)

    def next_word(self, scores: Array, text: list[int]) -> int:
        """Return the token id with the highest score that the minimum length and the ban on repeated n-grams allow."""
        scores = scores.copy()
        if len(text) < self.facts["min_words"]:
            scores[self.facts["vocabulary"]["sep"]] = -np.inf
        run = self.facts["no_repeat_ngram"]
        if run and len(text) >= run:
            begun = text[len(text) - run + 1 :]
            for at in range(len(text) - run + 1):
                if text[at : at + run - 1] == begun:
                    scores[text[at + run - 1]] = -np.inf
        return int(scores.argmax())

    def answers(self, pictures: Sequence[Array], questions: Sequence[str]) -> tuple[Array, list[str]]:
        """Return the most probable answer to a question about each image, as (indices of the answers, texts)."""
        vocabulary, texts = self.facts["vocabulary"], []
        for question in questions:
            ids = self.tokens.encode(question)[: self.facts["max_words"]]
            slot = [vocabulary["mask"], vocabulary["sep"]] if self.facts["answer_slot"] else []
            texts.append([*ids, vocabulary["sep"], *slot])
        longest = max(map(len, texts))
        text = np.zeros((len(texts), longest), np.int64)
        for row, ids in zip(text, texts, strict=True):
            row[: len(ids)] = ids
        present = np.arange(longest)[None] < np.array([len(ids) for ids in texts])[:, None]
        (logits,) = self.programs["answer"](text=text, text_present=present, **self.regions(pictures))
        names = self.facts["answers"]
        if self.facts["unknown_first"]:  # answer 0 means "any other" and is never returned
            logits[:, 0] = -np.inf
        numbers = logits.argmax(1)
        return numbers, [names[number] for number in numbers]

    def regions(self, pictures: Sequence[Array]) -> dict[str, Array]:
        """Detect the regions of images, padded to the largest number of regions per image."""
        facts = self.facts["detector"]
        squares, shares = letterbox(pictures, facts["side"])
        candidates = self.programs["detect"](squares=squares)
        regions_of: Any = grid if "cells" in facts else pooled if "maps" in facts else selected
        if regions_of is pooled:
            maps, covered = candidates[3:], shares
            if "maps" in self.programs:
                squares, covered = letterbox(pictures, facts["maps"])
                maps = self.programs["maps"](squares=squares)
            candidates = [*candidates[:3], covered, *maps]
        rows = []
        for n, share in enumerate(shares):
            *regions, whole = regions_of(share, facts, *(part[n] for part in candidates))
            rows.append((*(part[: self.facts["max_regions"]] for part in regions), whole))
        most = max(1, *(len(row[1]) for row in rows))
        padded = [np.stack([pad(row[part], most) for row in rows]) for part in range(4)]
        sizes = np.array([[picture.shape[1], picture.shape[0]] for picture in pictures], np.int64)
        present = np.arange(most)[None] < np.array([len(row[1]) for row in rows])[:, None]
        return {
            "boxes": padded[0], "scores": padded[1], "sizes": sizes, "present": present, "features": padded[2],
            "classes": padded[3], "whole": np.stack([row[4] for row in rows]),
        }  # fmt: skip


def check_files(folder: Path) -> None:
    """Compare the files with their SHA-256 in `.diptych`. Raises ValueError if a file differs."""
    try:
        first, *lines = (folder / ".diptych").read_text("utf-8", errors="replace").split("\n")
    except OSError:
        raise ValueError(f"{folder} lacks .diptych, the file with the SHA-256 of each file; copy it too") from None
    noted = {name: digest for digest, _, name in (line.partition("  ") for line in lines if line)}
    if first != "diptych programs" or not {"program.json", "tokenizer.json"} <= noted.keys():
        raise ValueError(f"{folder / '.diptych'} is damaged; copy or export the folder again")
    for name, digest in noted.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise ValueError(f"{path} is missing or damaged; copy or export the folder again")
    facts = json.loads((folder / "program.json").read_text("utf-8"))
    ending = "onnx" if facts.get("format") == "onnx" else "pt2"
    if missing := {f"{name}.{ending}" for name in facts["programs"]} - noted.keys():
        raise ValueError(f"{folder / '.diptych'} lacks {min(missing)}; copy or export the folder again")


def open_picture(path: str | Path) -> Array:
    """Read an image as upright RGB, uint8 (H, W, 3). Raises ValueError if it cannot be read."""
    path = Path(path)
    return read_image(lambda: path.open("rb"), path, upright_pixels, MOST_PIXELS)


def letterbox(pictures: Sequence[Array], side: int) -> tuple[Array, Array]:
    """Return grey squares with the images at the top left, and the shares (of width, of height) that they cover."""
    squares = np.full((len(pictures), 3, side, side), GREY, np.uint8)
    shares = np.empty((len(pictures), 2), np.float32)
    for square, share, picture in zip(squares, shares, pictures, strict=True):
        height, width = picture.shape[:2]
        longer, small = max(height, width), picture
        if longer != side:
            height, width = max(1, round(height * side / longer)), max(1, round(width * side / longer))
            small = np.clip(np.rint(resized(picture.astype(np.float32), height, width)), 0, 255)
        square[:, :height, :width] = small.transpose(2, 0, 1)
        share[:] = width / side, height / side
    return squares, shares


def resized(picture: Array, height: int, width: int) -> Array:
    """Resize an image (H, W, 3) like torch's `interpolate(mode="bilinear", antialias=True)`."""
    wide = summed(picture.transpose(0, 2, 1), triangles(picture.shape[1], width))
    return summed(wide.transpose(2, 1, 0), triangles(picture.shape[0], height)).transpose(2, 0, 1)


def summed(values: Array, weights: Array) -> Array:
    """Return the sums of (A, B, length) weighted by (wanted, length): (A, B, wanted).

    Terms are added from left to right and rounded once each, like the fused multiply-adds of torch.
    """
    length, first = weights.shape[1], (weights > 0).argmax(1)
    total = np.zeros((*values.shape[:2], len(weights)), np.float32)
    for tap in range(int((weights > 0).sum(1).max())):
        places = np.minimum(first + tap, length - 1)
        shares = np.where(first + tap < length, weights[np.arange(len(weights)), places], 0).astype(np.float64)
        total = (values[..., places] * shares + total).astype(np.float32)
    return total


def triangles(length: int, wanted: int) -> Array:
    """Return the weights (wanted, length) that resize an axis: a triangle around each new pixel."""
    half, one = np.float32(0.5), np.float32(1)  # in single precision, like torch: the rounded pixels are the same
    scale = np.float32(length / wanted)
    wide = max(scale, one)
    centres = ((np.arange(wanted, dtype=np.float32) + half) * scale)[:, None]
    places = np.arange(length, dtype=np.float32)
    near = np.clip(1 - np.abs((places - centres + half) * (one / wide)), 0, None)
    low, high = (np.trunc(centres + side + half) for side in (-wide, wide))
    near *= (low <= places) & (places < high)
    return np.asarray(near / near.cumsum(1)[:, -1:])


def selected(
    share: Array, facts: dict[str, Any], boxes: Array, scores: Array, classes: Array, features: Array, whole: Array
) -> tuple[Array, ...]:
    """Select the regions of an image among the candidates.

    Return boxes (fractions of the image), scores, features and classes of the regions, and `whole`.
    """
    rows = choose(boxes, scores, classes[:, 1:].argmax(1), facts["selection"])
    shown = np.clip(boxes[rows] / np.tile(share, 2), 0, 1).astype(np.float32)
    return shown, scores[rows], features[rows], classes[rows], whole


def pooled(
    share: Array, facts: dict[str, Any], boxes: Array, scores: Array, classes: Array, covered: Array, *maps: Array
) -> tuple[Array, ...]:
    """Return the same as `selected`; a feature is the mean of the maps inside the box.

    `covered`: the share of the square of the maps that the image covers. There is no feature of the whole image.
    """
    if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
        raise ValueError("the detector found boxes or scores that are not finite numbers")
    best = np.argsort(-scores, kind="stable")[: facts["candidates"]]
    boxes, scores, classes = boxes[best], scores[best], classes[best]
    shown = np.clip(boxes / np.tile(share, 2), 0, 1)
    wide = np.flatnonzero((shown[:, 2:] > shown[:, :2]).all(1))
    rows = wide[choose(shown[wide], scores[wide], classes[wide].argmax(1), facts["selection"])]
    places = shown[rows] * np.tile(covered, 2)
    features = np.concatenate([mean_inside(places, cells) for cells in maps], 1)
    return shown[rows], scores[rows], features, classes[rows], np.zeros(0, np.float32)


def mean_inside(boxes: Array, cells: Array) -> Array:
    """Return the mean of a map (F, h, w) inside each box (fractions of the map): the mean of RoIAlign's cells."""
    steps = (np.arange(SAMPLES, dtype=np.float32) + 0.5) / SAMPLES
    shares = []
    for low, high, length in zip(boxes[:, :2].T, boxes[:, 2:].T, cells.shape[:0:-1], strict=True):
        points = (low[:, None] + steps * (high - low)[:, None]) * length - np.float32(0.5)
        nearness = 1 - np.abs(np.clip(points, 0, length - 1)[..., None] - np.arange(length, dtype=np.float32))
        shares.append(np.clip(nearness, 0, None).mean(1))
    rows = np.tensordot(shares[1], cells, (1, 1))
    return np.asarray((rows @ shares[0][:, :, None])[..., 0])


def grid(share: Array, facts: dict[str, Any], features: Array) -> tuple[Array, ...]:
    """Return the same as `selected`, for the cells of a grid that are inside the image. Cells have no class."""
    cells = facts["cells"]
    columns, rows = np.ceil(share * cells).astype(int)
    left, top = np.meshgrid(np.arange(columns), np.arange(rows))
    corners = np.stack([left, top, left + 1, top + 1], -1).reshape(-1, 4).astype(np.float32) / cells
    seen = features.reshape(cells, cells, -1)[:rows, :columns].reshape(rows * columns, -1)
    boxes = np.clip(corners / np.tile(share, 2), 0, 1).astype(np.float32)
    return boxes, np.ones(len(boxes), np.float32), seen, np.zeros((len(boxes), 0), np.float32), seen.mean(0)


def choose(boxes: Array, scores: Array, classes: Array, rule: dict[str, Any]) -> Array:
    """Return the indices of the candidates that become regions. `rule`: the selection rule of the feature contract."""
    order = np.argsort(-scores, kind="stable")
    offsets = classes[:, None].astype(np.float32) * (boxes.max(initial=0) + 1)  # boxes of two classes do not overlap
    kept = order if rule["overlap"] is None else suppressed(boxes + offsets * rule["per_class"], scores, order, rule)
    good = kept[scores[kept] > rule["score"]][: rule["most"]]
    if len(good) >= rule["least"]:
        return np.asarray(good)
    spare = np.array([n for n in order if n not in set(kept.tolist())], np.int64)
    return np.asarray(np.concatenate([kept, spare])[: rule["least"]])


def suppressed(boxes: Array, scores: Array, order: Array, rule: dict[str, Any]) -> Array:
    """Return the indices that non-maximum suppression keeps, best first, as many as the rule can need."""
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    kept: list[int] = []
    for n in order:
        if len(kept) >= rule["most" if scores[n] > rule["score"] else "least"]:
            break
        sides = np.minimum(boxes[kept, 2:], boxes[n, 2:]) - np.maximum(boxes[kept, :2], boxes[n, :2])
        shared = np.clip(sides, 0, None).prod(1)
        if not (shared / (areas[kept] + areas[n] - shared) > rule["overlap"]).any():
            kept.append(n)
    return np.array(kept, np.int64)


def pad(rows: Array, most: int) -> Array:
    """Append rows of zeros, up to `most` rows."""
    return np.pad(rows, [(0, most - len(rows)), *[(0, 0)] * (rows.ndim - 1)])


def main() -> None:
    try:
        model = ExportedModel(Path(__file__).parent)
        answers = "answer" in model.programs
        question = " ".join(sys.argv[2:])
        if len(sys.argv) < 2 or bool(question.strip()) != answers:
            raise SystemExit(f"this model needs: python run.py PICTURE{' QUESTION' * answers}")
        picture = open_picture(sys.argv[1])
        written = model.answers([picture], [question]) if answers else model.captions([picture])
        print(written[1][0], flush=True)
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
