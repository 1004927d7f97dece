import numpy as np
import pytest
import torch

from diptych.metrics.auroc import accuracy, auroc, class_auroc


def test_it_is_the_share_of_pairs_in_the_right_order() -> None:
    """Of 2 x 3 pairs: 0.8 beats three, 0.4 beats one and equals one."""
    scores, positive = np.array([0.8, 0.4, 0.6, 0.4, 0.1]), np.array([True, True, False, False, False])
    assert auroc(scores, positive) == pytest.approx(4.5 / 6)
    assert np.isnan(auroc(scores, np.zeros(5, dtype=bool)))


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 4])
def test_it_equals_torchmetrics(classes: int) -> None:
    from torchmetrics.functional.classification import binary_auroc, multiclass_auroc  # 40 MB

    random = np.random.default_rng(0)
    chances = random.dirichlet(np.ones(classes), size=300).round(2)  # rounded: some are equal
    right = random.integers(0, classes, size=300)
    given, wanted = torch.tensor(chances), torch.tensor(right)
    if classes == 2:
        theirs = binary_auroc(given[:, 1], wanted)
    else:
        theirs = multiclass_auroc(given, wanted, num_classes=classes, average="macro")
    assert class_auroc(chances, right) == pytest.approx(float(theirs), abs=1e-6)
    assert accuracy(chances, right) == (chances.argmax(1) == right).mean()
