"""The task of items with one label each, under this name in `Record.more`."""

import unicodedata
from collections.abc import Iterable

CLASSIFY = "classify"


def alike(labels: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of different labels that are equal but for case or the Unicode form of accents, in order."""
    groups: dict[str, set[str]] = {}
    for label in labels:
        groups.setdefault(unicodedata.normalize("NFC", label).casefold(), set()).add(label)
    return [tuple(sorted(group)) for _, group in sorted(groups.items()) if len(group) > 1]
