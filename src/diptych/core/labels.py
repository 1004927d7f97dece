"""The key in `Record.more` of the built-in classification task's items, and a check of its labels."""

import unicodedata
from collections.abc import Iterable

CLASSIFY = "classify"


def alike(labels: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of labels that differ only in case, Unicode form or full stops, such as ("Cat", "cat.")."""
    groups: dict[str, set[str]] = {}
    for label in labels:
        plain = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
        groups.setdefault(plain.strip(" .") or plain, set()).add(label)
    return [tuple(sorted(group)) for _, group in sorted(groups.items()) if len(group) > 1]
