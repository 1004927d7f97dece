"""`--without-images`: a control that sees nothing, in training and in scoring."""

from pathlib import Path

import pytest
import torch

from diptych.api.scoring import compare, evaluate
from diptych.api.training import finetune
from diptych.data.store.pixels import Pixels
from diptych.data.store.store import Store
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.folder import open_model
from diptych.runs.predict import predict
from diptych.runtime.errors import RecipeError
from tests.library.api.conftest import TINY


def test_a_control_learns_and_answers_from_the_texts_alone(world: Path, detector: str, tmp_path: Path) -> None:
    kept: dict[str, object] = {"recipe": "unified-vlp/small/vqa", "steps": 4, "batch_size": 8, "settings": TINY}
    seeing = finetune("vqa", world, out=tmp_path / "seeing", detector=detector, **kept)  # type: ignore[arg-type]
    store = Store(seeing.folder / "store")
    control = finetune("vqa", store, out=tmp_path / "control", without_images=True, **kept)  # type: ignore[arg-type]
    assert not control.recipe.data.images
    # What the control answers does not depend on the features of the store.
    hidden = store.without_images()
    assert torch.equal(hidden.regions(0).boxes[0], torch.tensor([0.0, 0, 1, 1]))
    assert not any(t.any() for name, t in hidden.record(0).regions.tensors().items() if name != "boxes")  # type: ignore[union-attr]
    assert store.regions(0).features.any()  # type: ignore[union-attr]
    folder = open_model(control.folder)
    assert predict(folder, store, "test").predictions == predict(folder, hidden, "test").predictions
    # A model that sees: other scores without images, and the paired gain.
    model = open_model(seeing.folder)
    said, scores = score_model(model, store, "test", without_images=True)
    assert said == predict(model, hidden, "test").predictions != predict(model, store, "test").predictions
    names = [score.name for score in scores.scores]
    assert names[-2:] == ["accuracy gained by images", "accuracy above blind"]
    assert "predicted without images: all regions are blank" in scores.notes
    gain = scores["accuracy gained by images"].value
    assert gain == pytest.approx(evaluate(seeing.folder, store)["accuracy"].value - scores["accuracy"].value)
    assert compare(control.folder, seeing.folder, store).low is not None


def test_pixels_are_hidden_too() -> None:
    picture = torch.full((3, 40, 60), 200, dtype=torch.uint8)
    assert Pixels(20, 60).read(picture).any()
    assert not Pixels(20, 60, blank=True).read(picture).any()


def test_what_points_at_regions_has_no_control(world: Path, detector: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="chooses among regions"):
        finetune("referring", world, recipe="unified-vlp/small/referring", out=tmp_path / "run", detector=detector,
                 without_images=True, steps=2, settings=TINY)  # fmt: skip
