"""What the papers state, typed from their texts by a second reader (facts.toml), is what the recipes have."""

import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from diptych.systems import RECIPES, STAGED, Recipe, find_stages
from diptych.systems.ledger import papers

FACTS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("facts.toml").read_text())
FIDELITY = " ".join((Path(__file__).parents[3] / "docs/fidelity.md").read_text().split())
OTHERS = {"small", "official", "photos", "large"}  # recipes of no paper's text
# {(pattern of recipes, key, own value): words of docs/fidelity.md, which tell why it differs from the paper's text}
TOLD: dict[tuple[str, str, object], str] = {
    ("xgpt/*", "training.precision", "auto"): "We use bf16 instead of FP16",
    ("xgpt/caption/table-3-tiny-encdec", "model.layers", 3): "the tiny EncDec has 3 encoder and 3 decoder layers",
    ("*/scst", "epochs", 6.0): "the 30 epochs of SCST (also TDEN's) have 30 x 113,287 samples",
    ("vl-bert/vcr", "training.batch", 64): "are 64 questions with 4 answers each",
    ("vl-bert/vcr", "optimizer.warmup_from_zero", False): "the first of the 1,000 steps has a thousandth of the rate",
}


def resolved() -> dict[str, Recipe]:
    """Return the recipes of the papers' size by name; the stages of a staged one are separate."""
    names = [name for name in (*RECIPES, *STAGED) if OTHERS.isdisjoint(name.split("/"))]
    return {recipe.name: recipe for name in names for recipe in find_stages(name).recipes}


def value(recipe: Recipe, key: str, stated: Any) -> Any:
    """Return a setting of the recipe, in the form that facts.toml has. Epochs: their number."""
    steps = recipe.training.steps
    if key == "epochs":
        return round(steps * recipe.training.batch / stated[1], 1)
    if key == "falls":
        return [round(step / steps, 3) for step in recipe.optimizer.milestones]
    found: Any = recipe.model_dump(mode="json")
    for part in key.split("."):
        found = found[part]
    return "none" if found is None else found


def differences() -> Iterator[tuple[str, str, Any]]:
    """Yield the name, key and own value where a fact does not hold."""
    for name, recipe in resolved().items():
        for key, stated in [fact for at, facts in FACTS.items() if fnmatchcase(name, at) for fact in facts.items()]:
            own = value(recipe, key, stated)
            if own != (pytest.approx(stated[0], rel=0.03) if key == "epochs" else stated):
                yield name, key, own


def test_every_recipe_of_a_table_has_facts_and_every_pattern_a_recipe() -> None:
    stages = {name: [recipe.name for recipe in find_stages(name).recipes] for name in (*RECIPES, *STAGED)}
    tables = [table for paper in papers() for table in (*paper.tables, *paper.others)]
    of_tables = {stage for table in tables for row in table.rows for name in row.recipes for stage in stages[name]}
    assert [name for name in of_tables if not any(fnmatchcase(name, pattern) for pattern in FACTS)] == []
    assert [pattern for pattern in FACTS if not any(fnmatchcase(name, pattern) for name in resolved())] == []


def test_recipes_have_what_the_papers_state_or_fidelity_tells_it() -> None:
    found, listed = list(differences()), TOLD
    hits = [[at for at in listed if fnmatchcase(line[0], at[0]) and line[1:] == at[1:]] for line in found]
    assert [line for line, entries in zip(found, hits, strict=True) if not entries] == []
    assert [entry for entry in listed if [entry] not in hits] == [], "it no longer differs"
    assert [words for words in TOLD.values() if words not in FIDELITY] == []
