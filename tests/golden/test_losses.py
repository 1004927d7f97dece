"""Twenty steps of every small recipe cost what they did: a net under whatever moves code."""

import os

import pytest

from diptych.systems import SYSTEMS
from tests.golden.losses import STEPS, Losses, Runs, read, recipes

pytestmark = pytest.mark.learns

GOLDEN = read()
# Each system once and each task once; all in `thorough` and by `make golden`.
HERE = (
    *(f"{system}/small/pretrain" for system in SYSTEMS), "unified-vlp/small/caption", "xgpt/small/scst",
    "image-bert/small/retrieval", "vl-bert/small/vcr", "vl-bert/small/referring", "image-bert/small/nlvr",
    "tden/small/vqa",
)  # fmt: skip
TO_THE_BIT = os.environ.get("DIPTYCH_GOLDEN") == "bitwise"  # on the machine that wrote the file alone: `make golden`
FIRST_STEP, ALL_STEPS = 1e-5, 1e-3  # relative: another machine rounds otherwise


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("golden"))


def test_every_small_recipe_is_in_the_file() -> None:
    assert list(GOLDEN) == recipes(), "run `make golden-write`, and name the change in the changelog"


@pytest.mark.parametrize(
    "recipe", [one if one in HERE else pytest.param(one, marks=pytest.mark.thorough) for one in GOLDEN]
)
def test_each_step_costs_what_it_did(recipe: str, runs: Runs) -> None:
    found = runs.losses(recipe)
    assert not (lines := differences(found, GOLDEN[recipe], TO_THE_BIT)), "\n".join([recipe, *lines])


def test_a_difference_is_found() -> None:
    wanted = {"loss": [2.0] * STEPS, "gradient_norm": [3.0] * STEPS}
    assert differences(wanted, wanted, True) == []
    for step, share, found in [(0, 2e-5, 1), (0, 5e-6, 0), (19, 2e-3, 1), (19, 5e-4, 0)]:
        for kind, before in wanted.items():
            numbers = [value * (1 + share * (at == step)) for at, value in enumerate(before)]
            assert len(differences({**wanted, kind: numbers}, wanted, False)) == found
            assert len(differences({**wanted, kind: numbers}, wanted, True)) == 1
    assert len(differences({**wanted, "loss": [float("nan")] * STEPS}, wanted, False)) == STEPS


def differences(found: Losses, wanted: Losses, to_the_bit: bool) -> list[str]:
    return [
        f"step {step + 1}: {kind} {now!r}, was {was!r}"
        for kind in wanted
        for step, (now, was) in enumerate(zip(found[kind], wanted[kind], strict=True))
        if now != was and (to_the_bit or now != pytest.approx(was, rel=ALL_STEPS if step else FIRST_STEP, abs=0))
    ]
