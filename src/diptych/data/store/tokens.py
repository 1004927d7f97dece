"""Tokenisers: convert texts to ids and back with the `tokenizers` library.

A tokeniser is one file, `tokenizer.json`. A vocabulary that Diptych trains is WordPiece by default. Its tokens include
the spaces, so decoding restores the text. With BERT's vocabulary (`vocab.txt`), texts are split as in BERT, which loses
spaces and accents; `decode` adds the usual spaces. XGPT uses BPE on words that the Moses tokeniser splits (appendix
A.2). Its tokens include the spaces too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import normalize

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

from diptych.data.store.texts import END, SPACE, SPECIAL, Encoder, Pieces, marked
from diptych.runtime.errors import CheckpointError, DataError, explained
from diptych.runtime.files import as_text, parse_json, text_of, write_atomically
from diptych.runtime.weight_files import ARCHIVES, read_packed

FILE = "tokenizer.json"
CASED_LEAST = 1000  # a vocabulary of at least this size is taken for uncased if it has no capital letters
LONGEST_WORD = 1000  # number of letters; a longer string is data, not a word
ENDLESS = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")
# {part of a tokenizer.json: its accepted types}. They are the types of BERT and of BPE.
PARTS = {
    "model": {"WordPiece", "BPE"},
    "normalizer": {"BertNormalizer", "Lowercase"},
    "pre_tokenizer": {"BertPreTokenizer", "WhitespaceSplit"},
    "decoder": {"WordPiece", "BPEDecoder"},
}


class Tokens(Encoder):
    """A tokeniser with BERT's five special tokens.

    It is saved with the model. Raises CheckpointError if a special token is missing, or if the ids of N tokens are not
    0 to N - 1.
    """

    def __init__(self, tokenizer: Tokenizer, where: str = "the tokeniser") -> None:
        _check_special(tokenizer.get_vocab(), where)
        super().__init__(tokenizer)

    @classmethod
    def train(
        cls, texts: Iterable[str], size: int = 8000, lowercase: bool = True, kind: Pieces = "wordpiece"
    ) -> Tokens:
        """Train a vocabulary of `size` tokens on texts. The same texts always give the same ids."""
        texts = [normalize("NFC", text) for text in texts]
        if not texts:
            raise DataError("no text to train a vocabulary on: the data has no captions and no questions; add some")
        return cls((_trained_bpe if kind == "bpe" else _trained_wordpiece)(texts, size, lowercase))

    @classmethod
    def from_vocabulary(cls, path: Path, lowercase: bool) -> Tokens:
        """Read BERT's `vocab.txt`: one token per line, whose id is the line's index from 0.

        `lowercase` is False for bert-base-cased, True for bert-base-uncased. `path` may also be a `tokenizer.json`, its
        folder, or a zip or wheel that has one; `lowercase` is then ignored. Raises CheckpointError.
        """
        wanted = "expected a file with one token per line"
        if path.is_dir() and not (path / FILE).is_file():
            raise CheckpointError(f"{path} is not a readable vocabulary (no {FILE} in this folder); {wanted}")
        if path.is_dir() or path.suffix in (".json", *ARCHIVES):
            return cls.load(path)
        with explained(CheckpointError, f"{path} is not a readable vocabulary", wanted):
            # `splitlines` would also split at U+2028, which may be a token.
            lines = text_of(path).removesuffix("\n").split("\n")
        _check_case(lines, lowercase, path)
        ids = {token: number for number, token in enumerate(lines)}
        if len(ids) < len(lines):
            raise CheckpointError(f"{path} has duplicate tokens ({len(lines) - len(ids)}); remove the repeated lines")
        _check_special(ids, str(path))
        return cls(_wordpiece(WordPiece(ids, unk_token="[UNK]"), lowercase), str(path))

    @classmethod
    def load(cls, path: Path) -> Tokens:
        """Read a `tokenizer.json`, or the `tokenizer.json` in a folder, zip or wheel. Raises CheckpointError."""
        path = path / FILE if path.is_dir() else path
        if not path.is_file():
            raise CheckpointError(f"no tokeniser at {path}; expected a {FILE}, as in a model folder")
        with explained(CheckpointError, f"{path} is not a tokeniser", "copy it again from its source", Exception):
            text = as_text(read_packed(path, FILE)) if path.suffix in ARCHIVES else text_of(path)
            _check_parts(parse_json(text))
            tokenizer = Tokenizer.from_str(text)
            tokenizer.no_padding()
            tokenizer.no_truncation()
            return cls(tokenizer, str(path))

    @property
    def lowercase(self) -> bool:
        """True if texts are lower-cased."""
        return self._lowers

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, self.to_json().encode())

    def to_json(self) -> str:
        return str(self._tokenizer.to_str())


def _check_parts(values: Any) -> None:
    """Raise ValueError for parts of types that Diptych does not use.

    Some of these types could take unbounded time or memory on a text.
    """
    for name, known in PARTS.items():
        part = values[name]
        if name != "model" and any(part == ours[name] for ours in _learnt_parts()):
            continue
        if unknown := {step["type"] for step in part.get("normalizers", [part])} - known:
            raise ValueError(f"`{name}` is {', '.join(map(str, unknown))}, expected {' or '.join(sorted(known))}")


def _check_case(tokens: Sequence[str], lowercase: bool, path: Path) -> None:
    """Raise CheckpointError if the vocabulary is cased and `lowercase` is True, or the reverse.

    Otherwise words would silently become [UNK] or single letters.
    """
    capitals = next((t for t in tokens if t[:1] != "[" and t.isascii() and t != t.lower()), None)
    if lowercase and capitals is not None:
        raise CheckpointError(
            f"{path} is cased (it has {capitals!r}), but texts are lower-cased; set data.lowercase=false (for an "
            "import: --cased), or pass an uncased vocabulary"
        )
    if not lowercase and capitals is None and len(tokens) >= CASED_LEAST:
        raise CheckpointError(
            f"{path} is uncased (no token has a capital letter), but texts keep their case; set "
            "data.lowercase=true (for an import: --uncased), or pass a cased vocabulary"
        )


def _check_special(ids: Mapping[str, int], where: str) -> None:
    if set(ids.values()) != set(range(len(ids))):
        raise CheckpointError(
            f"{where} has {len(ids)} tokens, but their ids are not 0 to {len(ids) - 1}; copy it again"
        )
    if missing := [token for token in SPECIAL if token not in ids]:
        raise CheckpointError(f"{where} lacks the tokens {', '.join(missing)}; pass a vocabulary that has them")


def _trained_wordpiece(texts: list[str], size: int, lowercase: bool) -> Tokenizer:
    tokenizer = _learnt(WordPiece(unk_token="[UNK]"), lowercase)
    _train(tokenizer, texts, size, lambda letter: f"##{letter}", WordPieceTrainer)
    tokens = sorted(tokenizer.get_vocab(), key=lambda token: (SPECIAL.index(token) if token in SPECIAL else 5, token))
    ids = {token: number for number, token in enumerate(tokens)}
    return _learnt(WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD), lowercase)


def _trained_bpe(texts: list[str], size: int, lowercase: bool) -> Tokenizer:
    tokenizer = _bpe(BPE(unk_token="[UNK]", end_of_word_suffix=END), lowercase)
    _train(
        tokenizer, list(map(marked, texts)), size, lambda letter: f"{letter}{END}", BpeTrainer, end_of_word_suffix=END
    )
    merges = [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    ids = tokenizer.get_vocab()
    return _bpe(BPE(ids, merges, unk_token="[UNK]", end_of_word_suffix=END), lowercase)


def _train(
    tokenizer: Tokenizer, texts: list[str], size: int, variant: Callable[[str], str], trainer: Any, **options: Any
) -> None:
    """Train a tokeniser. All letters of the texts are passed to the library as special tokens.

    Without this, the library numbers letters in hash order and breaks ties by number. Results would not be
    reproducible.
    """
    texts = [_without_endless(tokenizer, text) if ENDLESS.search(text) else text for text in texts]
    letters = sorted({letter for text in texts for letter in tokenizer.normalizer.normalize_str(text)} - {" "})
    letters += [SPACE] if isinstance(tokenizer.model, WordPiece) and SPACE not in letters else []
    first = [*SPECIAL, *letters, *map(variant, letters)]
    size = max(size, len(first))
    tokenizer.train_from_iterator(texts, trainer(vocab_size=size, special_tokens=first, show_progress=False, **options))


def _without_endless(tokenizer: Tokenizer, text: str) -> str:
    """Remove words of more than LONGEST_WORD letters, such as embedded data. Training on them would take hours."""
    words = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))
    return " ".join(word for word, _ in words if len(word) <= LONGEST_WORD)


def _learnt(model: WordPiece, lowercase: bool) -> Tokenizer:
    """Return a tokeniser that splits texts into words (with SPACE before each), punctuation signs and Han characters.

    It changes only the case of letters, so joining the tokens restores the text.
    """
    steps = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    normalizer = normalizers.Sequence([*steps, *([normalizers.Lowercase()] if lowercase else [])])
    signs = Regex(rf"{SPACE}?(?!{SPACE})[\p{{P}}\p{{S}}\p{{Han}}]")
    words = [pre_tokenizers.Metaspace(SPACE, "always"), pre_tokenizers.Split(signs, "isolated")]
    unknown = decoders.Replace("[UNK]", f"{SPACE}[UNK]")
    joined = [decoders.Replace("##", ""), unknown, decoders.Fuse(), decoders.Replace(SPACE, " ")]
    decoder = decoders.Sequence([*joined, decoders.Strip(" ", 1, 0)])
    return _assembled(model, normalizer, pre_tokenizers.Sequence(words), decoder)


@cache
def _learnt_parts() -> list[dict[str, Any]]:
    return [json.loads(_learnt(WordPiece({"[UNK]": 0}), lowercase).to_str()) for lowercase in (True, False)]


def _wordpiece(model: WordPiece, lowercase: bool) -> Tokenizer:
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    return _assembled(model, normalizer, pre_tokenizers.BertPreTokenizer(), decoders.WordPiece())


def _bpe(model: BPE, lowercase: bool) -> Tokenizer:
    """Return a tokeniser with this BPE model for texts that `_marked` returned."""
    normalizer = normalizers.Sequence([normalizers.Lowercase()] if lowercase else [])
    return _assembled(model, normalizer, pre_tokenizers.WhitespaceSplit(), decoders.BPEDecoder(suffix=END))


def _assembled(model: WordPiece | BPE, normalizer: Any, pre_tokenizer: Any, decoder: Any) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, pre_tokenizer, decoder
    return tokenizer
