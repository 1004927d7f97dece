"""The command-line application `app`, to which all verbs are added, and options that several verbs share."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer import Option
from typer.core import TyperCommand

from diptych.cli.outputs import OutFolder, guarded
from diptych.runtime.errors import Terminated
from diptych.runtime.outputs import Kind

if TYPE_CHECKING:
    from rich.console import Console


Function = TypeVar("Function", bound=Callable[..., Any])


EXIT_CODES = (
    "Exit codes: 0 done; 1 failed; 2 wrong usage; 75 stopped and saved, and the same command resumes; 130 interrupted."
)


class Verb(TyperCommand):
    """A command that loads the installed plugins before it runs.

    --help does not load them, so it is fast and cannot fail.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options under their headings."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            argument = parameter.param_type_name == "argument"
            title = "Arguments" if argument else getattr(parameter, "rich_help_panel", None) or "Options"
            if (record := parameter.get_help_record(ctx)) is not None:
                panels.setdefault(title, []).append(record)
        for title, rows in panels.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            given = self.make_parser(ctx).parse_args(list(args))[0]
            for name in self._paths & given.keys():
                if given[name] == "" or (isinstance(given[name], list) and "" in given[name]):
                    parameter: Any = next(one for one in self.get_params(ctx) if one.name == name)
                    raise typer.BadParameter("found an empty path; `.` is this folder", ctx=ctx, param=parameter)
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            error.message = error.message.removeprefix("Value error, ")  # pydantic adds this prefix
            before, wanted, after = error.message.partition("Input should be")
            if wanted and not before and isinstance(error.__cause__, ValidationError):
                value = str(error.__cause__.errors()[0]["input"])[:60]
                error.message = f"found {value!r}, expected{after.split(', unable to')[0]}"
            raise

    @property
    def _paths(self) -> set[str]:
        """Names of the parameters that are paths."""
        assert self.callback is not None
        parameters = inspect.signature(self.callback, eval_str=True).parameters
        return {name for name, one in parameters.items() if "pathlib.Path" in str(one.annotation)}

    def invoke(self, ctx: Any) -> Any:
        from diptych.runtime.plugins import load_plugins

        load_plugins()
        return super().invoke(ctx)


class Verbs(typer.Typer):
    """A typer application with our settings, whose commands have the class `Verb` by default."""

    def __init__(self, **settings: Any) -> None:
        plain = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
        super().__init__(**{**plain, "no_args_is_help": True, **settings})

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Verb, **settings: Any
    ) -> Callable[[Function], Any]:
        register = super().command(name, cls=cls, **settings)
        return lambda function: register(guarded(function))


app = Verbs(
    name="diptych",
    epilog=f"Any verb takes --debug, to show the traceback of an error. {EXIT_CODES}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
LARGEST_SEED = 2**63 - 1  # largest seed that torch accepts
LONGEST_PATH = 70  # temporary files are not put in a longer path, because a socket's path has at most 107 characters
locks = ExitStack()  # locks of the folders that this command writes; the end of the command releases them

SplitSeed = Annotated[
    int, Option(min=0, max=LARGEST_SEED, help="Seed that divides data without splits into train, val and test.")
]
SkipBad = Annotated[
    bool, Option("--skip-bad", help="Skip any number of invalid entries; default: an error if over 10 and over 1%.")
]
StoredBoxes = Annotated[bool, Option("--stored-boxes", help="Turn boxes of stored pixels as EXIF does; not features.")]
Features = Annotated[
    Path | None,
    Option(help="Region features made elsewhere, in any known format; for a model, also a store with its images."),
]
Out = Annotated[Path, OutFolder("run"), Option(help="Folder of the run; the same command resumes an interrupted run.")]
Model = Annotated[str, Option(help="Model folder, folder of a run, or user/name on the Hugging Face hub.")]
MaybeModel = Annotated[
    str | None,
    Option("--model", help="Model folder, run folder or user/name on the hub; with --server: its name there."),
]
Address = Annotated[
    str | None,
    Option("--gallery", metavar="URL", help="PostgreSQL that keeps the image vectors; default: a file in the cache."),
]
Seed = Annotated[int, Option(min=0, max=LARGEST_SEED, help="Seed of all random draws: pictures, words and weights.")]
Device = Annotated[str, Option(help="Device: auto (a GPU where there is one), cpu, cuda, cuda:N or mps.")]
Precise = Annotated[
    str, Option("--precision", metavar="auto|fp32|bf16", help="Precision of the model; auto: bf16 where it is faster.")
]
DetectorWeights = Annotated[
    Path | None,
    Option("--weights", help="Weight file of a detector or backbone (hf/...: its folder); default: downloaded."),
]
DetectorBackbone = Annotated[
    str | None, Option("--backbone", help="Backbone of the features of hf: and onnx: boxes, such as timm/NAME.")
]
DetectorSettings = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of the detector: least=36, cells=14 (grid), form=yolox (ONNX); repeatable.",
    ),
]
Revision = Annotated[str | None, Option(help="Branch, tag or commit of a model on the hub; default: the newest.")]
AsJson = Annotated[bool, Option("--json", help="Print JSON, one object a line, instead of text.")]


def _print_version(given: bool) -> None:
    if given:
        from diptych import __version__

        print(f"diptych {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = Option(
        False, "--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Pre-train, fine-tune, evaluate and apply vision-language models."""


def hold(folder: Path, kind: Kind, temporary: bool = True) -> None:
    """Lock the folder that a verb writes until the verb ends, and remove temporary files of killed commands.

    After SIGTERM the verb saves what was done; repeated signals are ignored. With `temporary`, temporary files are put
    into the folder. Pass False if the folder is written under another name and replaced as a whole. Raises DiptychError
    if another process writes to the folder, or if the folder is not writable. Raises OutputError if the folder has
    another kind of content.
    """
    from multiprocessing.util import Finalize

    from diptych.runtime.files import aside, check_name, sweep
    from diptych.runtime.outputs import taken

    check_name(folder)
    made = not folder.exists()
    locks.enter_context(taken(folder, kind))
    own = aside((folder / "temporary").absolute())
    if temporary and len(str(own)) < LONGEST_PATH:
        own.mkdir(parents=True)  # with torchrun, another rank may start before rank 0 has made the parent folder
        # Multiprocessing removes its own folder inside this one at exit priority -100; lower priorities run later.
        Finalize(None, _remove, (own, folder if made else None), exitpriority=-101)
        tempfile.tempdir = os.environ["TMPDIR"] = str(own)
    signal.signal(signal.SIGTERM, _terminated)
    sweep(folder)


def _remove(temporary: Path, empty: Path | None) -> None:
    """Remove a command's temporary folder, and the output folder `empty` if it has no files."""
    shutil.rmtree(temporary, ignore_errors=True)
    if empty is not None:
        with suppress(OSError):
            empty.rmdir()


def _terminated(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a batch system may send the same signal twice
    raise Terminated


def console(stderr: bool = True) -> Console:
    """Return a rich console that prints to standard error, or to standard output."""
    from diptych.runtime.terminal import make_console

    return make_console(stderr)
