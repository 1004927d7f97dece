"""Public data sets as they are downloaded: their files and home pages, and a manifest for the files in a folder.

`public.json` lists the sets. Paths are relative to the folder of the set. A file may have several names; the first that
exists is used. Sizes and counts are quoted from the home pages.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from diptych.runtime.errors import DataError, RecipeError, nearest
from diptych.runtime.files import bytes_of, parse_json, text_of, write_atomically

SETS, IMAGES, SPLIT, ABOUT = "sets", "images", "split", "about"  # keys in the JSON of a manifest
_OF_ONE_SET = re.compile(r"[-_]|\d\w")  # matches names that only one data set has, such as flickr30k-images


class Piece(Struct, frozen=True):
    """A file or folder of a public data set."""

    names: tuple[str, ...]  # the names that the file or folder may have
    what: str  # its content, size and origin, for the user

    @property
    def line(self) -> str:
        """A description in one line: the name, alternative names and the content."""
        others = f" (or {', '.join(self.names[1:])})" if len(self.names) > 1 else ""
        return f"{self.names[0]}{others}: {self.what}"


class SetPart(Struct, frozen=True):
    """One entry of the manifest: a format, its files, the folders of images, and the split if the files do not name
    it."""

    form: str
    files: tuple[Piece, ...]
    images: tuple[Piece, ...] = ()
    split: str | None = None
    least: int | None = None  # the first `least` files are required; None: all


class PublicSet(Struct, frozen=True):
    """A public data set: its title, home page, and the entries of its manifest."""

    title: str
    home: str
    parts: tuple[SetPart, ...]

    def pieces(self) -> list[Piece]:
        return list(dict.fromkeys(piece for part in self.parts for piece in (*part.files, *part.images)))


SETS_KNOWN = msgspec.json.decode(text_of(Path(__file__).with_name("public.json")), type=dict[str, PublicSet])


@dataclass(frozen=True)
class PublicLayout:
    """The files and folders of a public set that exist below `root`."""

    name: str
    root: Path
    there: dict[Piece, Path]

    @classmethod
    def of(cls, name: str, root: Path) -> PublicLayout:
        pieces = known(name).pieces()
        if not root.is_dir():
            raise DataError(f"no folder {root}; pass the folder with the files that `diptych data {name}` lists")
        folders = _Folders(name, root)
        return cls(name, root, {p: path for p in pieces if (path := folders.path_of(p)) is not None})

    @property
    def missing(self) -> list[Piece]:
        return [piece for piece in known(self.name).pieces() if piece not in self.there]

    def manifest(self, out: Path) -> dict[str, Any]:
        """Return a manifest of the parts whose required files exist.

        Paths inside the folder of `out` are written relative to this folder.
        """
        chosen = known(self.name)
        sets = [self._set(part, out) for part in chosen.parts if set(part.files[: part.least]) <= self.there.keys()]
        if not sets:
            missing = "; ".join(f"{' or '.join(piece.names)}: {piece.what}" for piece in self.missing)
            raise DataError(f"no files of {self.name} in {self.root}; put at least one part there: {missing}")
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


def list_sets() -> str:
    """List the known sets, one per line."""
    return "\n".join(f"{name:20}{one.title}" for name, one in SETS_KNOWN.items())


def list_files(name: str) -> str:
    """List the files of a set, where to put them, and the command to run next."""
    chosen = known(name)
    lines = [chosen.title, f"from {chosen.home}, all into one folder ROOT:"]
    lines += [f"  ROOT/{piece.line}" for piece in chosen.pieces()]
    return "\n".join([*lines, f"then: diptych data {name} ROOT --out {name}.json"])


def describe_folder(name: str, root: Path) -> str:
    """List the files of a set that exist below `root`, and those that are missing."""
    layout = PublicLayout.of(name, root)
    lines = [f"there    {path}" for path in layout.there.values()]
    lines += [f"missing  {root / piece.line}" for piece in layout.missing]
    return "\n".join([*lines, f"to write a manifest of these files: --out {name}.json"])


class _Folders:
    """The folders in which the pieces of a set are searched: `root`, and its subfolders.

    The home of the set is the folder with its files. A plain name, such as `images` or `train.jsonl`, may be a file of
    any set, so it counts only in the home and in `root`. A name such as `train2014` counts in all folders.
    """

    def __init__(self, name: str, root: Path) -> None:
        self._name, self._root = name, root
        self._folders = [root, *(folder for folder in sorted(root.iterdir()) if folder.is_dir())]
        self._files = {piece for part in known(name).parts for piece in part.files}
        self._home = max(self._folders, key=self._rank)

    def path_of(self, piece: Piece) -> Path | None:
        """Return the path of a piece. The names of the piece are tried in order, each in the home first."""
        order = dict.fromkeys((self._home, *self._folders))
        paths = (folder / name for name in piece.names for folder in order if self._counts(piece, name, folder))
        return next((path for path in paths if path.exists()), None)

    def _rank(self, folder: Path) -> tuple[int, int, int]:
        pieces = [p for p in known(self._name).pieces() if any(self._has(p, name, folder) for name in p.names)]
        files = sum(piece in self._files for piece in pieces)
        named = 2 * self._is_own(folder) or int(_name_of(folder).startswith(self._name))
        return (named if files else 0), files, len(pieces)

    def _is_own(self, folder: Path) -> bool:
        return folder == self._root or _name_of(folder) == self._name

    def _has(self, piece: Piece, name: str, folder: Path) -> bool:
        return name != "." and self._is_allowed(piece, name, folder) and (folder / name).exists()

    def _is_allowed(self, piece: Piece, name: str, folder: Path) -> bool:
        """Return False for a file of another set, which has the same name and is in the folder of that set."""
        if f"{self._name}/{name}" in piece.names and not self._is_own(folder):
            return False
        other = SETS_KNOWN.get(_name_of(folder))
        if other is None or _name_of(folder) == self._name or _OF_ONE_SET.search(name):
            return True
        files = {one for part in other.parts for one in part.files}
        same = [one for one in other.pieces() if name in one.names]
        return not any(one in files or (one != piece and folder != self._root) for one in same)

    def _counts(self, piece: Piece, name: str, folder: Path) -> bool:
        if name == ".":
            return folder == (self._home if self._is_own(self._home) else self._root)
        near = folder in (self._home, self._root) or _OF_ONE_SET.search(name) is not None
        return near and self._is_allowed(piece, name, folder)


def _name_of(folder: Path) -> str:
    return os.path.basename(os.path.abspath(folder)).lower()


def _named(path: Path, out: Path) -> str:
    """Return `path` relative to the folder of the manifest `out` if this folder contains it, else the absolute path."""
    path, folder = Path(os.path.abspath(path)), Path(os.path.abspath(out)).parent
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def write_manifest(manifest: dict[str, Any], out: Path) -> None:
    """Write a manifest, and replace an earlier one. Raises DataError if `out` is any other file."""
    if out.exists():
        try:
            is_ours = ABOUT in parse_json(bytes_of(out))
        except (OSError, ValueError, TypeError):
            is_ours = False
        if not is_ours:
            raise DataError(f"{out} exists and is not a manifest that `diptych data` wrote; pass another --out")
    write_atomically(out, (json.dumps(manifest, indent=1) + "\n").encode())
