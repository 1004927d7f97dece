"""Small recipes follow from what a task says of itself and what a system's model provides."""

from diptych.systems import RECIPES, SYSTEMS, hindrance
from diptych.tasks import CAPTION, NLVR, PRETRAIN, TASKS


def test_a_system_has_one_of_each_task_that_it_can_learn_and_a_reason_for_the_others() -> None:
    for name, system in SYSTEMS.items():
        for task, spec in TASKS.items():
            assert (f"{name}/small/{task}" in RECIPES) == (spec.pretrains or hindrance(system, spec) is None)
    assert "needs target, but vl-bert provides" in str(hindrance(SYSTEMS["vl-bert"], CAPTION))
    assert hindrance(SYSTEMS["vl-bert"], PRETRAIN) == "pretrain defines no small recipes"
    assert hindrance(SYSTEMS["xgpt"], NLVR) is None


def test_its_numbers_are_the_task_s() -> None:
    made = RECIPES["tden/small/nlvr"]()
    assert (made.task, made.data.max_words, made.training.batch) == ("nlvr", 24, 64)
    assert RECIPES["image-bert/small/retrieval"]().training.batch == 16
    assert made.model == RECIPES["tden/small/pretrain"]().model
