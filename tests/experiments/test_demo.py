"""What is kept of a demo: numbers, each beside what it is held against."""

from pathlib import Path
from typing import Any

import pytest

from experiments.demo import main, of_demo, of_thorough
from experiments.thorough import GAIN


def test_of_a_demo() -> None:
    score = {"value": 60.06, "interval": [56.0, 64.0], "blind": 17.0, "ceiling": 134.8}
    told = of_demo(
        {
            "seconds": {"draw": 2.0, "evaluate": 1.5},
            "memory_mib": {"draw": 10, "evaluate": 30},
            "scores": {"caption": {"from scratch": {"scores": {"CIDEr": score}}}},
            "gains": {"caption": {"value": 46.94, "interval": [41.3, 52.2]}},
            "config": {"web": 600},
        }
    )
    held = {"blind": 17.0, "ceiling": 134.8}
    assert told["test, detected regions"]["caption"]["from scratch"]["CIDEr"] == {
        "value": 60.1, "low": 56.0, "high": 64.0, **held,
    }  # fmt: skip
    assert told["gain of pre-training"] == {"caption": {"value": 46.9, "low": 41.3, "high": 52.2}}
    assert (told["seconds"]["all stages"], told["memory, MiB"]["most"], told["config"]) == (3.5, 30, {"web": 600})


def test_of_the_thorough_one() -> None:
    found: dict[str, Any] = {"value": 56.2, "low": 51.2, "high": 60.1, "seeds": 3}
    told = of_thorough(
        {
            "figures": {"caption": {"100 scenes": {"from scratch": {"CIDEr": found}, GAIN: {"CIDEr": found}}}},
            "held against": {"caption": {"CIDEr": {"blind": 17.04, "ceiling": None}}},
            "rates": {"caption, from scratch": 5e-4},
            "rounds": [{"arm": "from scratch", "test": {"CIDEr": 56.21}}],
            "seconds": {"draw": 22.5},
        }
    )
    assert told["caption"]["100 scenes"] == {
        "from scratch": {"CIDEr": {**found, "blind": 17.0}},
        GAIN: {"CIDEr": found},
    }
    assert told["rounds"] == [{"arm": "from scratch", "test": {"CIDEr": 56.2}}]


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no results\.json and no thorough\.json; run `diptych demo --out"):
        main(tmp_path)
