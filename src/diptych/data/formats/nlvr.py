"""Read true or false statements about images: NLVR2, or the same format for single images."""

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Record, Statement
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import read_items
from diptych.data.formats.values import Flag, JsonValue, Text, is_true
from diptych.vision.archives import BESIDE


class _Claim(Struct):
    identifier: Text
    sentence: Text
    label: Flag

    def statement(self) -> Statement:
        return Statement(self.identifier, self.sentence, is_true(self.label))


class _SingleClaim(_Claim):
    image: Text


class _PairClaim(_Claim):
    directory: int | UnsetType = UNSET


def read(wanted: Wanted, lines: Source) -> list[Record]:
    """Read NLVR2-like lines {"identifier", "sentence", "label", "image"} about single images: one record per image."""
    by_image = ByImage[Statement]()

    def take(line: _SingleClaim, value: JsonValue) -> None:
        by_image.add(wanted.name_of(line.image, value.where()), line.statement(), value.where())

    read_items(lines.path, wanted.skips, _SingleClaim, "identifier", "identifier", take)
    return by_image.records(wanted, lambda name, items, where: wanted.record(name, where, statements=items))


def read_pairs(wanted: Wanted, lines: Source) -> list[Record]:
    """Read NLVR2: one record per pair of images.

    The two images are joined side by side, because statements refer to left and right. The statement `dev-850-0-1` is
    about `dev-850-0-img0.png` and `dev-850-0-img1.png`. Images of the split `train` are in a subfolder, which the
    line's `directory` names.
    """
    by_pair, images = ByImage[Statement](), dict[str, str]()

    def take(line: _PairClaim, value: JsonValue) -> None:
        stem = line.identifier.rpartition("-")[0]
        if not stem:
            value.refuse(f"`{line.identifier}`", "one such as dev-850-0-1", "identifier")
        folder = "" if line.directory is UNSET else f"{line.directory}/"
        images.setdefault(stem, f"{folder}{stem}-img0.png{BESIDE}{stem}-img1.png")
        by_pair.add(stem, line.statement(), value.where())

    read_items(lines.path, wanted.skips, _PairClaim, "identifier", "identifier", take)
    return by_pair.records(
        wanted, lambda stem, items, where: wanted.record(images[stem], where, key=stem, statements=items)
    )
