import pickle
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from diptych.models.weights import load_into
from diptych.runs.known_words import vocabulary_settings
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import find_weights, find_words, read_weights
from diptych.systems import find_recipe

TENSORS = {"weight": torch.arange(6.0).view(2, 3), "bias": torch.ones(2)}


def test_reads_safetensors_and_pytorch_files(tmp_path):
    save_file(TENSORS, tmp_path / "a.safetensors")
    torch.save(TENSORS, tmp_path / "a.bin")
    torch.save({"epoch": 3, "state_dict": TENSORS}, tmp_path / "a.pth")
    torch.save({"model": TENSORS, "optimizer": {"lr": 0.1}}, tmp_path / "a.pt")
    torch.save(TENSORS, tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    for name in ("a.safetensors", "a.bin", "a.pth", "a.pt", "old.bin"):
        read = read_weights(tmp_path / name)
        assert read.keys() == TENSORS.keys()
        assert all(torch.equal(read[key], TENSORS[key]) for key in TENSORS)


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def test_a_pickle_posing_as_weights_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.bin").write_bytes(pickle.dumps({"weight": Bomb()}))
    torch.save({"weight": Bomb()}, tmp_path / "b.bin")
    for name in ("a.bin", "b.bin"):
        with pytest.raises(CheckpointError, match="holds more than tensors, and loading it would run its code"):
            read_weights(tmp_path / name)
    (tmp_path / "a.safetensors").write_bytes(pickle.dumps({"weight": Bomb()}))
    with pytest.raises(CheckpointError, match="is not a safetensors file"):
        read_weights(tmp_path / "a.safetensors")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("kind", ["safetensors", "zip", "old"])
def test_a_file_cut_short_is_named(tmp_path, kind, share):
    big = {"weight": torch.rand(100, 50)}
    path = tmp_path / f"a.{'safetensors' if kind == 'safetensors' else 'bin'}"
    if kind == "safetensors":
        save_file(big, path)
    else:
        torch.save(big, path, _use_new_zipfile_serialization=kind == "zip")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CheckpointError, match=r"cut short|damaged") as caught:
        read_weights(path)
    assert str(path) in str(caught.value)


def test_what_is_no_file_of_weights_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"none\.bin is missing; expected a file of weights"):
        read_weights(tmp_path / "none.bin")
    with pytest.raises(CheckpointError, match="is a folder; expected a file of weights"):
        read_weights(tmp_path)
    (tmp_path / "empty.bin").touch()
    with pytest.raises(CheckpointError, match=r"empty\.bin is empty"):
        read_weights(tmp_path / "empty.bin")
    (tmp_path / "notes.bin").write_text("Dear reader, these are not weights.")
    with pytest.raises(CheckpointError, match="not a file of weights, or is damaged"):
        read_weights(tmp_path / "notes.bin")
    torch.save([1, 2], tmp_path / "list.bin")
    with pytest.raises(CheckpointError, match="has no tensors; expected a state dict"):
        read_weights(tmp_path / "list.bin")


def test_every_key_is_accounted_for():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    fresh = model[1].weight.clone()
    report = load_into(model, {"0.weight": TENSORS["weight"], "0.bias": TENSORS["bias"], "2.scale": torch.ones(1)})
    assert torch.equal(model[0].weight, TENSORS["weight"])
    assert torch.equal(model[1].weight, fresh)
    assert report.loaded == ["0.weight", "0.bias"]
    assert report.missing == ["1.weight", "1.bias"]
    assert report.left == {"2.scale": "not in the model"}
    assert report.lines() == [
        "missing  1.weight: keeps its initial value",
        "missing  1.bias: keeps its initial value",
        "left     2.scale: not in the model",
        "2 loaded, 0 renamed, 2 missing, 1 left",
    ]


def test_weights_of_another_model_are_refused():
    model = nn.Linear(4, 2)
    with pytest.raises(CheckpointError, match="is 2x3, expected 2x4; build the model with the sizes of the file"):
        load_into(model, TENSORS)
    with pytest.raises(CheckpointError, match="lacks 1 of the model's 2 tensors, such as weight"):
        load_into(model, {"bias": torch.ones(2)}, complete=True)
    with pytest.raises(CheckpointError, match="none of the file's 1 tensors belongs to this model"):
        load_into(model, {"other": torch.ones(2)})
    before = model.bias.clone()
    with pytest.raises(CheckpointError):
        load_into(model, {"bias": torch.ones(2), "weight": torch.ones(1)})
    assert torch.equal(model.bias, before)


def test_weights_are_found_in_a_folder_and_on_the_hub(tmp_path, monkeypatch):
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalEntryNotFoundError

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(CheckpointError, match=r"holds neither model.safetensors nor pytorch_model.bin"):
        find_weights(tmp_path)
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert find_weights(tmp_path) == tmp_path / "model.safetensors"

    def offline(name: str, file: str, **_: object) -> str:
        assert constants.HF_HUB_OFFLINE  # or the library would try for a minute
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(CheckpointError, match=r"the hub cannot be reached; download model.safetensors"):
        find_weights("bert-base-cased")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda name, file, **_: str(tmp_path / file))
    assert find_weights("someone/bert") == tmp_path / "model.safetensors"


def test_the_vocabulary_lies_beside_the_weights(tmp_path, monkeypatch):
    assert find_words(tmp_path) is None
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    assert find_words(tmp_path) == (tmp_path / "vocab.txt", None)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert find_words(tmp_path) == (tmp_path / "vocab.txt", False)
    assert find_words(tmp_path / "model.bin") is None
    both = [f'data.vocabulary="{tmp_path / "vocab.txt"}"', "data.lowercase=false"]
    assert vocabulary_settings([f"init={tmp_path}"]) == vocabulary_settings([f'init="{tmp_path}"']) == both
    recipe = find_recipe("unified-vlp/small/pretrain", [*both, f"init={tmp_path}"])
    assert (recipe.data.vocabulary, recipe.data.lowercase) == (str(tmp_path / "vocab.txt"), False)
    assert vocabulary_settings([f"init={tmp_path}", "data.lowercase=true"]) == both[:1]
    assert vocabulary_settings([f"init={tmp_path}", "data.vocabulary=mine.txt"]) == []
    assert vocabulary_settings(["init=none"]) == vocabulary_settings([]) == []
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file, **_: str(tmp_path / file))
    assert find_words("someone/bert") == (tmp_path / "vocab.txt", False)
    for damaged in ("[]", "[" * 200_000):
        (tmp_path / "tokenizer_config.json").write_text(damaged)
        with pytest.raises(CheckpointError, match=r"tokenizer_config\.json is damaged"):
            find_words(tmp_path)


@pytest.mark.parametrize(
    ("tensor", "kind"), [(torch.eye(3).to_sparse(), "sparse"), (torch.empty(3, device="meta"), "without values")]
)
def test_tensors_that_are_no_plain_numbers_are_named(tmp_path, tensor, kind):
    torch.save({"model": {"a.weight": tensor}}, tmp_path / "w.bin")
    with pytest.raises(CheckpointError, match=rf"w.bin: the tensor a.weight is {kind}; save it as a plain tensor"):
        read_weights(tmp_path / "w.bin")


def test_a_quantised_tensor_is_named(tmp_path):
    with warnings.catch_warnings(action="ignore"):  # torch says that there will be none one day
        tensor = torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8)
        torch.save({"a.weight": tensor}, tmp_path / "w.bin")
    with pytest.raises(CheckpointError, match=r"w.bin: the tensor a.weight is quantised; save it as a plain tensor"):
        read_weights(tmp_path / "w.bin")


def test_a_file_that_holds_itself_has_no_tensors(tmp_path):
    endless: dict[str, object] = {}
    endless["model"] = endless
    torch.save(endless, tmp_path / "w.bin")
    with pytest.raises(CheckpointError, match="has no tensors"):
        read_weights(tmp_path / "w.bin")
