"""Every filled cell of docs/objectives.md: eight samples learnt by heart. The others are refused."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
import torch

from diptych import objectives
from diptych.core import Objective, Sample, collate
from diptych.objectives import (
    AnswerQuestion,
    ChooseText,
    ClassifyStatement,
    GroundExpression,
    MatchGroups,
    RegionContrast,
    Schedule,
    together,
)
from diptych.runtime.errors import RecipeError
from diptych.systems import RECIPES, SYSTEMS, Recipe
from diptych.testing import Case, check_masks, check_overfit
from tests.support.cases import case_of
from tests.support.deciding import ANSWERS, REASONS, TOKENS

pytestmark = pytest.mark.learns

PAGE = (Path(__file__).parents[3] / "docs" / "objectives.md").read_text()
# The objectives of each paper, all switched off.
OFF = {
    "unified-vlp": ("words=null", "seq2seq=1"),
    "vl-bert": ("relation=0", "words=0", "region_classes=0", "seen_classes=0"),
    "image-bert": ("words=0", "region_classes=0", "region_features=0", "matching=0"),
    "tden": ("words=false", "regions=false", "writing=false", "matching=null", "two_pass=null"),
    "xgpt": ("captions=0", "fragments=0", "denoising=0", "regions=0"),
}
# Learnt in fine-tuning: tests/library/tasks/test_overfit.py.
OF_TASKS = {AnswerQuestion, ChooseText, GroundExpression, ClassifyStatement, MatchGroups}
# What the page says of a cell for want of this; the first that is missing.
WHY = {
    "target": "no decoder",
    "text after regions": "its decoder writes",
    "queries": "no queries",
    "unimodal": "one encoder",
    "alone": "no text alone",
    "target after text": "decoder reads no text",
    "target without text": "decoder would copy",
    "grounded": "no grounding",
    "region queries": "no region queries",
    "two passes": "one pass",
    "hidden embeddings": "none kept",
    "pixels": "no pixels",
}
LEARNT = 0.05  # nats a word or a class; one of eight guessed costs 2
TOLD = 0.03  # of the distance from the features at the start


@dataclass(frozen=True)
class Chosen:
    """One objective as the command line chooses it: `--set objectives=KIND`, all others off."""

    kind: str
    settings: tuple[str, ...]

    def begun(self, system: str) -> Recipe:
        return RECIPES[f"{system}/small/pretrain"]()

    def recipe(self, system: str) -> Recipe:
        settings = (f"objectives.{setting}" for setting in (*OFF[self.kind], *self.settings))
        return self.begun(system).override([f"objectives={self.kind}", *settings])

    def schedule(self, recipe: Recipe) -> Schedule:
        return recipe.objectives.schedule(TOKENS.vocabulary)

    def __str__(self) -> str:
        return f"{self.kind}: {' '.join(self.settings)}"


class FromPixels(Chosen):
    """With a network that looks at them, where a system has one."""

    def begun(self, system: str) -> Recipe:
        network = ("model.network=resnet18", "model.network_cells=2") if system == "vl-bert" else ()
        return super().begun(system).override(network)


class Contrast:
    """From Python alone: no recipe names it."""

    def recipe(self, system: str) -> Recipe:
        settings = ("model.hidden_regions=official",) if system == "unified-vlp" else ()
        recipe = RECIPES[f"{system}/small/pretrain"]().override(settings)
        self.schedule(recipe).check(SYSTEMS[system].model.provided(recipe.model), system)
        return recipe

    def schedule(self, recipe: Recipe) -> Schedule:
        return together(RegionContrast(rate=0.6))

    def __str__(self) -> str:
        return "RegionContrast"


# A row of the page -> the ways to choose it.
ROWS: dict[str, list[Chosen | Contrast]] = {
    "masked words, from all other words (MLM)": [
        Chosen("image-bert", ("words=1",)),
        Chosen("unified-vlp", ("words=masked", "seq2seq=0")),
    ],
    "masked words, from the words before (seq2seq)": [Chosen("unified-vlp", ("words=masked",))],
    "all words, by queries (ours)": [Chosen("unified-vlp", ("words=queries",))],
    "all words, by a decoder (IC)": [Chosen("xgpt", ("captions=1",))],
    "all words, by a second decoder (MSG)": [Chosen("tden", ("writing=true",))],
    "masked fragment (IMLM)": [Chosen("xgpt", ("fragments=1",))],
    "corrupted sentence (IDA)": [Chosen("xgpt", ("denoising=1", "grounded=false"))],
    "corrupted sentence, with its words as regions (IDA)": [Chosen("xgpt", ("denoising=1",))],
    "classes of masked regions (MOC, MVRC)": [
        Chosen("image-bert", ("region_classes=1", "region_rate=0.5")),
        Chosen("vl-bert", ("region_classes=1", "region_labels=soft", "region_rate=0.5")),
        Chosen("tden", ("regions=true", "region_rate=0.5")),
    ],
    "classes of visible regions, from pixels (VL-BERT's code)": [FromPixels("vl-bert", ("seen_classes=1",))],
    "features of masked regions (MRFR)": [Chosen("image-bert", ("region_features=1", "region_rate=0.5"))],
    "masked regions, against other regions (contrast)": [Contrast()],
    "regions from the text (TIFG)": [Chosen("xgpt", ("regions=1",))],
    "match of image and text (ITM, relation)": [
        Chosen("image-bert", ("matching=1",)),
        Chosen("vl-bert", ("relation=1",)),
    ],
    "match of their two vectors (ISM)": [Chosen("tden", ("matching=paper",))],
    "masked words of texts without images": [Chosen("vl-bert", ("text_alone=1",)), Chosen("xgpt", ("text_words=1",))],
    "masked fragment of texts without images (MASS)": [Chosen("xgpt", ("text_fragments=1",))],
    "two passes, the second over the first's predictions": [
        Chosen("tden", ("words=true", "writing=true", f"two_pass={scheme}")) for scheme in "ABC"
    ],
}
CELLS = [(row, way, system) for row, ways in ROWS.items() for way in ways for system in SYSTEMS]


def samples_for(row: str, system: str) -> list[Sample]:
    """Eight pictures whose captions only they tell; or eight sentences."""
    if "texts without images" in row:
        end = TOKENS.vocabulary.sep
        return [Sample(t, t, None, torch.tensor([*TOKENS.encode(t), end])) for t in (*ANSWERS, *REASONS)]
    samples = case_of(f"{system}/small/pretrain").samples
    return [with_pixels(sample, seed) for seed, sample in enumerate(samples)] if "pixels" in row else samples


def with_pixels(sample: Sample, seed: int) -> Sample:
    assert sample.regions is not None
    pixels = torch.randn(3, 48, 64, generator=torch.Generator().manual_seed(seed))
    return replace(sample, regions=replace(sample.regions, features=None, pixels=pixels))


def enough(row: str, way: Chosen | Contrast, case: Case) -> Callable[[dict[str, float]], float]:
    """To which every loss has to fall, by the losses at the start."""

    def least(start: dict[str, float]) -> float:
        if "features" in row or "TIFG" in row:
            return TOLD * max(start.values())
        left = 0.0
        if "soft" in str(way):  # the least that can be said of labels that are not sure
            batch = collate(case.schedule.at(0).prepare(case.samples, Random(0)))
            assert batch.classes is not None
            told = batch.classes[batch.chosen]
            left = float(torch.distributions.Categorical(probs=told).entropy().mean())
        return min(LEARNT + left, max(start.values()) / 2)

    return least


def accepted(way: Chosen | Contrast, system: str) -> bool:
    try:
        way.recipe(system)
    except RecipeError:
        return False
    return True


def case_for(row: str, way: Chosen | Contrast, system: str) -> Case:
    recipe, samples = way.recipe(system), samples_for(row, system)
    assert len(samples) == 8
    return replace(case_of(recipe, schedule=way.schedule(recipe)), samples=samples)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "way", "system"), [cell for cell in CELLS if accepted(*cell[1:])], ids=str)
def test_eight_samples_are_learnt_by_heart(row: str, way: Chosen | Contrast, system: str) -> None:
    case = case_for(row, way, system)
    updates = [(update, collate(update.prepare(case.samples, Random(0)))) for update, _ in case.schedule.updates]
    assert all(count > 0 for update, batch in updates for count in update.counts(batch).values())
    check_overfit(case, enough=enough(row, way, case))


@pytest.mark.parametrize(
    ("row", "way", "system"), [cell for cell in CELLS if accepted(*cell[1:]) and "from pixels" not in cell[0]], ids=str
)
def test_what_nobody_asks_for_is_not_read(row: str, way: Chosen | Contrast, system: str) -> None:
    """Layers are run for less than all rows: the same losses and gradients, with rubbish in all the others."""
    case = case_for(row, way, system)
    first, *others = case.samples
    shorter = replace(case, samples=[replace(first, text=first.text[1:]), *others])  # texts of more than one length
    assert (
        check_masks(shorter) > 0 or "ISM" in row
    )  # which reads what has not met: all the layers after that are left out


@pytest.mark.parametrize(("row", "way", "system"), CELLS, ids=str)
def test_the_page_says_which_cells_are_filled(row: str, way: Chosen | Contrast, system: str) -> None:
    try:
        way.recipe(system)
        said = "yes"
    except RecipeError as error:
        (missing,) = re.findall(r"needs (.*), but .* provides .*choose another", str(error))
        said = next(why for need, why in WHY.items() if need in missing.split(" and "))
    assert table()[row][SYSTEMS[system].title] == said


def test_the_page_has_every_objective() -> None:
    assert list(table()) == list(ROWS)
    met = {type(o) for _, way, system in CELLS if accepted(way, system) for o in _objectives(way, system)}
    known = {one for one in vars(objectives).values() if isinstance(one, type) and hasattr(one, "changes")}
    assert known - met == OF_TASKS | {objectives.SummedByPair}  # which sums another by pair (loss_per=pair)
    assert not met & OF_TASKS


def _objectives(way: Chosen | Contrast, system: str) -> list[Objective]:
    return way.schedule(way.recipe(system)).objectives


def table() -> dict[str, dict[str, str]]:
    lines = PAGE[PAGE.index("\n| objective |") :].strip().split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}
