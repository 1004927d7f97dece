"""Groups of options that several verbs share, and the decorator `grouped`, which expands a group into its options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from typer import Option
from typer.models import OptionInfo

from diptych.cli.app import LARGEST_SEED, Device, Precise, Revision
from diptych.runtime.decoding import SETTINGS
from diptych.runtime.errors import DiptychError

if TYPE_CHECKING:
    from diptych.models.decoding import DecodingOptions
    from diptych.runs.folder import ModelFolder

DECODING = "Decoding"  # heading of the decoding options in the output of --help
# Matches the name of a decoding setting, and its value if there is one, in an error message.
SETTING = re.compile(rf"\b({'|'.join((*SETTINGS, 'captions', 'sample'))})\b(?:=true|=([^\s,;]+))?")
DECODED = re.compile(r"^decoding(?:: |\.)")


def _setting(name: str) -> Any:
    """Return the option for a decoding setting. By default (None), the recipe's value is used."""
    help, limits = SETTINGS[name]
    least = limits.get("ge")
    return Option(None, min=least if isinstance(least, int) else None, help=f"{help}; default: the recipe's.")


@dataclass(frozen=True)
class WritingOptions:
    """Options for decoding captions.

    All other decoding settings come from the recipe. docs/own-data-reference.md has examples.
    """

    panel: ClassVar[str] = DECODING
    beams: int | None = _setting("beams")
    length_bonus: float | None = _setting("length_bonus")
    length_penalty: float | None = _setting("length_penalty")
    temperature: float | None = _setting("temperature")
    top_k: int | None = _setting("top_k")
    top_p: float | None = _setting("top_p")
    seed: int = Option(0, min=0, max=LARGEST_SEED, help="Seed of the sampled words.")
    min_words: int | None = _setting("min_words")
    max_words: int | None = _setting("max_words")
    no_repeat_ngram: int | None = _setting("no_repeat_ngram")

    @property
    def given(self) -> dict[str, Any]:
        """Return name -> value of the decoding options that were given."""
        values = {name: value for name, value in vars(self).items() if name != "seed"}
        return {name: value for name, value in values.items() if value is not None}

    def over(self, model: ModelFolder) -> DecodingOptions | None:
        """Return the model's decoding options with the given changes; None if no option was given.

        The random generator for sampling is seeded too.
        """
        if not self.given:
            return None
        import torch

        from diptych.models.decoding.chosen import chosen_decoding

        torch.manual_seed(self.seed)
        with options_named():
            return chosen_decoding(model.decoding, 1, **self.given).fit(model.tokens.vocabulary.size)


@dataclass(frozen=True)
class ComputingOptions:
    """Options for opening a model: device, precision and so on."""

    panel: ClassVar[str] = "Model"
    device: Device = "auto"
    precision: Precise = "auto"
    revision: Revision = None


def option(name: str) -> str:
    """Return the option for a parameter: `--top-p` for `top_p`."""
    return f"--{name.replace('_', '-')}"


@contextmanager
def options_named(named: Callable[[str], str] = option) -> Iterator[None]:
    """Inside the `with` block, decoding errors name options instead of settings: `--beams 2` for `beams=2`.

    `named`: a function from a setting to its option.
    """
    try:
        yield
    except DiptychError as error:
        if (message := str(error)).startswith("decoding"):
            message = SETTING.sub(lambda one: f"{named(one[1])} {one[2] or ''}".rstrip(), DECODED.sub("", message))
            error.args = (message,)
        raise


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each dataclass parameter of `command` by one option per field, at the same position."""
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
