from dataclasses import replace

import torch

from diptych.core import IGNORE, QUERIES_BEFORE, Regions, Sample, collate


def regions(count: int, feature: int = 3) -> Regions:
    return Regions(
        boxes=torch.rand(count, 4), scores=torch.rand(count), size=(20, 10), features=torch.rand(count, feature)
    )


def test_fields_are_padded_and_what_is_padding_is_known() -> None:
    long = Sample("a", "p", regions(3), torch.tensor([5, 6, 7]), text_labels=torch.tensor([IGNORE, 6, IGNORE]))
    short = Sample("b", "q", regions(1), torch.tensor([8]), matched=False, group="g")
    batch = collate([long, short])
    assert batch.text.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.text_present.tolist() == [[True, True, True], [True, False, False]]
    assert batch.text_labels.tolist() == [[IGNORE, 6, IGNORE], [IGNORE, IGNORE, IGNORE]]
    assert batch.regions_present.tolist() == [[True, True, True], [True, False, False]]
    assert batch.features is not None
    assert batch.features[1, 1:].eq(0).all()
    assert batch.features[0].equal(long.regions.features)  # type: ignore[union-attr]
    assert batch.matched.tolist() == [True, False]
    assert (batch.groups, batch.keys, batch.pictures) == ([None, "g"], ["a", "b"], ["p", "q"])
    assert batch.sizes.tolist() == [[20, 10], [20, 10]]


def test_a_sample_without_regions_has_none_present() -> None:
    batch = collate([Sample("a", "p", regions(2), torch.tensor([5])), Sample("b", "-", None, torch.tensor([5, 6]))])
    assert batch.regions_present.tolist() == [[True, True], [False, False]]
    assert batch.features is not None
    assert batch.features[1].eq(0).all()


def test_text_alone_collates() -> None:
    batch = collate([Sample("a", "-", None, torch.tensor([5]))])
    assert batch.boxes.shape == (1, 0, 4)
    assert batch.features is None


def test_targets_are_padded_with_labels_of_nothing() -> None:
    queries = {"target": torch.tensor([4, 4]), "target_labels": torch.tensor([5, 6])}
    one = Sample("a", "p", regions(1), torch.tensor([5, 6]), attention=QUERIES_BEFORE, **queries)
    two = Sample("b", "q", regions(1), torch.tensor([5]), target=torch.tensor([4]), target_labels=torch.tensor([5]))
    batch = collate([one, two])
    assert batch.target is not None
    assert batch.target_labels is not None
    assert batch.target_labels.tolist() == [[5, 6], [5, IGNORE]]
    assert batch.attention[0] is QUERIES_BEFORE


def test_moving_keeps_everything() -> None:
    batch = collate([Sample("a", "p", regions(2), torch.tensor([5]))]).to("cpu")
    assert batch.keys == ["a"]
    assert batch.text.tolist() == [[5]]


def test_batches_are_made_as_they_are_under_autocast() -> None:
    """As a validation in bf16 makes them of a store's fp16, which autocast does not know on a CPU."""
    half = replace(regions(2), features=torch.rand(2, 3).half(), whole=torch.rand(3).half())
    samples = [Sample(key, "p", half, torch.tensor([5])) for key in "ab"]
    with torch.autocast("cpu", torch.bfloat16):
        batch = collate(samples)
    assert batch.whole is not None
    assert batch.features is not None
    assert batch.whole.dtype == batch.features.dtype == torch.float16
