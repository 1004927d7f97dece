"""Public data sets as they are downloaded: their files, their homes, and a manifest of the files that are there.

`SETS_KNOWN` lists them. Paths start from the folder of the set; of several names the first that exists is taken. Sizes
and counts are those stated on the pages named here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.data.formats.manifest import ABOUT, IMAGES, SETS, SPLIT
from diptych.runtime.errors import DataError, RecipeError, nearest
from diptych.runtime.files import bytes_of, parse_json, write_atomically


@dataclass(frozen=True)
class Piece:
    """A file or folder of a release."""

    names: tuple[str, ...]  # alternatives
    what: str  # its content, size and origin


@dataclass(frozen=True)
class SetPart:
    """One set of the manifest: a format with the pieces that it reads, and the split of files that name none."""

    form: str
    files: tuple[Piece, ...]
    images: tuple[Piece, ...] = ()
    split: str | None = None
    least: int | None = None  # how many of the files are required; None: all

    @property
    def needed(self) -> tuple[Piece, ...]:
        return self.files[: self.least]


@dataclass(frozen=True)
class PublicSet:
    """A public data set: title, home page, and the sets of its manifest."""

    title: str
    home: str
    parts: tuple[SetPart, ...]

    def pieces(self) -> list[Piece]:
        return list(dict.fromkeys(piece for part in self.parts for piece in (*part.files, *part.images)))


COCO_HOME = "https://cocodataset.org/#download"
COCO = {
    "train": Piece(("train2014", "images/train2014"), "82,783 pictures, about 13 GB, train2014.zip"),
    "val": Piece(("val2014", "images/val2014"), "40,504 pictures, about 6 GB, val2014.zip"),
    "test": Piece(("test2015", "images/test2015"), "81,434 pictures, test2015.zip"),
}
FLICKR = Piece(("flickr30k-images", "flickr30k_images", "images"), "31,783 pictures, asked for by a form")
VG_IMAGES = (
    Piece(("VG_100K",), "a part of 108,077 pictures, images.zip"),
    Piece(("VG_100K_2",), "the others, images2.zip"),
)
WEB = "fetched by img2dataset as tars (--output_format webdataset) or folders, as many as are still there"
VQA = (
    ("train", "train2014", COCO["train"], "443,757 questions", "4,437,570 answers"),
    ("val", "val2014", COCO["val"], "214,354 questions", "2,143,540 answers"),
    ("test", "test2015", COCO["test"], "447,793 questions without answers", ""),
)


def _vqa() -> Iterator[SetPart]:
    for split, subset, images, questions_of, answers_of in VQA:
        questions = Piece((f"v2_OpenEnded_mscoco_{subset}_questions.json",), questions_of)
        answers = (Piece((f"v2_mscoco_{subset}_annotations.json",), answers_of),) if answers_of else ()
        yield SetPart("vqa", (questions, *answers), (images,), split)


def _refcoco(folder: str, splits: str) -> PublicSet:
    refs = Piece((f"{folder}/refs({splits}).p", f"refs({splits}).p"), f"the refs of {folder}.zip, split of {splits}")
    boxes = Piece((f"{folder}/instances.json", "instances.json"), "their boxes, in the same zip")
    images = Piece(("train2014", "images/train2014", "images/mscoco/images/train2014"), COCO["train"].what)
    return PublicSet(
        f"{folder}: expressions that single out a thing", "https://github.com/lichengunc/refer",
        (SetPart("refcoco", (refs, boxes), (images,)),),
    )  # fmt: skip


def _web(title: str, home: str, validation: bool) -> PublicSet:
    val = (SetPart("web", (Piece(("val", "validation"), f"validation, {WEB}"),), split="val"),) if validation else ()
    return PublicSet(title, home, (SetPart("web", (Piece(("train", "."), WEB),), split="train"), *val))


KARPATHY_HOME = f"{COCO_HOME}, https://cs.stanford.edu/people/karpathy/deepimagesent"
KARPATHY = "Karpathy's, in caption_datasets.zip"
VCR_IMAGES = Piece(("vcr1images",), "pictures, with boxes and outlines in the same folders, vcr1images.zip")


def _entities() -> Iterator[SetPart]:
    for split in ("train", "val", "test"):
        names = Piece((f"{split}.txt",), f"the names of {split}, in the repository")
        words, boxes = (Piece((name,), "in annotations.zip") for name in ("Sentences", "Annotations"))
        yield SetPart("flickr30k", (words, names, boxes), (FLICKR,), split, least=2)


def _parts(
    form: str, files: Sequence[str], what: str, images: Sequence[str], about: str, **splits: str
) -> tuple[SetPart, ...]:
    """Return a part for each split, or one that names its splits itself; `*` is the split's name in the files."""

    def piece(names: Sequence[str], what: str, own: str) -> tuple[Piece]:
        return (Piece(tuple(name.replace("*", own) for name in names), what),)

    named = splits or {"": ""}
    return tuple(SetPart(form, piece(files, what, n), piece(images, about, n), s or None) for s, n in named.items())


SETS_KNOWN: dict[str, PublicSet] = {
    "flickr8k": PublicSet(
        "Flickr8k captions: 6,000 pictures to train, 1,000 and 1,000, by its lists; drawn where there are none",
        "https://www.kaggle.com/datasets/adityajn105/flickr8k, of hockenmaier.cs.illinois.edu",
        _parts("flickr8k", ("Flickr8k.token.txt", "captions.txt"), "40,460 captions; its lists in the same folder",
               ("Flicker8k_Dataset", "Flickr8k_Dataset", "Images"), "8,091 pictures, about 1 GB")),
    "coco": PublicSet(
        "COCO captions in Karpathy's split: 113,287 pictures to train, 5,000 and 5,000", KARPATHY_HOME,
        _parts("karpathy", ("dataset_coco.json", "karpathy/dataset_coco.json"), KARPATHY,
               ("images", "."), "the folder of train2014 and val2014, about 19 GB")),
    "flickr30k": PublicSet(
        "Flickr30k captions in Karpathy's split: 29,000 pictures to train, 1,014 and 1,000", KARPATHY_HOME,
        _parts("karpathy", ("dataset_flickr30k.json", "karpathy/dataset_flickr30k.json"), KARPATHY,
               FLICKR.names, FLICKR.what)),
    "flickr30k-entities": PublicSet(
        "Flickr30k Entities: captions whose phrases have boxes", "https://github.com/BryanPlummer/flickr30k_entities",
        tuple(_entities())),
    "cc3m": _web("Conceptual Captions: 3,318,333 addresses to train, 15,840 to validate",
                 "https://ai.google.com/research/ConceptualCaptions/download", True),
    "cc12m": _web("Conceptual 12M: 12 million addresses", "https://github.com/google-research-datasets/conceptual-12m",
                  False),
    "sbu": _web("SBU captions: a million addresses", "https://www.cs.rice.edu/~vo9/sbucaptions", False),
    "vqa2": PublicSet("VQA v2: questions with ten answers each", f"https://visualqa.org/download.html, {COCO_HOME}",
                      tuple(_vqa())),
    "gqa": PublicSet(
        "GQA: questions about scenes, with an answer each", "https://cs.stanford.edu/people/dorarad/gqa/download.html",
        _parts("gqa", ("*_balanced_questions.json",), "in questions1.2.zip, 1.4 GB", ("images",), "images.zip",
               train="train", val="val", test="testdev")),
    "vcr": PublicSet(
        "VCR: questions, answers and reasons about people in films", "https://visualcommonsense.com/download",
        tuple(SetPart("vcr", (Piece((f"{split}.jsonl",), "in vcr1annots.zip"), VCR_IMAGES), (VCR_IMAGES,), split, 1)
              for split in ("train", "val", "test"))),
    "refcoco": _refcoco("refcoco", "unc"),
    "refcoco+": _refcoco("refcoco+", "unc"),
    "refcocog": _refcoco("refcocog", "umd"),
    "visual-genome": PublicSet(
        "Visual Genome: phrases of regions, as captions, and questions",
        "https://homes.cs.washington.edu/~ranjay/visualgenome",
        tuple(SetPart(form, (Piece((f"{name}.json",), f"{name}.json.zip"),), VG_IMAGES, "train")
              for form, name in (("visual-genome", "region_descriptions"), ("visual-genome-qa", "question_answers")))),
    "nlvr2": PublicSet(
        "NLVR2: statements about two pictures, which are read side by side as one", "https://github.com/lil-lab/nlvr",
        _parts("nlvr2", ("*.json",), "in nlvr2/data of the repository", ("images/*", "*"), "asked for by a form",
               train="train", val="dev", test="test1")),
    "snli-ve": PublicSet(
        "SNLI-VE: what a picture of Flickr30k entails", "https://github.com/necla-ml/SNLI-VE",
        _parts("snli-ve", ("snli_ve_*.jsonl",), "made by the repository's script", FLICKR.names, FLICKR.what,
               train="train", val="dev", test="test")),
}  # fmt: skip


@dataclass(frozen=True)
class PublicLayout:
    """The pieces of a public set that are in a folder."""

    name: str
    root: Path
    there: dict[Piece, Path]

    @classmethod
    def of(cls, name: str, root: Path) -> PublicLayout:
        if not root.is_dir():
            raise DataError(f"found no folder {root}, wanted that of {name}'s files; see them: diptych data {name}")
        return cls(name, root, {p: path for p in known(name).pieces() if (path := _path_of(p, root)) is not None})

    @property
    def missing(self) -> list[Piece]:
        return [piece for piece in known(self.name).pieces() if piece not in self.there]

    def manifest(self, out: Path) -> dict[str, Any]:
        """Return a manifest of the parts whose files are there, with paths relative to the folder of `out`."""
        chosen = known(self.name)
        sets = [self._set(part, out) for part in chosen.parts if all(piece in self.there for piece in part.needed)]
        if not sets:
            missing = "; ".join(f"{' or '.join(piece.names)}: {piece.what}" for piece in self.missing)
            raise DataError(f"found none of {self.name} in {self.root}, wanted one part of it at least: {missing}")
        return {ABOUT: f"{chosen.title}; {chosen.home}", SETS: sets}

    def _set(self, part: SetPart, out: Path) -> dict[str, Any]:
        files = [_named(self.there[piece], out) for piece in part.files if piece in self.there]
        images = [_named(self.there[piece], out) for piece in part.images if piece in self.there]
        made: dict[str, Any] = {part.form: files[0] if len(files) == 1 else files}
        if images:
            made[IMAGES] = images
        return made | ({SPLIT: part.split} if part.split is not None else {})


def known(name: str) -> PublicSet:
    if name not in SETS_KNOWN:
        raise RecipeError(f"no public set {name!r}; {nearest(name, SETS_KNOWN)}")
    return SETS_KNOWN[name]


def _path_of(piece: Piece, root: Path) -> Path | None:
    """Return the first of a piece's names in the folder of the set, or in a folder of it."""
    folders = [root, *(folder for folder in sorted(root.iterdir()) if folder.is_dir())]
    paths = (folder / name for name in piece.names for folder in (folders if name != "." else [root]))
    return next((path for path in paths if path.exists()), None)


def _named(path: Path, out: Path) -> str:
    """Return the path relative to the manifest's folder if it is inside; else the absolute path."""
    path, folder = Path(os.path.abspath(path)), Path(os.path.abspath(out)).parent
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def write_manifest(manifest: dict[str, Any], out: Path) -> None:
    """Write a manifest, also over an earlier one. Raises DataError for any other file at that path."""
    if out.exists():
        try:
            is_ours = ABOUT in parse_json(bytes_of(out))
        except (OSError, ValueError, TypeError):
            is_ours = False
        if not is_ours:
            raise DataError(f"{out} exists and is not a manifest that `diptych data` wrote; give another --out")
    write_atomically(out, (json.dumps(manifest, indent=1) + "\n").encode())
