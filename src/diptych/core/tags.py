"""Words that name a thing: `[k]` in the texts of `Choices`, k counting from 0 in `Record.things`."""

from collections.abc import Sequence

from diptych.core.record import TAG, Thing


def tags(text: str) -> list[int]:
    """The things that a text names, as often as it does."""
    return [int(number) for number in TAG.findall(text)]


def split_at_tags(text: str) -> list[str | int]:
    """`is [0] red` becomes ["is ", 0, " red"]; empty pieces are left out."""
    pieces = TAG.split(text)
    found = [int(piece) if at % 2 else piece for at, piece in enumerate(pieces)]
    return [piece for piece in found if piece != ""]


def told_by_name(text: str, things: Sequence[Thing]) -> str:
    """`is [0] red` becomes `is dog red`; a tag of nothing stays as it is."""
    pieces = split_at_tags(text)
    names = (things[p].kind if isinstance(p, int) and p < len(things) else f"[{p}]" for p in pieces)
    return "".join(piece if isinstance(piece, str) else name for piece, name in zip(pieces, names, strict=True))
