"""Read data in any known format, with the first entry of `FORMATS` that fits.

An entry has a name (used in manifests), a description, a test that recognises the files, and a reader. To add a format,
write a reader and add an entry here (docs/add-a-source.md).
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from diptych.core import Record
from diptych.data.formats import (
    coco,
    conceptual,
    flickr8k,
    flickr30k,
    hateful_memes,
    image_folder,
    jsonl,
    karpathy,
    manifest,
    nlvr,
    refcoco,
    snli_ve,
    storybook,
    vcr,
    visual_genome,
    vqa2,
    web,
)
from diptych.data.formats.format import LIST_THEM, Format, Source, Wanted, not_known, note_unread, one_of
from diptych.data.formats.parsing import Pictures, Skips, uncollected
from diptych.data.formats.splits import drawn_split, with_usual_splits
from diptych.data.store.mirror import turn_of, upright
from diptych.runtime.errors import DataError
from diptych.runtime.plugins import note_use, unknown_name
from diptych.vision.image_files import find_pictures
from diptych.vision.upright import ENDINGS

__all__ = ["FORMATS", "drawn_split", "list_formats", "read"]

MINED = "mine.json"
LINES = (".jsonl",)


def _mined(wanted: Wanted, folder: Source) -> list[Record]:
    """Read all records of a folder that `diptych mine` wrote. The images are in the same folder."""
    files = sorted((folder.path / "records").glob("*.jsonl"))
    if not files:
        raise DataError(f"no records in {folder.path}; see its report.html, and repeat `diptych mine run`")
    wanted = replace(wanted, pictures=folder.path if wanted.pictures is not None else None, split="train")
    parts = wanted.skips.every(files, lambda lines: jsonl.read(wanted, Source(lines)), "part")
    return [record for part in parts for record in part]


def _pictures(wanted: Wanted, folder: Source) -> list[Record]:
    images = find_pictures(folder.path)
    note_unread(wanted.skips, folder.path, set(images), "images (not read)")
    if not images:
        tars = ", ".join(sorted({tar.parent.name for tar in folder.path.glob(f"*/{web.TARS}")}))
        tip = f"pass a folder of tars ({tars}), or a manifest" if tars else "expected some, or a file of a known format"
        raise DataError(f"no images in {folder.path}; {tip}; {LIST_THEM}")
    # Bytes of a file name that are not UTF-8 are escaped, because a key must be text.
    names = (os.fsencode(image.relative_to(folder.path)).decode("utf-8", "backslashreplace") for image in images)
    return [Record(name, image=image) for name, image in zip(names, images, strict=True)]


def _is_refcoco(source: Source) -> bool:
    pickled = source.path.suffix.lower() in refcoco.PICKLES
    return pickled or source.has("images", "refs") or source.first_has("ref_id")


def _is_instances(source: Source) -> bool:
    """Return True for a COCO file of instances.

    `categories` are no sign of instances, because a file of captions may have them too.
    """
    boxed, worded = (source.first_has(name, "annotations") for name in ("bbox", "caption"))
    named = source.has("images", "annotations", "categories")
    return source.has("images", "annotations") and (boxed or (named and not worded))


def _lines(what: str, read: Callable[..., list[Record]], *names: str, files: tuple[str, ...] = ("file",)) -> Format:
    """Return a format for JSON lines. A file has this format if its first line is an object with these keys."""
    return Format(what, lambda s: s.has(*names, ending=".jsonl"), read, files, endings=LINES, names=names)


FORMATS: dict[str, Format] = {
    "mined": Format("a folder that `diptych mine run` made", lambda s: (s.path / MINED).is_file(), _mined),
    "storybook": Format("a folder that `diptych storybook write` made",
                        lambda s: (s.path / storybook.MANIFEST).is_file(),
                        lambda wanted, folder: storybook.read_all(folder.path, wanted.skips)),
    "karpathy": Format("Karpathy's dataset_NAME.json", lambda s: s.first_has("sentences", "images"), karpathy.read,
                       names=("images", "sentences", "filename")),
    "instances": Format("a COCO instances .json", _is_instances, coco.read_instances,
                        names=("images", "annotations", "categories", "bbox")),
    "captions": Format("a COCO captions .json", lambda s: s.has("images", "annotations"), coco.read_captions,
                       names=("images", "annotations", "caption")),
    "vqa": Format("VQA v2's questions .json", lambda s: s.has("questions", "data_subtype"), vqa2.read,
                  ("questions", "annotations"), names=("questions", "data_subtype", "question_id", "question")),
    "gqa": Format("GQA's questions .json", lambda s: s.first_has("imageId"), vqa2.read_list,
                  names=("imageId", "question")),
    "question-list": Format("VizWiz-VQA's or A-OKVQA's list of questions, a .json",
                            lambda s: s.first_has("question") and not s.first_has("answer"), vqa2.read_list,
                            names=("image", "question", "answers")),
    "visual-genome": Format("Visual Genome's region_descriptions.json", lambda s: s.first_has("regions"),
                            visual_genome.read_regions, names=("regions", "id")),
    "visual-genome-qa": Format("its question_answers.json", lambda s: s.first_has("qas"), visual_genome.read_questions,
                               names=("qas", "id")),
    "refcoco": Format("RefCOCO's refs, a .p or .json", _is_refcoco, refcoco.read, ("refs", "instances"),
                      endings=(".json", *refcoco.PICKLES), names=("ref_id", "image_id", "sentences")),
    "vcr": _lines("VCR's .jsonl", vcr.read, "annot_id", "img_fn", files=("lines", "folder of the metadata")),
    "nlvr": _lines("statements about single images in NLVR2's form, a .jsonl", nlvr.read,
                   "identifier", "sentence", "image"),
    "nlvr2": _lines("NLVR2's .jsonl about pairs of images", nlvr.read_pairs, "identifier", "sentence", "label"),
    "snli-ve": _lines("SNLI-VE's .jsonl", snli_ve.read, "Flickr30K_ID", "gold_label", "sentence2"),
    "hateful-memes": _lines("Hateful Memes' .jsonl", hateful_memes.read, "id", "img", "text"),
    "vl-bert": _lines("VL-BERT's lines of Conceptual Captions", conceptual.read_lines, "image", "caption", "frcnn"),
    "image-folder": Format(f"the hub's {' or '.join(image_folder.NAMES)} of a folder of images, or that folder",
                           image_folder.fits, image_folder.read, endings=(*LINES, ".csv"), names=("file_name", "text")),
    "lines": Format("a .jsonl of your own", lambda s: s.path.suffix.lower() == ".jsonl", jsonl.read, endings=LINES,
                    names=("image", "captions")),
    "flickr8k": Format("Flickr8k's captions, a .token or Kaggle's captions.txt", flickr8k.is_table,
                       flickr8k.read, endings=(".token", ".txt", ".csv", ".tsv"), names=("image", "caption")),
    "flickr30k": Format("Flickr30k Entities' folder of sentences, with a list of names",
                        lambda s: s.endings >= {".txt"} and not s.endings & set(ENDINGS), flickr30k.read,
                        ("folder of the sentences", "names", "folder of the boxes"), least=2),
    "conceptual": Format("a Conceptual Captions .tsv", conceptual.fits, conceptual.read, endings=(".tsv",)),
    "web": Format("a tar of img2dataset, or a folder of its tars or folders", lambda s: web.fits(s.path), web.read),
    "pictures": Format("a folder of images", lambda s: s.path.is_dir(), _pictures),
}  # fmt: skip
_OWN = frozenset(FORMATS)


def known() -> dict[str, Format]:
    """Return all formats in the order in which they are tried.

    Formats of plugins come first, because they are more specific.
    """
    return {name: one for name, one in FORMATS.items() if name not in _OWN} | FORMATS


def list_formats() -> str:
    """List all formats, one per line."""
    lines = [f"{'manifest':20}{manifest.WHAT}", *(f"{name:20}{one.what}" for name, one in known().items())]
    return "\n".join(lines)


@uncollected()
def read(
    path: Path, pictures: Path | None = None, *, split: str | None = None, seed: int = 0, need_pictures: bool = True,
    skips: Skips | None = None, stored: bool = False,
) -> list[Record]:  # fmt: skip
    """Read all records of a file or folder. Raises DataError for a path that no format fits, and for faulty files.

    - pictures: the folder of the images, by default the folder of the file. Images must exist, unless `need_pictures`
      is False and no folder is given; then records may lack an image.
    - split: the split of records whose files do not name a split. By default it is random for each image, by `seed`.
    - skips: counts the entries that are left out (invalid, without any text, or with a missing image in a manifest). It
      is an error if more than 10 entries and more than 1% of all are invalid.
    - stored: boxes, outlines and sizes are of the stored pixels; they are converted to the upright image.
    """
    if not path.exists():
        raise DataError(f"nothing at {path}; expected a file or folder of a known format; {LIST_THEM}")
    if not path.is_file() and not path.is_dir():
        raise DataError(f"{path} is a pipe or a device, but data is read more than once; write it to a file first")
    skips = Skips() if skips is None else skips
    records = _read(Source(path), Wanted(pictures, split, seed, skips, stored_boxes=stored), need_pictures)
    records = [_upright(record, skips) for record in records] if stored else records
    skips.check()
    return with_usual_splits(records, skips)


def _upright(record: Record, skips: Skips) -> Record:
    """Convert boxes of stored pixels. Images that are turned or mirrored are counted, as are boxes without an image."""
    if (turn := turn_of(record)) > 1 or (record.image is None and record.marked("box")):
        what = "of stored pixels (turned or mirrored)" if turn > 1 else "but without a file (boxes not turned)"
        skips.add(f"images with boxes {what}", record.key)
    return upright(record, turn)


def _read(source: Source, wanted: Wanted, need_pictures: bool) -> list[Record]:
    path = source.path
    if manifest.fits(source, FORMATS):
        return manifest.read(source, known(), wanted, need_pictures)
    match = one_of(known(), source)
    if match is None:
        raise unknown_name(str(not_known(source, known())), DataError)
    name, form = match
    note_use({"formats": [name]})
    if form.least > 1:
        missing = ", ".join(form.files[1 : form.least])
        raise DataError(f"{path}: {form.what}: {missing} is missing; {manifest.example(name, form)}")
    folder = wanted.pictures or (path.parent if need_pictures else Pictures((path.parent,), wanted=False))
    return form.records(replace(wanted, pictures=folder), source)
