"""Words to ids and back through the `tokenizers` library: WordPiece, or BPE on Moses' words. One file a model.

WordPiece is BERT's, and what a recipe gets that asks for nothing else. BPE is XGPT's (appendix A.2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

from diptych.core import Vocabulary
from diptych.data.store import moses
from diptych.runtime.errors import CheckpointError, DataError
from diptych.runtime.files import parse_json, text_of, write_atomically

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FILE = "tokenizer.json"
CASED_LEAST = 1000  # tokens of which a cased vocabulary has some with a capital
END = "</w>"  # of a word, in BPE
LONGEST_WORD = 1000  # in letters: what is longer is no word
ENDLESS = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")
# Of a tokenizer.json, by type: BERT's and ours.
PARTS = {
    "model": {"WordPiece", "BPE"},
    "normalizer": {"BertNormalizer", "NFKC", "Lowercase"},
    "pre_tokenizer": {"BertPreTokenizer", "WhitespaceSplit"},
    "decoder": {"WordPiece", "BPEDecoder"},
}
Kind = Literal["wordpiece", "bpe"]


class Tokens:
    """A tokeniser with BERT's five special tokens. Built once and saved with the model."""

    def __init__(self, tokenizer: Tokenizer, where: str = "the tokeniser") -> None:
        ids = tokenizer.get_vocab()
        _check_special(ids, where)
        self._tokenizer = tokenizer
        self.kind: Kind = "bpe" if isinstance(tokenizer.model, BPE) else "wordpiece"
        inner = frozenset(number for token, number in ids.items() if token.startswith("##"))
        pad, unknown, cls, sep, mask = (ids[token] for token in SPECIAL)
        self.vocabulary = Vocabulary(tokenizer.get_vocab_size(), pad, unknown, cls, sep, mask, inner)

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 8000, lowercase: bool = True, kind: Kind = "wordpiece") -> Tokens:
        """A vocabulary learnt from `texts`; words that fit stay whole. The same texts give the same ids."""
        texts = list(texts)
        if not texts:
            raise DataError("no text to learn a vocabulary from: the data holds no captions and no questions")
        return cls(_learnt_bpe(texts, size, lowercase) if kind == "bpe" else _learnt_wordpiece(texts, size, lowercase))

    @classmethod
    def from_vocabulary(cls, path: Path, lowercase: bool) -> Tokens:
        """BERT's `vocab.txt`: one token a line, its number is its id. bert-base-cased keeps case, -uncased does not.

        Or a `tokenizer.json`, or the folder that holds it, as `diptych tokens` makes them; these know their case.
        """
        if path.is_dir() and not (path / FILE).is_file():
            raise CheckpointError(
                f"{path} is no readable vocabulary (a folder without {FILE}); wanted one token a line"
            )
        if path.is_dir() or path.suffix == ".json":
            return cls.load(path)
        try:
            lines = text_of(path).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path} is no readable vocabulary ({error}); wanted one token a line") from error
        _check_case(lines, lowercase, path)
        ids = {token: number for number, token in enumerate(lines)}
        if len(ids) < len(lines):
            raise CheckpointError(f"{path} has {len(lines) - len(ids)} tokens twice; wanted one token a line")
        _check_special(ids, str(path))
        return cls(_wordpiece(WordPiece(ids, unk_token="[UNK]"), lowercase), str(path))

    @classmethod
    def load(cls, path: Path) -> Tokens:
        """From a `tokenizer.json`, or from the folder that holds it."""
        path = path / FILE if path.is_dir() else path
        if not path.is_file():
            raise CheckpointError(f"no tokeniser at {path}; a model folder holds {FILE}")
        try:
            text = text_of(path)
            _check_parts(parse_json(text))
            tokenizer = Tokenizer.from_str(text)
            tokenizer.no_padding()
            tokenizer.no_truncation()
            return cls(tokenizer, str(path))
        except CheckpointError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{path} is not a tokeniser ({error}); copy it again from its source") from error

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, self.to_json().encode())

    def encode(self, text: str) -> list[int]:
        """Ids without special tokens."""
        return list(self._encoded(text).ids)

    def knows(self, ids: Sequence[int]) -> bool:
        """Whether at least one of a text's ids stands for something in the vocabulary."""
        return any(number != self.vocabulary.unknown for number in ids)

    def words(self, text: str) -> list[tuple[str, list[int]]]:
        """The words that `encode` cuts into pieces, each with their ids."""
        encoding = self._encoded(text)
        words: list[tuple[str, list[int]]] = []
        before = None
        for piece, number, word in zip(encoding.tokens, encoding.ids, encoding.word_ids, strict=True):
            plain = piece.removesuffix(END) if self.kind == "bpe" else piece.removeprefix("##")
            if words and word is not None and word == before:
                words[-1] = (words[-1][0] + plain, [*words[-1][1], number])
            else:
                words.append((plain, [number]))
            before = word
        return words

    def decode(self, ids: Iterable[int]) -> str:
        """Words up to the first [SEP]; [UNK] stays to be seen, other special tokens do not."""
        hidden = {self.vocabulary.pad, self.vocabulary.cls, self.vocabulary.mask}
        written = takewhile(lambda number: number != self.vocabulary.sep, ids)
        shown = [number for number in written if number not in hidden]
        if self.kind == "wordpiece":
            return str(self._tokenizer.decode(shown, skip_special_tokens=False))
        unknown = self.vocabulary.unknown
        pieces = (f" [UNK]{END}" if n == unknown else str(self._tokenizer.id_to_token(n)) for n in shown)
        return moses.join("".join(pieces).replace(END, " ").split())

    def to_json(self) -> str:
        return str(self._tokenizer.to_str())

    def _encoded(self, text: str) -> Any:
        text = " ".join(moses.cut(text)) if self.kind == "bpe" else text
        return self._tokenizer.encode(text, add_special_tokens=False)


def _check_parts(values: Any) -> None:
    """Raises ValueError for parts that none of ours has: of others' a text can take all time and memory."""
    for name, known in PARTS.items():
        part = values[name]
        steps = part["normalizers"] if name == "normalizer" and part["type"] == "Sequence" else [part]
        if unknown := {step["type"] for step in steps} - known:
            raise ValueError(f"{name} is {', '.join(map(str, unknown))}, wanted {' or '.join(sorted(known))}")


def _check_case(tokens: Sequence[str], lowercase: bool, path: Path) -> None:
    """Words of the other case would be read as [UNK] or letter by letter, and no error would say so."""
    capitals = next((t for t in tokens if t[:1] != "[" and t.isascii() and t != t.lower()), None)
    if lowercase and capitals is not None:
        raise CheckpointError(
            f"{path} is cased (it has {capitals!r}), and texts are lower-cased; set data.lowercase=false (of an "
            "import: --cased), or give an uncased vocabulary"
        )
    if not lowercase and capitals is None and len(tokens) >= CASED_LEAST:
        raise CheckpointError(
            f"{path} is uncased (no token has a capital letter), and texts keep their case; set "
            "data.lowercase=true (of an import: --uncased), or give a cased vocabulary"
        )


def _check_special(ids: Mapping[str, int], where: str) -> None:
    if set(ids.values()) != set(range(len(ids))):
        raise CheckpointError(f"{where} gives its {len(ids)} tokens other ids than 0 to {len(ids) - 1}; copy it again")
    if missing := [token for token in SPECIAL if token not in ids]:
        raise CheckpointError(f"{where} lacks {', '.join(missing)}; it needs all of {', '.join(SPECIAL)}")


def _learnt_wordpiece(texts: list[str], size: int, lowercase: bool) -> Tokenizer:
    tokenizer = _wordpiece(WordPiece(unk_token="[UNK]"), lowercase)
    _learn(tokenizer, texts, size, lambda letter: f"##{letter}", WordPieceTrainer)
    learnt = sorted(tokenizer.get_vocab(), key=lambda token: (SPECIAL.index(token) if token in SPECIAL else 5, token))
    return _wordpiece(WordPiece({t: n for n, t in enumerate(learnt)}, unk_token="[UNK]"), lowercase)


def _learnt_bpe(texts: list[str], size: int, lowercase: bool) -> Tokenizer:
    tokenizer = _bpe(BPE(unk_token="[UNK]", end_of_word_suffix=END), lowercase)
    words = [" ".join(moses.cut(text)) for text in texts]
    _learn(tokenizer, words, size, lambda letter: f"{letter}{END}", BpeTrainer, end_of_word_suffix=END)
    merges = [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    ids = tokenizer.get_vocab()
    return _bpe(BPE(ids, merges, unk_token="[UNK]", end_of_word_suffix=END), lowercase)


def _learn(
    tokenizer: Tokenizer, texts: list[str], size: int, variant: Callable[[str], str], trainer: Any, **options: Any
) -> None:
    """The trainers number letters by hash order and break ties by number: giving them all letters makes them repeat."""
    texts = [_without_endless(tokenizer, text) if ENDLESS.search(text) else text for text in texts]
    letters = sorted({letter for text in texts for letter in tokenizer.normalizer.normalize_str(text)} - {" "})
    first = [*SPECIAL, *letters, *map(variant, letters)]
    size = max(size, len(first))
    tokenizer.train_from_iterator(texts, trainer(vocab_size=size, special_tokens=first, show_progress=False, **options))


def _without_endless(tokenizer: Tokenizer, text: str) -> str:
    """Words of more letters than any has are none (data, say), and learning from them would take hours."""
    words = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))
    return " ".join(word for word, _ in words if len(word) <= LONGEST_WORD)


def _wordpiece(model: WordPiece, lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _bpe(model: BPE, lowercase: bool) -> Tokenizer:
    """Its input is what `moses.cut` made, parted by spaces."""
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(list(SPECIAL))
    steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.BPEDecoder(suffix=END)
    return tokenizer
