"""Tags: words `[k]` in texts of VCR that refer to object k of `Record.objects`, counted from 0."""

from collections.abc import Sequence

from diptych.core.record import TAG, Object


def tags(text: str) -> list[int]:
    """Return the object indices of all tags of a text, in order, with duplicates."""
    return [int(number) for number in TAG.findall(text)]


def split_at_tags(text: str) -> list[str | int]:
    """Split a text at its tags: `is [0] red` becomes ["is ", 0, " red"]. Empty pieces are left out."""
    pieces = TAG.split(text)
    parts = [int(piece) if at % 2 else piece for at, piece in enumerate(pieces)]
    return [part for part in parts if part != ""]


def names_for_tags(text: str, objects: Sequence[Object]) -> str:
    """Replace tags by the names of their objects: `is [0] red` becomes `is dog red`.

    Tags without an object are kept.
    """
    return TAG.sub(lambda tag: objects[int(tag[1])].kind if int(tag[1]) < len(objects) else tag[0], text)
