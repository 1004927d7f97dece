"""What is missing is named with the command that brings it, for each way in which Diptych can be installed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from diptych.runtime import extras
from diptych.runtime.errors import RecipeError
from diptych.runtime.extras import install_hint, requires_extra

EDITABLE = {"editable": True}


class Distribution:
    def __init__(self, text: str | None) -> None:
        self.text = text

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.text


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ({"url": "file:///me/diptych", "dir_info": EDITABLE}, "`uv sync --inexact --extra serve` in /me/diptych"),
        ({"url": "file:///me/my%20code", "dir_info": EDITABLE}, "`uv sync --inexact --extra serve` in /me/my code"),
        ({"url": "file:///w/d.whl", "archive_info": {}}, "`uv pip install 'diptych[serve] @ file:///w/d.whl'`"),
        ({"url": "file:///me/diptych", "dir_info": {}}, "`uv pip install 'diptych[serve] @ file:///me/diptych'`"),
        (
            {"url": "https://x.org/d", "vcs_info": {"vcs": "git", "commit_id": "12ab"}},
            "`uv pip install 'diptych[serve] @ git+https://x.org/d@12ab'`",
        ),
        (None, "`uv pip install 'WHEEL[serve]'` with the wheel that Diptych was installed from"),
    ],
)  # fmt: skip
def test_the_hint_names_where_it_was_installed_from(source: Any, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = None if source is None else json.dumps(source)
    monkeypatch.setattr(extras, "distribution", lambda name: Distribution(text))
    assert install_hint("serve") == hint


def test_a_damaged_note_of_the_installer_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "distribution", lambda name: Distribution("{"))
    assert "WHEEL[serve]" in install_hint("serve")


def test_a_missing_library_is_one_sentence() -> None:
    said = r"^a service needs no_such_library, of the extra `serve`: `uv "
    with pytest.raises(RecipeError, match=said), requires_extra("a service", "serve"):
        import no_such_library  # noqa: F401
