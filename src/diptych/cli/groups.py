"""Groups of options that several verbs share, and the decorator `grouped` that expands a group into options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

from typer import Option
from typer.models import OptionInfo

from diptych.cli.app import LARGEST_SEED, Device, Precise, Revision

if TYPE_CHECKING:
    from diptych.models.decoding import DecodingOptions

DECODING = "Decoding"  # the panel of its options in help
Beams = Annotated[int | None, Option(min=1, help="Beams of the search, 1 being greedy; default: the recipe's.")]
LengthBonus = Annotated[
    float | None, Option(help="Number added to a beam's log-probability for each word; default: the recipe's.")
]
LengthPenalty = Annotated[
    float | None, Option(help="Power of the length that divides a beam's log-probability; default: the recipe's.")
]
Temperature = Annotated[
    float | None,
    Option(
        help="Sample words at random at this temperature: 1 as the model weighs them, below 1 the likely more often."
    ),
]
TopK = Annotated[int | None, Option(help="Sample each word at random from this many likeliest ones.")]
TopP = Annotated[float | None, Option(help="Sample each word at random from the likeliest of this total share.")]
DrawSeed = Annotated[int, Option("--seed", min=0, max=LARGEST_SEED, help="Seed of the sampled words.")]
MinWords = Annotated[int | None, Option(help="Fewest words of a caption; default: the recipe's.")]
MaxWords = Annotated[int | None, Option(help="Most words of a caption, its end counted as one; default: the recipe's.")]
NoRepeatNgram = Annotated[
    int | None, Option(min=1, metavar="N", help="Never repeat N words in a row in a caption; default: the recipe's.")
]


@dataclass(frozen=True)
class WritingOptions:
    """Options of decoding captions; the recipe sets what is not given. docs/your-own-data.md has examples."""

    panel: ClassVar[str] = DECODING
    beams: Beams = None
    length_bonus: LengthBonus = None
    length_penalty: LengthPenalty = None
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    seed: DrawSeed = 0
    min_words: MinWords = None
    max_words: MaxWords = None
    no_repeat_ngram: NoRepeatNgram = None

    @property
    def is_given(self) -> bool:
        """True if any option was given, so that decoding differs from the recipe."""
        return bool(self.given)

    @property
    def given(self) -> dict[str, Any]:
        """The decoding options that were given, by name."""
        values = {name: value for name, value in vars(self).items() if name != "seed"}
        return {name: value for name, value in values.items() if value is not None}

    def options(self, usual: DecodingOptions, captions: int = 1) -> DecodingOptions:
        """Return `usual` (the recipe's options) with the given ones replaced, and set the seed of sampling."""
        import torch

        from diptych.models.decoding.chosen import chosen_decoding

        torch.manual_seed(self.seed)
        return chosen_decoding(usual, captions, **self.given)


@dataclass(frozen=True)
class ComputingOptions:
    """How a model is opened."""

    panel: ClassVar[str] = "Model"
    device: Device = "auto"
    precision: Precise = "auto"
    revision: Revision = None


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of `command` that is a dataclass by one option per field, in the same position."""
    own = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {name: p.annotation for name, p in own.parameters.items() if is_dataclass(p.annotation)}
    for kind in groups.values():
        for option in inspect.signature(kind, eval_str=True).parameters.values():
            (info,) = (one for one in (option.default, *get_args(option.annotation)) if isinstance(one, OptionInfo))
            info.rich_help_panel = getattr(kind, "panel", info.rich_help_panel)
    options: list[inspect.Parameter] = []
    for name, parameter in own.parameters.items():
        if name in groups:
            options += inspect.signature(groups[name], eval_str=True).parameters.values()
        else:
            options.append(parameter)

    def verb(**given: Any) -> None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    verb.__name__, verb.__doc__ = command.__name__, command.__doc__
    named = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    verb.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]
    return verb
