"""Libraries that only some users want (the extras of pyproject.toml), and the sentence that says how to have them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

from diptych.runtime.errors import RecipeError


@contextmanager
def requires_extra(what: str, extra: str) -> Iterator[None]:
    """Around imports of an extra's libraries: its absence is one sentence. Raises RecipeError."""
    try:
        yield
    except ImportError as error:
        raise RecipeError(
            f"{what} needs {error.name or error}, of the extra `{extra}`: {install_hint(extra)}"
        ) from error


def install_hint(extra: str) -> str:
    """The command that adds an extra to this installation: to its checkout, or from its wheel.

    Diptych is on no registry, so a name alone would fetch nothing, or another's package.
    """
    source = _source()
    url = source.get("url", "")
    if source.get("dir_info", {}).get("editable"):
        return f"`uv sync --extra {extra}` in {unquote(urlsplit(url).path)}"
    if "vcs_info" in source:
        url = f"{source['vcs_info']['vcs']}+{url}@{source['vcs_info']['commit_id']}"
    if url:
        return f"`uv pip install 'diptych[{extra}] @ {url}'`"
    return f"`uv pip install 'WHEEL[{extra}]'` with the wheel that Diptych was installed from"


def _source() -> dict[str, Any]:
    """Where it was installed from, as installers write it down (PEP 610); empty where they did not."""
    try:
        found = json.loads(distribution("diptych").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
