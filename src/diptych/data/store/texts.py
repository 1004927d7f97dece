"""Encode texts as token ids, and decode them, with a tokeniser of the `tokenizers` library.

`diptych export` copies this module into run.py, with the modules of Diptych that it imports.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, Literal
from unicodedata import normalize

from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE

from diptych.core.vocabulary import Vocabulary, with_final_sigma
from diptych.data.store.moses import cut

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END = "</w>"  # marks the end of a word in BPE
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
Pieces = Literal["wordpiece", "bpe"]


class Encoder:
    """Encodes and decodes texts with a tokeniser that has BERT's five special tokens. Texts are first put in NFC."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.get_vocab()
        self._tokenizer = tokenizer
        # Pairs (pattern, replacement), which `decode` applies to a text in this order.
        self.joins = JOINS if isinstance(tokenizer.decoder, decoders.WordPiece) else ()
        self.kind: Pieces = "bpe" if isinstance(tokenizer.model, BPE) else "wordpiece"
        # False: encoding a text loses spaces, and may change letters (NFKC).
        self.keeps_spaces = isinstance(tokenizer.decoder, decoders.Sequence) or self.kind == "bpe"
        # A text is data: "[SEP]" in it becomes the tokens of "[", "SEP" and "]". A tokenizer.json does not store this
        # setting. It applies to special tokens only, and a file may list the five as others.
        tokenizer.add_special_tokens(list(SPECIAL))
        tokenizer.encode_special_tokens = True
        inner = frozenset(number for token, number in ids.items() if token.startswith("##"))
        pad, unknown, cls, sep, mask = (ids[token] for token in SPECIAL)
        self._empty = {unknown, ids.get(SPACE, unknown)}
        normalizer = tokenizer.normalizer
        self._lowers = normalizer is not None and normalizer.normalize_str("Σ") == "σ"
        self.vocabulary = Vocabulary(tokenizer.get_vocab_size(), pad, unknown, cls, sep, mask, inner)

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
        unknown = self.vocabulary.unknown
        pieces = (f"{SPACE}[UNK]" if n == unknown else str(self._tokenizer.id_to_token(n)) for n in shown)
        return " ".join("".join(pieces).replace(END, "").replace(SPACE, " ").split())

    def _encoded(self, text: str) -> Any:
        text = normalize("NFC", text)
        if self.kind == "bpe":
            text = marked(text)
        return self._tokenizer.encode(text, add_special_tokens=False)


def marked(text: str) -> str:
    """Split a text into words with Moses. Return the words joined by spaces.

    A word begins with SPACE if the text has a space before it. If Moses would change a letter, the text is split only
    at its spaces.
    """
    words: list[str] = []
    rest = text
    for word in cut(text):
        begins = rest.lstrip()
        if not begins.startswith(word):
            return " ".join(SPACE + word for word in text.split())
        words.append(SPACE + word if begins != rest or not words else word)
        rest = begins[len(word) :]
    return " ".join(words)
