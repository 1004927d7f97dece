"""The table of all verbs, and the group that `diptych --help` lists. A verb's module is imported when it is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from diptych.cli.app import Verb, Verbs
from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.plugins import load_plugins, unknown_name, verbs_listed
from diptych.runtime.verbs import TASK_VERBS

USE, TRAIN, DATA, SHARE, WORLD = PANELS = ("Use", "Train", "Data", "Share", "World")  # headings in --help
NO_MODEL = "Missing --model FOLDER (or --server URL of a running service); `--model sample` comes with Diptych"
VALUED = {"--model", "--server", "--out", "--device", "--precision", "--revision", "--features", "--show"}


class VerbEntry(NamedTuple):
    """A verb: its place, and its line in `diptych --help`."""

    place: str  # MODULE:NAME of its function, or of a `Verbs` with subcommands
    panel: str
    help: str  # the first sentence of the function's docstring, which `diptych VERB --help` shows
    kind: type[TyperCommand] = Verb

    @property
    def there(self) -> bool:
        """False if the package of the verb was left out."""
        return find_spec(self.place.partition(".")[0]) is not None

    def load(self, name: str) -> Any:
        """Import the verb and return its command."""
        module, _, function = self.place.partition(":")
        verb, alone = getattr(import_module(module), function), Verbs(rich_markup_mode=None)
        if isinstance(verb, typer.Typer):
            alone.add_typer(verb, name=name)
        else:
            alone.command(name, cls=self.kind)(verb)
        return typer.main.get_group(alone).commands[name]


VERBS = {
    "evaluate": VerbEntry(
        "diptych.cli.evaluate:evaluate", USE,
        "Score a model on a split, with confidence intervals, a blind baseline and a human ceiling.",
    ),
    "submit": VerbEntry(
        "diptych.cli.evaluate:submit", USE,
        "Write a model's predictions as a file for an evaluation server, without scores.",
    ),
    "rank": VerbEntry(
        "diptych.cli.evaluate:rank", USE,
        "Score retrieval: rank the images of a split for each text, and the texts for each image.",
    ),
    "compare": VerbEntry(
        "diptych.cli.evaluate:compare", USE,
        "Compare two models on the same images: the gain of B over A, with the 95% interval of a paired bootstrap.",
    ),
    "score": VerbEntry(
        "diptych.cli.evaluate:score", USE,
        "Score a file of captions or answers in the format of an evaluation server.",
    ),
    "encode": VerbEntry(
        "diptych.cli.vectors:encode", USE,
        "Write the vectors of images, computed by a two-tower model.",
    ),
    "match": VerbEntry(
        "diptych.cli.vectors:match", USE,
        "Print how well each text matches each image: the probability of a match, or the cosine of two-tower vectors.",
    ),
    "search": VerbEntry("diptych.cli.search:search", USE, "Rank a folder of images by how well they match a text."),
    "serve": VerbEntry("diptych_serve.cli:serve", USE, "Answer requests over HTTP, and show a page to try the models."),
    "plot": VerbEntry("diptych.cli.plot:plot", TRAIN, "Draw the losses, validation scores and learning rates of runs."),
    "recipes": VerbEntry(
        "diptych.cli.recipes:recipes", TRAIN,
        "List recipes or rows of the papers' tables, or show a recipe with all keys that `--set` can change.",
    ),
    "pretrain": VerbEntry("diptych.cli.train:pretrain", TRAIN, "Pre-train a model on images and their captions."),
    "finetune": VerbEntry(
        "diptych.cli.train:finetune", TRAIN,
        "Train a pre-trained model on a task, with a store or data of your own.",
    ),
    "data": VerbEntry(
        "diptych.cli.data:public_data", DATA,
        "List the files of a public data set, and write a manifest of the files that exist.",
    ),
    "check": VerbEntry("diptych.cli.data:check", DATA, "Check data before training."),
    "extract": VerbEntry(
        "diptych.cli.data:extract", DATA,
        "Extract the regions of every image into a store, from which models are trained.",
    ),
    "augment": VerbEntry(
        "diptych.cli.train:augment", DATA,
        "Add generated captions to a training set: sampled (top_p 0.9 by default), or with --beams the most probable.",
    ),
    "tokenizer": VerbEntry("diptych.cli.data:tokenizer", DATA, "Learn vocabularies of texts."),
    "mine": VerbEntry(
        "diptych_mine.cli:mine", DATA,
        "Make records of images and texts from web pages (ImageBERT's LAIT).",
    ),
    "completion": VerbEntry(
        "diptych.cli.completion:completion", SHARE,
        "Print a script that completes verbs and options, as in `source <(diptych completion bash)`.",
    ),
    "plugins": VerbEntry(
        "diptych.cli.recipes:plugins", SHARE,
        "List the installed packages that extend Diptych, and what each adds, such as systems and tasks.",
        TyperCommand,  # not `Verb`: this command lists plugin errors itself
    ),
    "push": VerbEntry("diptych.cli.share:push", SHARE, "Upload a model to the Hugging Face hub, with a model card."),
    "export": VerbEntry("diptych_serve.cli:export", SHARE, "Write a model as programs that run without Diptych."),
    "import": VerbEntry(
        "diptych.cli.importing:imports", SHARE,
        "Turn an official checkpoint, or a detector's file, into a folder of Diptych.",
    ),
    "demo": VerbEntry(
        "diptych_world.cli:demo", WORLD,
        "Run the whole pipeline on drawn images: draw, extract, pre-train, fine-tune, caption and answer.",
    ),
    "storybook": VerbEntry(
        "diptych_world.cli:storybook", WORLD,
        "Write and show the drawn world, and train a detector for it.",
    ),
}  # fmt: skip


class PanelGroup(TyperGroup):
    """A group of commands. Its help lists them under the headings `PANELS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        listed: list[tuple[str, Any]] = [(name, self.listed(ctx, name)) for name in self.list_commands(ctx)]
        limit = formatter.width - 6 - max(len(name) for name, _ in listed)
        for panel in (*PANELS, None):
            rows = [(name, one.get_short_help_str(limit)) for name, one in listed if one.rich_help_panel == panel]
            if rows:
                with formatter.section(panel or "Commands"):
                    formatter.write_dl(rows)

    def listed(self, ctx: Any, name: str) -> Any:
        """Return a command of this name, for its line of help."""
        return self.get_command(ctx, name)


class TaskVerbs(PanelGroup):
    """The group of all verbs. They are imported, and those of tasks are built, on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        there = (name for name, entry in VERBS.items() if entry.there)
        return list(dict.fromkeys([*there, *TASK_VERBS, *verbs_listed()]))

    def listed(self, ctx: Any, name: str) -> Any:
        if (entry := VERBS.get(name)) is None:
            return super().listed(ctx, name)
        return TyperCommand(name, help=entry.help, rich_help_panel=entry.panel)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (entry := VERBS.get(cmd_name)) is not None and entry.there:
            return self.commands.get(cmd_name) or self.commands.setdefault(cmd_name, entry.load(cmd_name))
        if cmd_name in TASK_VERBS:
            return TaskVerb(cmd_name, help=TASK_VERBS[cmd_name].help, rich_help_panel=USE)
        if (package := verbs_listed().get(cmd_name)) is not None:
            return PackageVerb(cmd_name, help=f"A verb of the package {package}.", rich_help_panel=USE)
        load_plugins()
        return made_verb(cmd_name) if "diptych.tasks" in sys.modules else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = nearest(name, self.list_commands(ctx), "`diptych --help` lists them")
            raise unknown_name(f"No such command {name!r}; {known}")
        return super().resolve_command(ctx, args)


class TaskVerb(TyperCommand):
    """A placeholder for a task's verb. It has only a sentence of help, and is replaced by the full verb on use."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        assert self.name is not None
        given = {word.partition("=")[0] for word in args}
        if not given & {"-h", "--help"}:  # count the arguments here, because importing torch takes seconds
            wanted, there = ["IMAGE", *map(str.upper, TASK_VERBS[self.name].arguments)], _positional(args)
            if len(there) < len(wanted):
                usage = f"diptych {self.name} {' '.join(wanted)} --model FOLDER"
                raise RecipeError(f"Missing argument {wanted[len(there)]}; expected {usage}")
            unsure = {word for word in given if word.startswith("--")} - VALUED - {"--json"}  # may be misspelt
            if not unsure and not given & {"--model", "--server"}:
                raise RecipeError(NO_MODEL)
        return made_verb(self.name).make_context(info_name, args, parent, **extra)


class PackageVerb(TyperCommand):
    """A placeholder for a verb that a package lists in its metadata. The package is imported on use."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        assert self.name is not None
        load_plugins()
        if (made := made_verb(self.name)) is None:
            raise unknown_name(f"the package {verbs_listed()[self.name]} has the verb {self.name}, but not its task")
        return made.make_context(info_name, args, parent, **extra)


def made_verb(name: str) -> Any:
    """Return the command of the task with this verb; None if no task has this verb."""
    from diptych.cli.predict import make_verb

    return make_verb(name)


def _positional(args: Sequence[str]) -> list[str]:
    """Return the words that may be positional arguments: not options, and not values that follow an option of any
    verb."""
    if "--" in args:
        return list(args)
    before = ["", *args]
    return [word for word, last in zip(args, before, strict=False) if last not in VALUED and not word.startswith("-")]
