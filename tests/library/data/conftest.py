from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from diptych.core import FeatureContract, Question, Record, Regions
from diptych.data.store.store import Store, StoreWriter

CONTRACT = FeatureContract("given", "", feature_size=4)
MakeStore = Callable[..., Store]


def record(number: int, regions: int | None = None, caption: str | None = None) -> Record:
    generator = torch.Generator().manual_seed(number)
    count = regions if regions is not None else number % 3 + 1
    seen = Regions(
        boxes=torch.rand(count, 4, generator=generator),
        scores=torch.rand(count, generator=generator),
        size=(20, 10),
        features=torch.rand(count, 4, generator=generator).half().float(),
        whole=torch.rand(4, generator=generator).half().float(),
    )
    words = caption if caption is not None else " ".join(["dog"] * (number % 5 + 1))
    questions = (Question(f"q{number}", "what is it?", ("dog", "cat"), "other"),)
    split = "val" if number % 4 == 3 else "train"
    return Record(
        f"r{number}",
        split,
        Path(f"/pictures/{number}.png"),
        (20, 10),
        (words, "a cat"),
        questions=questions,
        regions=seen,
    )


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    def make(count: int = 10, records_per_shard: int = 4) -> Store:
        with StoreWriter(tmp_path / "store", CONTRACT, records_per_shard) as writer:
            for number in range(count):
                writer.add(record(number))
        return Store(tmp_path / "store")

    return make
