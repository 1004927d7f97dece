"""Words to ids and back: WordPiece through the `tokenizers` library, one `tokenizer.json` a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.trainers import WordPieceTrainer

from diptych.core import Vocabulary
from diptych.errors import CheckpointError, DataError
from diptych.files import write_atomically

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FILE = "tokenizer.json"


class Tokens:
    """A tokeniser with BERT's five special tokens. Built once and saved with the model."""

    def __init__(self, tokenizer: Tokenizer, where: str = "the tokeniser") -> None:
        ids = tokenizer.get_vocab()
        _check_special(ids, where)
        self._tokenizer = tokenizer
        inner = frozenset(number for token, number in ids.items() if token.startswith("##"))
        pad, unknown, cls, sep, mask = (ids[token] for token in SPECIAL)
        self.vocabulary = Vocabulary(tokenizer.get_vocab_size(), pad, unknown, cls, sep, mask, inner)

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 8000, lowercase: bool = True) -> Tokens:
        """WordPiece learnt from `texts`; words that fit stay whole. The same texts give the same ids."""
        texts = list(texts)
        if not texts:
            raise DataError("no text to learn a vocabulary from: the data holds no captions and no questions")
        tokenizer = _wordpiece(WordPiece(unk_token="[UNK]"), lowercase)
        # The trainer numbers letters by hash order and breaks ties by number: giving it all letters makes it repeat.
        letters = sorted({letter for text in texts for letter in tokenizer.normalizer.normalize_str(text)} - {" "})
        first = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
        tokenizer.train_from_iterator(
            texts, WordPieceTrainer(vocab_size=max(size, len(first)), special_tokens=first, show_progress=False)
        )
        learnt = sorted(
            tokenizer.get_vocab(), key=lambda token: (SPECIAL.index(token) if token in SPECIAL else 5, token)
        )
        return cls(_wordpiece(WordPiece({t: n for n, t in enumerate(learnt)}, unk_token="[UNK]"), lowercase))

    @classmethod
    def from_vocabulary(cls, path: Path, lowercase: bool) -> Tokens:
        """BERT's `vocab.txt`: one token a line, its number is its id. bert-base-cased keeps case, -uncased does not."""
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path} is no readable vocabulary ({error}); wanted one token a line") from error
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
            return cls(Tokenizer.from_file(str(path)), str(path))
        except CheckpointError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{path} is not a tokeniser ({error}); copy it again from its source") from error

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, self.to_json().encode())

    def encode(self, text: str) -> list[int]:
        """Ids without special tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def words(self, text: str) -> list[tuple[str, list[int]]]:
        """The words that `encode` cuts into pieces, each with their ids."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        words: list[tuple[str, list[int]]] = []
        for piece, number in zip(encoding.tokens, encoding.ids, strict=True):
            if piece.startswith("##") and words:
                words[-1] = (words[-1][0] + piece[2:], [*words[-1][1], number])
            else:
                words.append((piece, [number]))
        return words

    def decode(self, ids: Iterable[int]) -> str:
        """Words up to the first [SEP]; [UNK] stays to be seen, other special tokens do not."""
        hidden = {self.vocabulary.pad, self.vocabulary.cls, self.vocabulary.mask}
        words = takewhile(lambda number: number != self.vocabulary.sep, ids)
        return str(self._tokenizer.decode([n for n in words if n not in hidden], skip_special_tokens=False))

    def to_json(self) -> str:
        return str(self._tokenizer.to_str())


def _check_special(ids: Mapping[str, int], where: str) -> None:
    if missing := [token for token in SPECIAL if token not in ids]:
        raise CheckpointError(f"{where} lacks {', '.join(missing)}; it needs all of {', '.join(SPECIAL)}")


def _wordpiece(model: WordPiece, lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer
