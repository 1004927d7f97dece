"""Data as a user names it: one path, and what lies there decides how it is read.

`FORMATS` is all that is known: an entry each, with a name, which a manifest uses, how a file of it is recognised, and
how it is read. A new format is a reader and an entry here (docs/add-a-source.md).
"""

import os
from pathlib import Path

from diptych.core import Record
from diptych.data.formats import (
    coco,
    conceptual,
    flickr8k,
    flickr30k,
    gqa,
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
from diptych.data.formats.format import Format, Source, Wanted, drawn_split, not_known, one_of
from diptych.data.formats.parsing import Pictures, Skips, uncollected
from diptych.runtime.errors import DataError
from diptych.vision.pictures import ENDINGS, find_pictures

__all__ = ["FORMATS", "drawn_split", "forms", "read"]

MINED = "mine.json"
PICKLES = (".p", ".pkl", ".pickle")


def _mined(wanted: Wanted, folder: Source) -> list[Record]:
    """Pictures stand in the folder itself."""
    files = sorted((folder.path / "records").glob("*.jsonl"))
    if not files:
        raise DataError(f"no records in {folder.path} yet; give its `diptych mine run` again, and see its report.html")
    pictures = folder.path if wanted.pictures is not None else None
    return [record for lines in files for record in jsonl.read(lines, pictures, "train", wanted.skips)]


def _pictures(_: Wanted, folder: Source) -> list[Record]:
    found = find_pictures(folder.path)
    if not found:
        raise DataError(f"no pictures in {folder.path}; wanted {forms()}")
    # A key is text, and a name need not be: what is no UTF-8 in it stands escaped.
    names = (os.fsencode(picture.relative_to(folder.path)).decode("utf-8", "backslashreplace") for picture in found)
    return [Record(name, image=picture) for name, picture in zip(names, found, strict=True)]


def _entities(wanted: Wanted, sentences: Source, names: Source, boxes: Source | None = None) -> list[Record]:
    """The list of names is called as the split is, where none is told."""
    split = wanted.split or names.path.stem
    return flickr30k.read(sentences.path, names.path, wanted.pictures, split, None if boxes is None else boxes.path)


def _flickr8k(wanted: Wanted, table: Source) -> list[Record]:
    """Lists beside the table say the splits."""
    records = flickr8k.read(table.path, wanted.pictures, wanted.skips)
    return records if all(record.split for record in records) else wanted.splitting(records)


FORMATS: dict[str, Format] = {
    "mined": Format("a folder that `diptych mine run` made", lambda source: (source.path / MINED).is_file(), _mined),
    "storybook": Format(
        "a folder that `diptych storybook write` made",
        lambda source: (source.path / storybook.MANIFEST).is_file(),
        lambda _, folder: storybook.read_all(folder.path),
    ),
    "karpathy": Format(
        "Karpathy's dataset_NAME.json",
        lambda source: source.has("images") and source.first_has("sentences", "images"),
        lambda wanted, file: karpathy.read(file.json, wanted.pictures, wanted.skips),
    ),
    "instances": Format(
        "a COCO instances .json",
        lambda source: source.has("images", "annotations", "categories"),
        lambda wanted, file: coco.read(instances=file.json, pictures=wanted.pictures, split=wanted.split_of),
    ),
    "captions": Format(
        "a COCO captions .json",
        lambda source: source.has("images", "annotations"),
        lambda wanted, file: coco.read(file.json, None, wanted.pictures, wanted.split_of, wanted.skips),
    ),
    "vqa": Format(
        "VQA v2's questions .json",
        lambda source: source.has("questions", "data_subtype"),
        lambda wanted, questions, answers=None: wanted.splitting(
            vqa2.read(questions.json, answers and answers.json, wanted.pictures)
        ),
        files=("questions", "annotations"),
    ),
    "gqa": Format(
        "GQA's questions .json",
        lambda source: source.values_have("imageId", "question"),
        lambda wanted, questions: wanted.splitting(gqa.read(questions.json, wanted.pictures)),
    ),
    "visual-genome": Format(
        "Visual Genome's region_descriptions.json",
        lambda source: source.first_has("regions"),
        lambda wanted, regions: wanted.splitting(
            visual_genome.read_regions(regions.json, wanted.pictures, skips=wanted.skips)
        ),
    ),
    "visual-genome-qa": Format(
        "its question_answers.json",
        lambda source: source.first_has("qas"),
        lambda wanted, questions: wanted.splitting(visual_genome.read_questions(questions.json, wanted.pictures)),
    ),
    "refcoco": Format(
        "RefCOCO's refs, a .p or .json",
        lambda source: (
            source.path.suffix.lower() in PICKLES or source.has("images", "refs") or source.first_has("ref_id")
        ),
        lambda wanted, refs, instances=None: refcoco.read(
            refs.path, wanted.pictures, wanted.split_of, instances and instances.json
        ),
        files=("refs", "instances"),
    ),
    "vcr": Format(
        "VCR's .jsonl",
        lambda source: source.has("annot_id", "img_fn", ending=".jsonl"),
        lambda wanted, lines, metadata=None: wanted.splitting(
            vcr.read(lines.path, wanted.pictures, metadata and metadata.path)
        ),
        files=("lines", "folder of the metadata"),
    ),
    "nlvr": Format(
        "statements with NLVR2's names of one picture each, a .jsonl",
        lambda source: source.has("identifier", "sentence", "image", ending=".jsonl"),
        lambda wanted, lines: wanted.splitting(nlvr.read(lines.path, wanted.pictures)),
    ),
    "nlvr2": Format(
        "NLVR2's lines about pairs of pictures",
        lambda source: source.has("identifier", "sentence", "label", ending=".jsonl"),
        lambda wanted, lines: wanted.splitting(nlvr.read_pairs(lines.path, wanted.pictures)),
    ),
    "snli-ve": Format(
        "SNLI-VE's .jsonl",
        lambda source: source.has("Flickr30K_ID", "gold_label", "sentence2", ending=".jsonl"),
        lambda wanted, lines: wanted.splitting(snli_ve.read(lines.path, wanted.pictures, skips=wanted.skips)),
    ),
    "vl-bert": Format(
        "VL-BERT's lines of Conceptual Captions",
        lambda source: source.has("image", "caption", "frcnn", ending=".jsonl"),
        lambda wanted, lines: wanted.splitting(conceptual.read_lines(lines.path, wanted.pictures)),
    ),
    "lines": Format(
        "a .jsonl of your own",
        lambda source: source.path.suffix.lower() == ".jsonl",
        lambda wanted, lines: jsonl.read(lines.path, wanted.pictures, wanted.split_of, wanted.skips),
    ),
    "flickr8k": Format(
        "Flickr8k's captions, a .token or Kaggle's captions.txt",
        lambda source: flickr8k.is_table(source.path),
        _flickr8k,
    ),
    "flickr30k": Format(
        "Flickr30k Entities' folder of sentences, with a list of names",
        lambda source: source.endings >= {".txt"} and not source.endings & set(ENDINGS),
        _entities,
        files=("folder of the sentences", "names", "folder of the boxes"),
        least=2,
    ),
    "conceptual": Format(
        "a Conceptual Captions .tsv",
        lambda source: source.path.suffix.lower() == ".tsv",
        lambda wanted, table: wanted.splitting(conceptual.read(table.path, wanted.pictures, table.path.stem)),
    ),
    "web": Format(
        "a folder of tars or folders that img2dataset made",
        lambda source: web.fits(source.path),
        lambda wanted, folder: wanted.splitting(web.read(folder.path, skips=wanted.skips)),
    ),
    "pictures": Format("a folder of pictures", lambda source: source.path.is_dir(), _pictures),
}
_OWN = frozenset(FORMATS)


def known() -> dict[str, Format]:
    """All formats in the order in which they are tried: first those that packages added, which are more particular."""
    return {name: one for name, one in FORMATS.items() if name not in _OWN} | FORMATS


def forms() -> str:
    return f"{manifest.WHAT}, {', '.join(one.what for one in FORMATS.values())}"


@uncollected()
def read(
    path: Path,
    pictures: Path | None = None,
    *,
    split: str | None = None,
    seed: int = 0,
    need_pictures: bool = True,
    skips: Skips | None = None,
) -> list[Record]:
    """All records there.

    `pictures` is where their names start from, by default beside the file; they must be there, unless `need_pictures`
    is False and no folder is given: then a record has a picture where there is one. Records whose data name no split
    get `split`, or one that the seed draws. What teaches nothing is counted in `skips`, and so are pictures that a
    manifest's files name and that are not there.
    """
    if not path.exists():
        raise DataError(f"nothing at {path}; wanted {forms()}")
    if not path.is_file() and not path.is_dir():
        raise DataError(f"{path} is a pipe or a device, and data are read more than once; write them to a file first")
    source, skips = Source(path), Skips() if skips is None else skips
    if manifest.fits(source, FORMATS):
        return manifest.read(source, known(), Wanted(pictures, split, seed, skips), need_pictures)
    found = one_of(known(), source)
    if found is None:
        raise not_known(source, forms())
    name, form = found
    if form.least > 1:
        missing = ", ".join(form.files[1 : form.least])
        raise DataError(f"{path}: found {form.what}, wanted its {missing} too; {manifest.example(name, form)}")
    folder = pictures or (path.parent if need_pictures else Pictures((path.parent,), wanted=False))
    return form.read(Wanted(folder, split, seed, skips), source)
