"""The tokeniser that a run learnt lies beside it, and what changes it is seen when the run goes on."""

from pathlib import Path

import pytest

from diptych.data.store.store import Store, StoreWriter
from diptych.data.store.tokens import Tokens
from diptych.runs.run_folder import RunFolder
from diptych.runs.words import keep_tokens, tokens_of_run
from diptych.runtime.errors import CheckpointError
from diptych.runtime.outputs import claim
from diptych.systems import find_recipe
from tests.library.data.conftest import CONTRACT, record


def test_a_flipped_bit_of_a_runs_tokeniser_is_seen(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", CONTRACT) as writer:
        writer.add(record(0))
    store, recipe, out = Store(tmp_path / "store"), find_recipe("unified-vlp/small/pretrain"), tmp_path / "run"
    claim(out, "run")
    tokens = Tokens.train(["a dog and a cat"] * 9, 40)
    keep_tokens(tokens, out)
    folder = RunFolder(out, recipe, before=recipe)
    assert tokens_of_run(folder, store).to_json() == tokens.to_json()
    content = (out / "tokenizer.json").read_bytes()
    (out / "tokenizer.json").write_bytes(content.replace(b'dog"', b'eog"'))
    with pytest.raises(
        CheckpointError, match=r"tokenizer\.json has changed since it was written .*or start again in another folder"
    ):
        tokens_of_run(folder, store)
    (out / "tokenizer.json").write_bytes(content)
    assert tokens_of_run(folder, store).to_json() == tokens.to_json()
