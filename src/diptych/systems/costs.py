"""What recipes cost on one GPU, from the rates measured on an H100 (docs/results/gpu.md)."""

from collections.abc import Iterable
from dataclasses import dataclass

from diptych.systems.recipe import Recipe

# {system: positions per second of a pre-training step: samples per second x positions}; TDEN: of its two passes.
RATES = {"unified-vlp": 2800 * 139, "vl-bert": 2843 * 139, "image-bert": 2932 * 139, "tden": 1123 * 87}


@dataclass(frozen=True)
class Cost:
    """The cost of training with some recipes, one after the other."""

    samples: int = 0  # sequences that the model reads: mismatched pairs and choices count
    positions: int = 0  # maximum length of a sequence: regions, tokens and 3 special tokens
    hours: float = 0.0  # on one H100, of the measured recipes, if the rate is in inverse proportion to the length
    unmeasured: tuple[str, ...] = ()  # recipes of XGPT, with pixels or with rewards

    def __str__(self) -> str:
        left = f"; not measured: {', '.join(self.unmeasured)}" if self.unmeasured else ""
        read = f"{self.samples / 1e6:.1f} M samples of at most {self.positions} positions"
        return f"{read}, {self.hours:.1f} h on one H100{left}"


def cost_of(recipes: Iterable[Recipe]) -> Cost:
    """Return the cost of the recipes together."""
    cost = Cost()
    for recipe in recipes:
        added, training = getattr(recipe.objectives, "wrong_pairs", "") == "added", recipe.training
        group = 3 if added else 4 if recipe.task == "vcr" else getattr(recipe.objectives, "pairs", 1)
        length, read = recipe.model.max_regions + recipe.data.max_words + 3, training.steps * training.batch * group
        told = "features" in recipe.reads and recipe.objectives.kind != "self-critical" and recipe.system in RATES
        hours = cost.hours + read * length / RATES[recipe.system] / 3600 if told else cost.hours
        left = dict.fromkeys((*cost.unmeasured, *[recipe.name] * (not told)))
        cost = Cost(cost.samples + read, max(cost.positions, length), hours, tuple(left))
    return cost
