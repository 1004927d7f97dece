"""A tiny BERT with random weights, in each form of its files that `init` reads."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

WIDTH, FFN, LAYERS, HEADS, POSITIONS = 32, 48, 2, 4, 40
CONFIG = {"model_type": "bert", "hidden_act": "gelu", "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
          "num_attention_heads": HEADS, "intermediate_size": FFN, "max_position_embeddings": POSITIONS}  # fmt: skip
LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789.,!?'-()", "\u732b"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "what", "does", "##og", "dog", "bird", "cafe"]
TOKENS = list(dict.fromkeys([*WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]))
FORMS = ("folder", "zip", "wheel", "package")


def write_folder(folder: Path, **config: object) -> Path:
    """A BERT as `transformers` writes it: without the prefix `bert.`, and without a word head."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    save_file(tensors(), folder / "model.safetensors")
    made = Tokenizer(WordPiece({token: number for number, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    made.enable_truncation(4)
    made.enable_padding(length=4)
    made.save(str(folder / "tokenizer.json"))
    return folder


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {"pooler.dense": (WIDTH, WIDTH), "embeddings.LayerNorm": (WIDTH,)}
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        shapes |= {f"{layer}.attention.self.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")}
        shapes |= {f"{layer}.attention.output.dense": (WIDTH, WIDTH), f"{layer}.intermediate.dense": (FFN, WIDTH)}
        shapes |= {f"{layer}.output.dense": (WIDTH, FFN)}
        shapes |= {f"{layer}.{norm}.LayerNorm": (WIDTH,) for norm in ("attention.output", "output")}
    rows = {"word": len(TOKENS), "position": POSITIONS, "token_type": 2}
    made = {f"embeddings.{name}_embeddings.weight": torch.randn(count, WIDTH) * 0.1 for name, count in rows.items()}
    made |= {f"{name}.weight": torch.randn(shape) * 0.1 for name, shape in shapes.items()}
    return made | {f"{name}.bias": torch.randn(shape[0]) * 0.1 for name, shape in shapes.items()}


def packed(files: dict[str, Path], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in files.items():
            archive.write(file, name)
    return path


def write(form: str, to: Path, **config: object) -> Path:
    """The source of a BERT in one of FORMS. Its zip also has a smaller config of another part."""
    folder = write_folder(to / "bert", **config)
    if form == "folder":
        return folder
    (other := to / "other.json").write_text("{}")
    files = {"1_Pooling/config.json": other} | {path.name: path for path in folder.iterdir()}
    made = packed(files, to / "package" / "model.zip")
    if form == "zip":
        return made
    return made.parent if form == "package" else packed({"package/model.zip": made}, to / "bert-1-py3-none-any.whl")
