"""Tokenisers: convert texts to ids and back with the `tokenizers` library.

A tokeniser is one file, `tokenizer.json`. A vocabulary that Diptych trains is WordPiece by default. Its tokens include
the spaces, so decoding restores the text. With BERT's vocabulary (`vocab.txt`), texts are split as in BERT, which loses
spaces and accents; `decode` adds the usual spaces. XGPT uses BPE on words that the Moses tokeniser splits (appendix
A.2). Its tokens include the spaces too, except in vocabularies made before 0.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

from diptych.core import Vocabulary
from diptych.core.vocabulary import with_final_sigma
from diptych.data.store import moses
from diptych.runtime.errors import CheckpointError, DataError
from diptych.runtime.files import parse_json, text_of, write_atomically

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FILE = "tokenizer.json"
CASED_LEAST = 1000  # a vocabulary of at least this size is taken for uncased if it has no capital letters
END = "</w>"  # marks the end of a word in BPE
LONGEST_WORD = 1000  # number of letters; a longer string is data, not a word
ENDLESS = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")
SPACE = "▁"  # begins a token that follows a space, in vocabularies that Diptych trains
# (pattern, replacement). They remove the spaces that BERT's tokeniser puts around punctuation.
JOINS = (
    (r"(?<=\w) ' (?=(?:s|t|re|ve|ll|d|m)\b)", "'"),  # "dog ' s" becomes "dog's"
    (r"(?<=\w) - (?=\w)", "-"),  # "t - shirt" becomes "t-shirt"
    (r"(?<=\d) ?([.:/]) (?=\d)", r"\1"),  # "7 : 30" becomes "7:30"
    (r"(?<=\d) ?, (?=\d{3}\b)", ","),
    (r"\"\s+([^\"]*?)\s+\"", r'"\1"'),
    (r" +([.,!?;:%)\]}])", r"\1"),
    (r"([(\[{]) +", r"\1"),
)
# {part of a tokenizer.json: its accepted types}. They are the types of BERT and of BPE.
PARTS = {
    "model": {"WordPiece", "BPE"},
    "normalizer": {"BertNormalizer", "NFKC", "Lowercase"},
    "pre_tokenizer": {"BertPreTokenizer", "WhitespaceSplit"},
    "decoder": {"WordPiece", "BPEDecoder"},
}
Pieces = Literal["wordpiece", "bpe"]


class Tokens:
    """A tokeniser with BERT's five special tokens.

    It is saved with the model. Raises CheckpointError if a special token is missing, or if the ids of N tokens are not
    0 to N - 1.
    """

    def __init__(self, tokenizer: Tokenizer, where: str = "the tokeniser") -> None:
        ids = tokenizer.get_vocab()
        _check_special(ids, where)
        self._tokenizer = tokenizer
        # Pairs (pattern, replacement), which `decode` applies to a text in this order.
        self.joins = JOINS if isinstance(tokenizer.decoder, decoders.WordPiece) else ()
        self.kind: Pieces = "bpe" if isinstance(tokenizer.model, BPE) else "wordpiece"
        # False: encoding a text loses spaces, and may change letters (NFKC).
        self.keeps_spaces = isinstance(tokenizer.decoder, decoders.Sequence) or (
            self.kind == "bpe" and "NFKC" not in _types(json.loads(tokenizer.to_str())["normalizer"])
        )
        if self.keeps_spaces:  # these tokenisers encode "[SEP]" in a text as plain text
            tokenizer.encode_special_tokens = True
        inner = frozenset(number for token, number in ids.items() if token.startswith("##"))
        pad, unknown, cls, sep, mask = (ids[token] for token in SPECIAL)
        self._empty = {unknown, ids.get(SPACE, unknown)}
        normalizer = tokenizer.normalizer
        self._lowers = normalizer is not None and normalizer.normalize_str("Σ") == "σ"
        self.vocabulary = Vocabulary(tokenizer.get_vocab_size(), pad, unknown, cls, sep, mask, inner)

    @classmethod
    def train(
        cls, texts: Iterable[str], size: int = 8000, lowercase: bool = True, kind: Pieces = "wordpiece"
    ) -> Tokens:
        """Train a vocabulary of `size` tokens on texts. The same texts always give the same ids."""
        texts = list(texts)
        if not texts:
            raise DataError("no text to train a vocabulary on: the data has no captions and no questions; add some")
        return cls((_trained_bpe if kind == "bpe" else _trained_wordpiece)(texts, size, lowercase))

    @classmethod
    def from_vocabulary(cls, path: Path, lowercase: bool) -> Tokens:
        """Read BERT's `vocab.txt`: one token per line, whose id is the line's index from 0.

        `lowercase` is False for bert-base-cased, True for bert-base-uncased. `path` may also be a `tokenizer.json` or
        its folder, as `diptych tokenizer train` writes it; `lowercase` is then ignored. Raises CheckpointError.
        """
        wanted = "expected a file with one token per line"
        if path.is_dir() and not (path / FILE).is_file():
            raise CheckpointError(f"{path} is not a readable vocabulary (no {FILE} in this folder); {wanted}")
        if path.is_dir() or path.suffix == ".json":
            return cls.load(path)
        try:
            # `splitlines` would also split at U+2028, which may be a token.
            lines = text_of(path).removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path} is not a readable vocabulary ({error}); {wanted}") from error
        _check_case(lines, lowercase, path)
        ids = {token: number for number, token in enumerate(lines)}
        if len(ids) < len(lines):
            raise CheckpointError(f"{path} has duplicate tokens ({len(lines) - len(ids)}); remove the repeated lines")
        _check_special(ids, str(path))
        return cls(_wordpiece(WordPiece(ids, unk_token="[UNK]"), lowercase), str(path))

    @classmethod
    def load(cls, path: Path) -> Tokens:
        """Read a `tokenizer.json`, or the `tokenizer.json` in a folder. Raises CheckpointError."""
        path = path / FILE if path.is_dir() else path
        if not path.is_file():
            raise CheckpointError(f"no tokeniser at {path}; expected a {FILE}, as in a model folder")
        try:
            text = text_of(path)
            _check_parts(parse_json(text))
            tokenizer = Tokenizer.from_str(text)
            tokenizer.no_padding()
            tokenizer.no_truncation()
            return cls(tokenizer, str(path))
        except CheckpointError:
            raise
        except Exception as error:  # the library raises plain Exception
            raise CheckpointError(f"{path} is not a tokeniser ({error}); copy it again from its source") from error

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, self.to_json().encode())

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without adding special tokens."""
        return list(self._encoded(text).ids)

    def knows(self, ids: Sequence[int]) -> bool:
        """Return True if at least one id is neither [UNK] nor a space."""
        return any(number not in self._empty for number in ids)

    def words(self, text: str) -> list[tuple[str, list[int]]]:
        """Return the words of a text, each with the ids of its tokens. The ids together equal those of `encode`."""
        encoding = self._encoded(text)
        words: list[tuple[str, list[int]]] = []
        before = None
        for piece, number, word in zip(encoding.tokens, encoding.ids, encoding.word_ids, strict=True):
            plain = piece.removesuffix(END) if self.kind == "bpe" else piece.removeprefix("##")
            plain = plain.removeprefix(SPACE)
            if words and word is not None and word == before:
                words[-1] = (words[-1][0] + plain, [*words[-1][1], number])
            else:
                words.append((plain, [number]))
            before = word
        return words

    def decode(self, ids: Iterable[int], split: bool = False) -> str:
        """Return the text of ids up to the first [SEP]. [UNK] stays in the text; other special tokens are removed.

        `split`: keep the spaces of BERT's splitting (`t - shirt`), as in the papers' code for scores.
        """
        text = self._decoded(ids, split)
        return with_final_sigma(text) if self._lowers else text

    def _decoded(self, ids: Iterable[int], split: bool) -> str:
        hidden = {self.vocabulary.pad, self.vocabulary.cls, self.vocabulary.mask}
        written = takewhile(lambda number: number != self.vocabulary.sep, ids)
        shown = [number for number in written if number not in hidden]
        if self.kind == "wordpiece":
            text = str(self._tokenizer.decode(shown, skip_special_tokens=False))
            for pattern, replacement in () if split else self.joins:
                text = re.sub(pattern, replacement, text)
            # A model may predict several spaces in a row, which are joined.
            return " ".join(filter(None, text.split(" ")))
        begin, end = (SPACE, "") if self.keeps_spaces else (" ", " ")
        unknown = self.vocabulary.unknown
        pieces = (f"{begin}[UNK]{END}" if n == unknown else str(self._tokenizer.id_to_token(n)) for n in shown)
        text = "".join(pieces).replace(END, end)
        words = text.replace(SPACE, " ").split() if self.keeps_spaces else text.split()
        return " ".join(words) if self.keeps_spaces else moses.join(words)

    def to_json(self) -> str:
        return str(self._tokenizer.to_str())

    def _encoded(self, text: str) -> Any:
        if self.kind == "bpe":
            text = _marked(text) if self.keeps_spaces else " ".join(moses.cut(text))
        return self._tokenizer.encode(text, add_special_tokens=False)


def _check_parts(values: Any) -> None:
    """Raise ValueError for parts of types that Diptych does not use.

    Some of these types could take unbounded time or memory on a text.
    """
    for name, known in PARTS.items():
        part = values[name]
        if name != "model" and any(part == ours[name] for ours in _learnt_parts()):
            continue
        if unknown := _types(part) - known:
            raise ValueError(f"`{name}` is {', '.join(map(str, unknown))}, expected {' or '.join(sorted(known))}")


def _types(part: Mapping[str, Any]) -> set[str]:
    """Return the type of a part of a tokenizer.json. For a sequence, return the types of its steps."""
    return {step["type"] for step in part.get("normalizers", [part])}


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
        tokenizer, list(map(_marked, texts)), size, lambda letter: f"{letter}{END}", BpeTrainer, end_of_word_suffix=END
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


def _marked(text: str) -> str:
    """Split a text into words with Moses. Return the words joined by spaces.

    A word begins with SPACE if the text has a space before it. If Moses would change a letter, the text is split only
    at its spaces.
    """
    marked: list[str] = []
    rest = text
    for word in moses.cut(text):
        begins = rest.lstrip()
        if not begins.startswith(word):
            return " ".join(SPACE + word for word in text.split())
        marked.append(SPACE + word if begins != rest or not marked else word)
        rest = begins[len(word) :]
    return " ".join(marked)


def _bpe(model: BPE, lowercase: bool) -> Tokenizer:
    """Return a tokeniser with this BPE model for texts that `_marked` returned."""
    normalizer = normalizers.Sequence([normalizers.Lowercase()] if lowercase else [])
    return _assembled(model, normalizer, pre_tokenizers.WhitespaceSplit(), decoders.BPEDecoder(suffix=END))


def _assembled(model: WordPiece | BPE, normalizer: Any, pre_tokenizer: Any, decoder: Any) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, pre_tokenizer, decoder
    return tokenizer
