"""The bytes of a shard are those that safetensors writes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from diptych.data.store import store
from diptych.data.store.store import StoreWriter
from diptych.data.store.tensor_file import tensor_file
from diptych.runtime.errors import DiptychError
from tests.library.data.conftest import CONTRACT, record


def test_pieces_are_as_the_library_writes_the_whole() -> None:
    kinds = {"boxes": torch.float32, "features": torch.float16, "classes": torch.float16, "masks": torch.bool,
             "words": torch.uint8, "ends": torch.int64}  # fmt: skip
    columns = {
        name: [(torch.rand(rows, 3, 2) * 9).to(kind)[:, :, :width] for rows in (2, 0, 5)]
        for (name, kind), width in zip(kinds.items(), (2, 1, 2, 1, 2, 2), strict=True)
    }
    whole = save({name: torch.cat(pieces).contiguous() for name, pieces in columns.items()})
    assert b"".join(tensor_file(columns)) == whole


@pytest.mark.parametrize("other", [torch.ones(1, 3), torch.ones(1, 2).half()])
def test_pieces_of_another_kind_are_refused(other: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"a piece of `features` is .*, expected torch.float32 with rows \(2,\)"):
        tensor_file({"features": [torch.ones(4, 2), other]})


def test_a_shard_that_cannot_be_written_ends_the_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread writes it: what goes wrong there is the caller's at the next shard, or at the end."""

    def full(path: Path, *content: object) -> None:
        raise DiptychError(f"the disk is full: {path.name}")

    monkeypatch.setattr(store, "write_atomically", full)
    to = StoreWriter(tmp_path, CONTRACT, 2)
    for number in range(3):
        to.add(record(number))
    with pytest.raises(DiptychError, match=r"the disk is full: shard-00000"):
        to.add(record(3))
