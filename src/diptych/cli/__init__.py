"""The command line: verbs, their options, and the display of errors. Other packages do the work of a verb.

Exit codes: 0 done, 1 failed, 2 wrong usage, 75 stopped and saved (the same command resumes), 130 interrupted.
Slow imports are inside the verbs, so that `--help` is fast.
"""

import errno
import os
import re
import sys
import warnings
from contextlib import suppress
from io import TextIOWrapper

from diptych.cli.app import app, locks
from diptych.cli.verbs import VERBS, TaskVerbs
from diptych.runtime.errors import DiptychError, Stopped, Terminated, UnreadWarning
from diptych.runtime.memory import is_spent, keep_freed_memory, wait_briefly
from diptych.runtime.plugins import reserve_verbs
from diptych.runtime.processes import torchrun_processes
from diptych.runtime.terminal import columns, printable

__all__ = ["TaskVerbs", "app", "main"]
app.info.cls = TaskVerbs
reserve_verbs(VERBS)
HOME = re.compile(r"^((?:[\w.-]+=)?(?:onnx:|tfjs:)?)~(?=/)")  # in arguments that the shell did not expand: --out=~/runs
STANDARD = warnings.formatwarning
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def main() -> None:
    """Run the command line. An error is printed as one message on standard error and gives an exit code."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell (>&-); otherwise the next file would get its descriptor
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # characters that the terminal cannot encode become escapes
            stream.reconfigure(errors="backslashreplace")
    home = os.path.expanduser("~")
    arguments = [HOME.sub(lambda at: at[1] + home, one) for one in sys.argv[1:] if one != "--debug"]
    keep_freed_memory()
    wait_briefly()
    warnings.formatwarning = _line_of_warning
    code = _flushed(run_verb(arguments, debug=len(arguments) < len(sys.argv) - 1))
    if os.environ.get("WORLD_SIZE", "1") != "1":
        from diptych.training.ranks import leave

        leave(code)
    raise SystemExit(code)


def run_verb(arguments: list[str], debug: bool) -> int:
    """Run a command and return its exit code. With `debug`, errors are raised with their traceback."""
    try:
        os.getcwd()  # raises FileNotFoundError if the folder was deleted; libraries would end the process later
        with locks:
            torchrun_processes()
            app(arguments, terminal_width=columns(sys.stdout))
    except SystemExit as ended:
        # click raises SystemExit for a BrokenPipeError.
        return 0 if isinstance(ended.__context__, BrokenPipeError) else int(ended.code or 0)
    except Terminated:
        print("diptych: stopped; the same command resumes from here", file=sys.stderr)
        return Stopped.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debug:
            raise
        if isinstance(error, DiptychError):
            message, code = "--" * (error.argument is not None) + str(error), error.exit_code
        else:
            message, code = _unexpected(error), 1
        print("\n".join(map(printable, f"diptych: {message}".splitlines())), file=sys.stderr)
        return code
    return 0


def _line_of_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    if issubclass(category, UnreadWarning):
        return f"diptych: {printable(str(message))}\n"
    return STANDARD(message, category, filename, lineno, line)


def _flushed(code: int) -> int:
    """Flush standard output and return the exit code.

    Otherwise a failed flush at Python's exit would change the code.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError):  # nothing reads stdout any more, so the rest is discarded
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return code
        print(f"diptych: {_unexpected(error)}", file=sys.stderr)
        return 1
    return code


def _unexpected(error: Exception) -> str:
    """Return a message for an unexpected error, with what the user can do."""
    if is_spent(error):
        first = (str(error).splitlines() or [type(error).__name__])[0][:200]
        advice = "use less at once: a smaller --set training.micro_batch, --processes 1, or smaller files"
        return f"memory is at its limit ({first}); {advice}"
    if isinstance(error, OSError) and (message := _of_system(error)) is not None:
        return message
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return f"{error.object[:100]!a} is not UTF-8 at character {error.start}; pass text in UTF-8"
    from diptych.runtime.plugins import plugin_at_fault, plugin_in_use

    if (plugin := plugin_at_fault(error)) is not None:
        where, whom = f"was raised in code of {plugin.title}", " to the authors of that package"
    elif (plugin := plugin_in_use()) is not None:  # a plugin's values may have caused this error in Diptych
        where, whom = f"was raised while {plugin.title} was in use", " to the authors of that package first"
    else:
        where, whom = "is a fault of Diptych", ""
    return f"{type(error).__name__}: {error}; this {where}: please report it{whom}, with --debug"


def _of_system(error: OSError) -> str | None:
    """Return a message for an error of the system, or None if its cause is not known."""
    if error.errno == errno.EFBIG:
        place = error.filename or "a file"
        return f"cannot write {place}: {error.strerror}; raise the limit of a file's size (ulimit -f)"
    if error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}; pass another path"
    if error.errno in NO_ROOM:
        return f"cannot print or write: {error.strerror}; free disk space and run the same command again"
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error.strerror):  # from tempfile
        return f"{error.strerror}, so no temporary file can be written; set TMPDIR to a folder that can be written"
    if isinstance(error, FileNotFoundError):  # from os.getcwd, if the folder was deleted
        return "the folder that this command runs in does not exist any more; change to another folder"
    return None
