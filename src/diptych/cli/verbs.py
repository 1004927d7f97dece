"""The table of all verbs, and the group that `diptych --help` lists. A verb's module is imported when it is used."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from diptych.cli.app import Verb, Verbs
from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.files import text_of
from diptych.runtime.plugins import load_plugins, unknown_name, verbs_listed
from diptych.runtime.terminal import begin
from diptych.runtime.verbs import TASK_VERBS

USE, TRAIN, DATA, SHARE, WORLD = PANELS = ("Use", "Train", "Data", "Share", "World")  # headings in --help
NO_MODEL = "Missing --model FOLDER (or --server URL of a running service); `--model photos` comes with Diptych"
VALUED = {"--model", "--server", "--out", "--device", "--precision", "--revision", "--features", "--show"}


# {heading in --help: {verb: MODULE:NAME of its function, or of a `Verbs` with subcommands}}
PLACES = {
    USE: {
        "evaluate": "diptych.cli.evaluate:evaluate",
        "submit": "diptych.cli.evaluate:submit",
        "rank": "diptych.cli.evaluate:rank",
        "compare": "diptych.cli.evaluate:compare",
        "score": "diptych.cli.evaluate:score",
        "encode": "diptych.cli.vectors:encode",
        "match": "diptych.cli.vectors:match",
        "search": "diptych.cli.search:search",
        "serve": "diptych_serve.cli:serve",
    },
    TRAIN: {
        "plot": "diptych.cli.plot:plot",
        "recipes": "diptych.cli.recipes:recipes",
        "pretrain": "diptych.cli.train:pretrain",
        "finetune": "diptych.cli.train:finetune",
    },
    DATA: {
        "data": "diptych.cli.data:public_data",
        "check": "diptych.cli.data:check",
        "extract": "diptych.cli.data:extract",
        "augment": "diptych.cli.train:augment",
        "tokenizer": "diptych.cli.data:tokenizer",
        "mine": "diptych_mine.cli:mine",
    },
    SHARE: {
        "completion": "diptych.cli.completion:completion",
        "plugins": "diptych.cli.recipes:plugins",
        "push": "diptych.cli.share:push",
        "export": "diptych_serve.cli:export",
        "import": "diptych.cli.importing:imports",
    },
    WORLD: {
        "demo": "diptych_world.cli:demo",
        "storybook": "diptych_world.cli:storybook",
    },
}
# The verbs whose package is there: a program may have been left out.
VERBS = {
    name: (panel, place)
    for panel, places in PLACES.items()
    for name, place in places.items()
    if find_spec(place.partition(".")[0]) is not None
}


def load(name: str) -> Any:
    """Import a verb and return its command."""
    module, _, function = VERBS[name][1].partition(":")
    verb, alone = getattr(import_module(module), function), Verbs()
    if isinstance(verb, typer.Typer):
        alone.add_typer(verb, name=name)
    else:  # `plugins` lists errors of plugins itself
        alone.command(name, cls=TyperCommand if name == "plugins" else Verb)(verb)
    return typer.main.get_group(alone).commands[name]


def help_of(name: str) -> str:
    """Return the help of a verb: its docstring, or the argument `help` of `Verbs`. Its module is read, not imported."""
    module, _, function = VERBS[name][1].partition(":")
    source = find_spec(module)
    assert source is not None
    for node in ast.parse(text_of(Path(source.origin or ""))).body:
        match node:
            case ast.FunctionDef(name=defined) if defined == function:
                return ast.get_docstring(node) or ""
            case ast.Assign(targets=[ast.Name(id=defined)], value=ast.Call(keywords=given)) if defined == function:
                return next(str(ast.literal_eval(one.value)) for one in given if one.arg == "help")
    raise AssertionError(f"{module} has no {function}")


class TaskVerbs(TyperGroup):
    """The group of all verbs. `diptych --help` lists them under `PANELS`.

    They are imported, and those of tasks are built, on first use.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        listed: list[tuple[str, Any]] = [(name, self.listed(ctx, name)) for name in self.list_commands(ctx)]
        limit = formatter.width - 6 - max(len(name) for name, _ in listed)
        for panel in (*PANELS, None):
            rows = [(name, one.get_short_help_str(limit)) for name, one in listed if one.rich_help_panel == panel]
            if rows:
                with formatter.section(panel or "Commands"):
                    formatter.write_dl(rows)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys([*VERBS, *TASK_VERBS, *verbs_listed()]))

    def listed(self, ctx: Any, name: str) -> Any:
        """Return a command with the name and help of a verb, for its line in `diptych --help`."""
        if name not in VERBS:
            return self.get_command(ctx, name)
        return TyperCommand(name, help=help_of(name), rich_help_panel=VERBS[name][0])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in VERBS:
            return self.commands.get(cmd_name) or self.commands.setdefault(cmd_name, load(cmd_name))
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
            named = [(word.partition("="), after) for word, after in pairwise([*args, ""])]
            wanted, there = ["IMAGE", *map(str.upper, TASK_VERBS[self.name].arguments)], _positional(args)
            if len(there) < len(wanted):
                usage = f"diptych {self.name} {' '.join(wanted)} --model FOLDER"
                raise RecipeError(f"Missing argument {wanted[len(there)]}; expected {usage}")
            unsure = {word for word in given if word.startswith("--")} - VALUED - {"--json"}  # may be misspelt
            if not unsure and not given & {"--model", "--server"}:
                raise RecipeError(NO_MODEL)
            if model := next((of or after for (word, _, of), after in named if word == "--model"), None):
                begin(f"opening {model}")
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
