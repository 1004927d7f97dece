"""The thorough comparison: which cells there are, what is made of their rows."""

from pathlib import Path

import pytest

from diptych_world.demo.comparison import Cell, ComparisonRow
from diptych_world.demo.demo import PRETRAINED, SCRATCH, DemoConfig, arm_settings
from experiments.thorough import GAIN, LONG, ThoroughConfig, figures_of, longer_cells


def _row(arm: str, seed: int, score: float, labels: int = 100) -> ComparisonRow:
    test = {"CIDEr": score, "BLEU-4": score / 2}
    return ComparisonRow("caption", arm, labels, seed, 1e-3, steps=400, best_step=300, val=score, test=test)


def _cell(task: str = "caption", arm: str = SCRATCH, labels: int = 100, seed: int = 0) -> Cell:
    return Cell(task, arm, labels, seed, 1e-3, None, "store", "out", arm_settings(DemoConfig(), labels))


def test_figures_are_means_with_spread_and_gains_compare_equal_seeds() -> None:
    rows = [_row(SCRATCH, 0, 40.0), _row(SCRATCH, 1, 50.0), _row(PRETRAINED, 1, 62.0), _row(PRETRAINED, 0, 60.0)]
    rows += [_row(LONG, 0, 42.0), _row(LONG, 1, 44.0)]
    here = figures_of(rows)["caption"]["100 scenes"]
    assert here[SCRATCH]["CIDEr"] == {"value": 45.0, "low": 40.0, "high": 50.0, "seeds": 2}
    assert here[LONG]["BLEU-4"] == {"value": 21.5, "low": 21.0, "high": 22.0, "seeds": 2}
    assert here[GAIN]["CIDEr"] == {"value": 16.0, "low": 12.0, "high": 20.0, "seeds": 2}


def test_scratch_is_also_trained_for_the_steps_of_both_phases() -> None:
    config = ThoroughConfig(demo=DemoConfig(pretrain_steps=1200))
    cells = [_cell(arm=SCRATCH), _cell(arm=PRETRAINED)]
    (longer,) = longer_cells(cells, [_row(SCRATCH, 0, 40.0), _row(PRETRAINED, 0, 60.0)], config)
    assert longer.start is None
    assert [s for s in longer.settings if s.startswith("training.steps")][-1] == "training.steps=1600"
    assert longer.folder not in {cell.folder for cell in cells}


@pytest.mark.parametrize(("train", "labels"), [(1000, (100, 300, 1000)), (20, (2, 6, 20))])
def test_labels_are_a_tenth_three_tenths_and_all(train: int, labels: tuple[int, ...]) -> None:
    assert ThoroughConfig.of(DemoConfig(train=train)).labels == labels


def test_more_labels_are_validated_more_seldom_and_may_take_longer() -> None:
    few, many = (arm_settings(DemoConfig(), labels) for labels in (100, 1000))
    assert {"training.validate_every=50", "training.steps=2000"} <= set(few)
    assert {"training.validate_every=200", "training.steps=20000"} <= set(many)


def test_a_cell_has_a_folder_of_its_own() -> None:
    cells = [_cell(), _cell(task="vqa"), _cell(arm=LONG), _cell(labels=300), _cell(seed=1)]
    assert len({cell.folder for cell in cells}) == len(cells)
    assert all(cell.folder.parent == Path("out") for cell in cells)
