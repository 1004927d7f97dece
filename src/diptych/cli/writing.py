"""The options by which captions are written, for each verb that writes some."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from diptych.models.decoding import DecodingOptions

WRITING = "writing"  # the parameter in whose place the options stand

Beams = Annotated[
    int | None, typer.Option(min=1, help="Beams of the search, 1 being greedy; default: the model's recipe.")
]
LengthBonus = Annotated[
    float | None,
    typer.Option(help="Number added to a beam's log-probability for each word; default: the model's recipe."),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        help="Exponent of the words by which a beam's log-probability is divided; default: the model's recipe."
    ),
]
Sample = Annotated[bool, typer.Option("--sample", help="Draw words at random instead of searching for the likeliest.")]
Temperature = Annotated[
    float | None,
    typer.Option(help="Temperature of drawn words; below 1 likely words become likelier; default: the model's recipe."),
]
TopK = Annotated[
    int | None, typer.Option(help="Draw each word from this many likeliest ones; default: the model's recipe.")
]
TopP = Annotated[
    float | None,
    typer.Option(
        help="Draw each word from the fewest that have this probability together; default: the model's recipe."
    ),
]
DrawSeed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the words that are drawn.")]
MinWords = Annotated[int | None, typer.Option(help="Words of a caption at least; default: the model's recipe.")]
MaxWords = Annotated[
    int | None, typer.Option(help="Words of a caption at most, its end counted as one; default: the model's recipe.")
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Forbid that N words in a row come twice in a caption; default: the model's recipe."
    ),
]


@dataclass(frozen=True)
class Writing:
    """How captions are written; what is left out is the recipe's. docs/your-own-data.md shows it at work."""

    beams: Beams = None
    length_bonus: LengthBonus = None
    length_penalty: LengthPenalty = None
    sample: Sample = False
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    seed: DrawSeed = 0
    min_words: MinWords = None
    max_words: MaxWords = None
    no_repeat_ngram: NoRepeatNgram = None

    @property
    def is_asked(self) -> bool:
        """Whether anything but the recipe's way was asked for."""
        return self.sample or bool(self.given)

    @property
    def given(self) -> dict[str, Any]:
        """What was given of the search, by name."""
        values = {name: value for name, value in vars(self).items() if name not in ("sample", "seed")}
        return {name: value for name, value in values.items() if value is not None}

    def options(self, usual: DecodingOptions, captions: int = 1) -> DecodingOptions:
        """The recipe's with what was asked for in its place; the seed of drawn words is set."""
        import torch

        from diptych.systems.decoding import chosen_decoding

        torch.manual_seed(self.seed)
        return chosen_decoding(usual, captions, self.sample, **self.given)


def with_writing(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of `Writing` in the place of its parameter `writing`."""
    hints = get_type_hints(Writing, include_extras=True)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(Writing)
    ]
    own = inspect.signature(command, eval_str=True)
    names = list(own.parameters)
    place = names.index(WRITING)
    kept = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, p in own.parameters.items() if name != WRITING]

    def verb(**given: Any) -> None:
        writing = Writing(**{option.name: given.pop(option.name) for option in options})
        command(**given, writing=writing)

    verb.__name__, verb.__doc__ = command.__name__, command.__doc__
    verb.__signature__ = own.replace(parameters=kept[:place] + options + kept[place:])  # type: ignore[attr-defined]
    return verb
