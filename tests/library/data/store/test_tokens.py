import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from tokenizers import Tokenizer

from diptych.data.store.tokens import SPECIAL, Pieces, Tokens
from diptych.runtime.errors import CheckpointError, DataError

TEXTS = ["A red kite over the beach", "the boy holds an umbrella", "two dogs run near the bench", "Isn't it blue?"] * 3


def test_words_go_to_ids_and_back() -> None:
    tokens = Tokens.train(TEXTS, size=200)
    ids = tokens.encode("The boy over an umbrella")
    assert tokens.decode(ids) == "the boy over an umbrella"
    assert len(ids) == 5, "frequent words stay whole"
    assert tokens.decode([*ids, tokens.vocabulary.sep, *ids]) == "the boy over an umbrella"
    assert tokens.vocabulary.size <= 200


def test_an_unknown_letter_is_seen_as_unknown() -> None:
    tokens = Tokens.train(TEXTS, size=200)
    assert tokens.encode("ж") == [tokens.vocabulary.unknown]
    assert tokens.decode(tokens.encode("ж dogs")) == "[UNK] dogs"


@pytest.mark.slow
def test_the_same_texts_give_the_same_ids_in_another_process() -> None:
    """The library's trainer breaks ties by hash order, which differs between processes."""
    code = f"from diptych.data.store.tokens import Tokens; texts, kinds = {TEXTS!r}, {get_args(Pieces)!r}\n"
    code += "for kind in kinds: print(Tokens.train(texts, 90, kind=kind).to_json())"
    command = [sys.executable, "-c", code]  # an interpreter: its hash seed
    other = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert other == "".join(f"{Tokens.train(TEXTS, 90, kind=kind).to_json()}\n" for kind in get_args(Pieces))


def test_saving_keeps_everything(tmp_path: Path) -> None:
    tokens = Tokens.train(TEXTS, size=100)
    tokens.save(tmp_path)
    assert Tokens.load(tmp_path).to_json() == tokens.to_json()
    assert Tokens.load(tmp_path / "tokenizer.json").vocabulary == tokens.vocabulary


def test_pieces_of_words_as_bert_cuts_them(tmp_path: Path) -> None:
    """The longest piece first, without accents and case; a word of other pieces is [UNK] (Devlin et al., 2019)."""
    words = [*SPECIAL, "want", "##want", "##ed", "wa", "un", "runn", "##ing", ",", "##wa"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokens = Tokens.from_vocabulary(tmp_path / "vocab.txt", lowercase=True)
    pieces = [words[number] for number in tokens.encode("UNwantéd,running wanting unknown")]
    assert pieces == ["un", "##want", "##ed", ",", "runn", "##ing", "want", "##ing", "[UNK]"]


def test_bert_s_own_vocabulary(data_folder: Path) -> None:
    tokens = Tokens.from_vocabulary(data_folder / "bert" / "bert-base-uncased-vocab.txt", lowercase=True)
    assert tokens.vocabulary.size == 30522
    assert (tokens.vocabulary.cls, tokens.vocabulary.sep, tokens.vocabulary.mask) == (101, 102, 103)
    assert tokens.encode("Unaffable!") == [14477, 20961, 3468, 999]  # as in BERT's own tokenizer test
    assert tokens.decode(tokens.encode("Unaffable!")) == "unaffable!"


PLAIN = ["[", "]", "a", "b", *"adeknpsu", *(token[1:-1].lower() for token in SPECIAL), "s", "##s"]


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("lowercase", [True, False])
def test_a_special_token_in_a_text_is_text_for_berts_vocabulary(tmp_path: Path, special: str, lowercase: bool) -> None:
    """In a tokenizer.json too, which does not store this setting and may list the five as ordinary tokens."""
    inner = special[1:-1].lower() if lowercase else special[1:-1]
    words = list(dict.fromkeys([*SPECIAL, *PLAIN, *([] if lowercase else [inner])]))
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokens = Tokens.from_vocabulary(tmp_path / "vocab.txt", lowercase)
    made = json.loads(tokens.to_json())
    for token in made["added_tokens"]:
        token["special"] = False
    ordinary = Tokens(Tokenizer.from_str(json.dumps(made)))
    tokens.save(tmp_path)
    for one in (tokens, Tokens.load(tmp_path), ordinary):
        pieces = [words[number] for number in one.encode(f"a {special} b{special}")]
        assert pieces == ["a", "[", inner, "]", "b", "[", inner, "]"]
        assert [word for word, _ in one.words(f"a {special}")] == ["a", "[", inner, "]"]
        assert one.decode(one.encode(f"a {special} b")) == f"a [{inner}] b"
        assert one.knows(one.encode(special))


def test_case_is_kept_where_asked(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Dog", "dog"]))
    assert Tokens.from_vocabulary(tmp_path / "vocab.txt", lowercase=False).encode("Dog dog") == [5, 6]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\ndog", r"lacks the tokens \[MASK\]"),
        (b"dog\ndog", r"duplicate tokens \(1\); remove the repeated lines"),
        (b"\xff\xfe\x00", "not a readable vocabulary"),
        (None, "not a readable vocabulary"),
    ],
)
def test_a_vocabulary_that_is_none(tmp_path: Path, content: bytes | None, wanted: str) -> None:
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=wanted):
        Tokens.from_vocabulary(path, lowercase=True)


def test_a_tokeniser_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no tokeniser at"):
        Tokens.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="is not a tokeniser"):
        Tokens.load(tmp_path)


@pytest.mark.parametrize(
    ("part", "value", "wanted"),
    [
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False},
         "`pre_tokenizer` is Split"),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 99}, "`normalizer` is Replace"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Replace"}]}, "`normalizer` is Replace"),
        ("decoder", {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 99}, "`decoder` is Replace"),
        ("model", {"type": "Unigram", "unk_id": 0, "vocab": [["[PAD]", 0.0]]}, "`model` is Unigram"),
    ],
)  # fmt: skip
def test_parts_by_which_a_text_could_take_all_memory_are_refused(
    tmp_path: Path, part: str, value: object, wanted: str
) -> None:
    Tokens.train(TEXTS, 60).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {part: value}))
    with pytest.raises(CheckpointError, match=wanted):
        Tokens.load(tmp_path)


def test_no_text_is_filled_up_to_what_a_file_says(tmp_path: Path) -> None:
    """A billion pieces of [PAD] end the process."""
    tokens = Tokens.train(TEXTS, 60)
    tokens.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    padding = {"strategy": {"Fixed": 3000}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
               "pad_type_id": 0, "pad_token": "[PAD]"}  # fmt: skip
    cut = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"padding": padding, "truncation": cut}))
    assert Tokens.load(tmp_path).encode(TEXTS[0]) == tokens.encode(TEXTS[0])


@pytest.mark.parametrize("number", [10**9, 7])
def test_ids_that_are_no_rows_are_refused(tmp_path: Path, number: int) -> None:
    Tokens.train(TEXTS, 60).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    said = json.loads(path.read_text())
    said["model"]["vocab"][max(said["model"]["vocab"], key=said["model"]["vocab"].get)] = number
    path.write_text(json.dumps(said))
    with pytest.raises(CheckpointError, match=r"their ids are not 0 to \d+"):
        Tokens.load(tmp_path)


def test_no_text_to_learn_from() -> None:
    with pytest.raises(DataError, match="no text to train"):
        Tokens.train([])


def test_bpe_on_moses_words_goes_to_ids_and_back(tmp_path: Path) -> None:
    tokens = Tokens.train(TEXTS, size=200, kind="bpe")
    assert [word for word, _ in tokens.words("The boy's kite isn't blue.")] == [
        "the",
        "boy",
        "'s",
        "kite",
        "isn",
        "'t",
        "blue",
        "[UNK]",
    ]
    assert tokens.decode(tokens.encode("Isn't it blue, or the boy's?")) == "isn't it blue [UNK] or the boy's?"
    tokens.save(tmp_path)
    again = Tokens.load(tmp_path)
    assert again.kind == "bpe"
    assert again.encode("the boy's umbrella") == tokens.encode("the boy's umbrella")
    assert Tokens.from_vocabulary(tmp_path, lowercase=True).to_json() == tokens.to_json()


def test_bpe_cuts_what_it_does_not_know_into_pieces() -> None:
    tokens = Tokens.train(TEXTS, size=120, kind="bpe")
    ((word, pieces),) = tokens.words("kites")
    assert word == "kites"
    assert len(pieces) > 1
    ((word, pieces),) = tokens.words("ж")
    assert (word, pieces[-1]) == ("[UNK]", tokens.vocabulary.unknown)
    assert not tokens.knows(pieces)
    assert tokens.decode(tokens.encode("ж dogs")) == "[UNK] dogs"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_a_word_without_an_end_is_not_learnt_from(kind: Pieces) -> None:
    """Learning from one of three million letters took hours. A text without spaces, as Chinese has, is no such word."""
    plain = [*TEXTS, "狗" * 300]
    found = Tokens.train(plain, 200, kind=kind)
    assert Tokens.train([*plain, "x" * 1_000_000], 200, kind=kind).to_json() == found.to_json()
    assert found.encode("狗") != [found.vocabulary.unknown]


def test_a_tokeniser_with_steps_of_others_is_refused(tmp_path: Path) -> None:
    made = json.loads(Tokens.train(TEXTS, 200, kind="bpe").to_json())
    made["normalizer"]["normalizers"].insert(0, {"type": "NFKC"})
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(CheckpointError, match="`normalizer` is NFKC, expected BertNormalizer or Lowercase"):
        Tokens.load(tmp_path)
