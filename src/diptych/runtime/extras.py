"""Errors for missing optional libraries (the extras in pyproject.toml). They show how to install them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

from diptych.runtime.errors import RecipeError


@contextmanager
def requires_extra(what: str, extra: str) -> Iterator[None]:
    """Return a context for imports of an extra's libraries.

    If they are missing, it raises RecipeError with the install command. `what`: what needs them.
    """
    try:
        yield
    except ImportError as error:
        library = error.name or error
        raise RecipeError(f"{what} needs {library}, of the extra `{extra}`: {install_hint(extra)}") from error


def install_hint(extra: str) -> str:
    """Return the command that installs an extra, for this installation: from its checkout or from its wheel.

    Diptych is not in a package registry, so `pip install diptych` would install nothing, or the package of another
    project.
    """
    source = _source()
    url = source.get("url", "")
    if source.get("dir_info", {}).get("editable"):
        return f"`uv sync --inexact --extra {extra}` in {unquote(urlsplit(url).path)}"
    if "vcs_info" in source:
        url = f"{source['vcs_info']['vcs']}+{url}@{source['vcs_info']['commit_id']}"
    if url:
        return f"`uv pip install 'diptych[{extra}] @ {url}'`"
    return f"`uv pip install 'WHEEL[{extra}]'` with the wheel that Diptych was installed from"


def _source() -> dict[str, Any]:
    """Return where this installation came from, as the installer recorded it (PEP 610), or an empty dict."""
    try:
        source = json.loads(distribution("diptych").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError):
        return {}
    return source if isinstance(source, dict) else {}
