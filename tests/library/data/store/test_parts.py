"""However many processes share a batch, and however it is accumulated, they learn from the same samples."""

from pathlib import Path
from typing import Any

import pytest
import torch

from diptych.core import Batch, Record, Sample, Vocabulary
from diptych.data.store.corpus import Corpus
from diptych.data.store.loader import Loader
from diptych.data.store.store import Store
from diptych.data.store.tokens import Tokens
from diptych.objectives import (
    AnswerQuestion,
    Denoise,
    GenerateFragment,
    ImageTextMatching,
    MaskedLanguage,
    MaskedRegionClass,
    MatchGroups,
    OneForward,
    RegionContrast,
    Schedule,
    ScheduledSampling,
)
from diptych.training.config import OptimizerConfig, TrainingConfig
from diptych.training.distribution import Pass, PassRunner
from diptych.training.feeding import Sender
from diptych.training.ranks import Ranks
from diptych.training.step import Stepper
from diptych.training.stopping import StopRequest
from tests.library.data.conftest import MakeStore, record

V = Vocabulary(size=40, pad=0, unknown=1, cls=2, sep=3, mask=4)
BATCH = 8
UPDATES: dict[str, Any] = {
    "pairs, words and regions": OneForward(
        (ImageTextMatching(), MaskedLanguage(V, rate=0.5), MaskedRegionClass(rate=0.5))
    ),
    "groups": OneForward((MatchGroups(pairs=4),)),
    "two passes": ScheduledSampling(V, (MaskedLanguage(V),), GenerateFragment(V)),
    "spans": OneForward((Denoise(V),)),
    "contrast": OneForward((RegionContrast(rate=0.5),)),
    "questions": OneForward((AnswerQuestion(V, mask_one_word=True),)),
}


def samples(one: Record) -> list[Sample]:
    """Two texts of their own lengths and words."""
    number = int(one.key[1:])
    return [
        Sample(
            f"{one.key}#{n}", one.key, None, torch.tensor([*range(5 + n, 9 + 2 * n + number % 4), 20 + number, V.sep])
        )
        for n in range(2)
    ]


def loader(store: Store, update: Any, **more: Any) -> Loader:
    return Loader(store, range(len(store)), samples, Schedule(((update, 1.0),)), BATCH, seed=3, **more)


def rows(batch: Batch) -> list[tuple[Any, ...]]:
    """All that is not padding."""
    assert batch.seeds is not None
    found = []
    for row in range(len(batch)):
        words, regions = batch.text_present[row], batch.regions_present[row]
        target = (
            None
            if batch.target is None or batch.target_present is None
            else batch.target[row][batch.target_present[row]]
        )
        found.append(
            (
                batch.keys[row],
                batch.pictures[row],
                batch.groups[row],
                batch.attention[row].name,
                bool(batch.matched[row]),
                int(batch.seeds[row]),
                batch.text[row][words].tolist(),
                batch.text_labels[row][words].tolist(),
                batch.boxes[row][regions].tolist(),
                batch.chosen[row][regions].tolist(),
                batch.hidden[row][regions].tolist(),
                None if target is None else target.tolist(),
            )
        )
    return sorted(found, key=repr)


@pytest.mark.parametrize("parts", [2, 3, 4, BATCH])
@pytest.mark.parametrize("update", UPDATES)
def test_parts_are_the_same_samples(make_store: MakeStore, update: str, parts: int) -> None:
    store = make_store(12)
    whole = loader(store, UPDATES[update], mirror=0.5)
    for step in (0, 4):
        shared = [
            row
            for part in range(parts)
            for row in rows(loader(store, UPDATES[update], mirror=0.5).at(step, part, parts))
        ]
        assert sorted(shared, key=repr) == rows(whole.at(step, 0, 1))


def test_steps_and_samples_draw_by_themselves(make_store: MakeStore) -> None:
    whole = loader(make_store(4), OneForward((MaskedRegionClass(rate=0.5),)))
    seeds = [whole.at(step, 0, 1).seeds for step in range(3)]
    assert len(torch.stack([s for s in seeds if s is not None]).unique()) == 3 * BATCH


def test_text_alone_goes_to_its_part(make_store: MakeStore, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"a dog and {n} cats\n" for n in range(20)))
    tokens = Tokens.train(["a dog and cats"], 40, True, "wordpiece")
    corpus, update = Corpus(tmp_path / "text.txt", tokens, words=6), UPDATES["pairs, words and regions"]
    whole = loader(make_store(12), update, corpus=corpus)
    parts = [whole.at(2, part, 2) for part in range(2)]
    assert sorted([*rows(parts[0]), *rows(parts[1])], key=repr) == rows(whole.at(2, 0, 1))
    alone = [key for part in parts for key in part.keys if key.startswith("text.txt")]
    assert len(alone) == BATCH // 2


def hurt(store: Store, number: int) -> Store:
    """With one byte of a record's features changed."""
    regions = record(number).regions
    assert regions is not None
    assert regions.features is not None
    for shard in store.folder.glob("shard-*.safetensors"):
        content = bytearray(shard.read_bytes())
        if (at := content.find(regions.features.half().numpy().tobytes())) >= 0:
            content[at] ^= 1
            shard.write_bytes(content)
    return Store(store.folder)


@pytest.mark.parametrize("update", ["pairs, words and regions", "groups"])
def test_a_damaged_record_leaves_the_rest_alike(make_store: MakeStore, update: str) -> None:
    """Its own part does without it, and no wrong pair takes its picture."""
    store = hurt(make_store(4), 2)
    whole = loader(store, UPDATES[update]).at(0, 0, 1)
    assert "r2" not in whole.pictures
    parts = [loader(store, UPDATES[update]).at(0, part, BATCH) for part in range(BATCH)]
    assert [part.idle for part in parts].count(True) == 2, "two samples show the damaged picture"
    assert sorted((row for part in parts if not part.idle for row in rows(part)), key=repr) == rows(whole)


def test_nothing_is_learnt_from_a_part_that_cannot_be_read(make_store: MakeStore) -> None:
    store, update = hurt(make_store(4), 2), OneForward((MaskedLanguage(V),))
    batches, ranks = loader(store, update), Ranks(0, 1, torch.device("cpu"))
    alone = Pass(torch.nn.Linear(1, 1), ranks, "fp32")
    stepper = Stepper(
        module=torch.nn.Linear(1, 1),
        updates=Schedule(((update, 1.0),)),
        batches=batches,
        distributed=PassRunner(alone, alone),
        optimizer=torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1),
        config=OptimizerConfig(),
        training=TrainingConfig(steps=1, batch=BATCH, micro_batch=1),
        ranks=ranks,
        stop=StopRequest(),
        sender=Sender(torch.device("cpu")),
    )
    parts = [stepper.maker((0, part)) for part in range(BATCH)]
    assert [part.counts["masked_language"] for part in parts if part.batch.idle] == [0.0, 0.0]
    asked = sum(part.counts["masked_language"] for part in parts)
    assert asked == float(update.counts(batches.at(0, 0, 1))["masked_language"]) > 0
