"""The demo's folder: whose it is."""

from pathlib import Path

import pytest
from rich.console import Console

from diptych.errors import RecipeError
from diptych.recipes.demo import DemoConfig, claim, demo


def test_a_folder_of_another_size_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    claim(tmp_path / "demo", DemoConfig())
    claim(tmp_path / "demo", DemoConfig())
    with pytest.raises(RecipeError) as refused:
        demo(tmp_path / "demo", DemoConfig.fast(seed=3), Console(quiet=True))
    told = str(refused.value)
    assert "holds a demo of another size:" in told
    assert "\n  web: 600, was 10000" in told
    assert "\n  seed: 3, was 0" in told
    assert "patience" not in told  # the same in both
    assert "another --out to begin anew" in told
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["demo.json"]
