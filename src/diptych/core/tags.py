"""Words that name a thing: `[k]` in the texts of `Choices`, k counting from 0 in `Record.objects`."""

from collections.abc import Sequence

from diptych.core.record import TAG, Object


def tags(text: str) -> list[int]:
    """The objects that a text names, as often as it does."""
    return [int(number) for number in TAG.findall(text)]


def split_at_tags(text: str) -> list[str | int]:
    """`is [0] red` becomes ["is ", 0, " red"]; empty pieces are left out."""
    pieces = TAG.split(text)
    found = [int(piece) if at % 2 else piece for at, piece in enumerate(pieces)]
    return [piece for piece in found if piece != ""]


def names_for_tags(text: str, objects: Sequence[Object]) -> str:
    """`is [0] red` becomes `is dog red`; a tag of nothing stays as it is."""
    pieces = split_at_tags(text)
    names = (objects[p].kind if isinstance(p, int) and p < len(objects) else f"[{p}]" for p in pieces)
    return "".join(piece if isinstance(piece, str) else name for piece, name in zip(pieces, names, strict=True))
