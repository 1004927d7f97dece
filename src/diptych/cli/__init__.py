"""The command line: verbs, their options, and how errors are shown. What a verb does lives elsewhere.

Exit codes: 0 done, 1 failed, 2 used wrongly, 75 stopped and saved (the same command goes on), 130 interrupted.
Heavy imports stand inside the verbs, so that `--help` takes no time.
"""

from __future__ import annotations

import sys

from diptych.cli import making, scoring, telling
from diptych.cli.app import app
from diptych.errors import DiptychError

__all__ = ["app", "main", "making", "scoring", "telling"]


def main() -> None:
    """Run the command line; errors become one message on standard error and an exit code."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(arguments)
    except DiptychError as error:
        if debug:
            raise
        print(f"diptych: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
    except Exception as error:
        if debug:
            raise
        print(f"diptych: {_unforeseen(error)}", file=sys.stderr)
        raise SystemExit(1) from None


def _unforeseen(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}; give another place"
    return f"{type(error).__name__}: {error}; this is a fault of Diptych: please report it, with --debug"
