"""What is committed of the golden vectors, and how their weights are drawn."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.parity.sets import COMMITTED, weights

pytestmark = pytest.mark.parity


def test_each_system_has_a_committed_set_of_under_1_5_mb() -> None:
    systems = {"unified_vlp", "vl_bert", "tden"}
    assert systems <= {path.name for path in COMMITTED.iterdir()}
    for folder in (path for path in COMMITTED.iterdir() if path.is_dir()):
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 1_500_000, folder.name


def test_weights_that_torch_draws_otherwise_are_noticed(tmp_path: Path) -> None:
    told = COMMITTED / "vl_bert" / "weights_vqa.json"
    recipe = json.loads(told.read_text())
    theirs = load_file(weights(told.parent, told.stem, tmp_path))
    assert [(key, list(theirs[key].shape)) for key, *_ in recipe["tensors"]] == [
        (k, s) for k, s, *_ in recipe["tensors"]
    ]
    other = tmp_path / "other"
    other.mkdir()
    (other / told.name).write_text(json.dumps(recipe | {"seed": recipe["seed"] + 1}))
    with pytest.raises(AssertionError, match="draws other numbers"):
        weights(other, told.stem, other)


def test_weights_that_are_stored_are_taken(tmp_path: Path) -> None:
    assert weights(COMMITTED / "unified_vlp", "weights", tmp_path) == COMMITTED / "unified_vlp" / "weights.safetensors"
