"""Vocabularies that Diptych learns give a text back as it was read, and a perfect model gets a perfect score."""

import re
from pathlib import Path
from random import Random
from typing import Any, get_args
from unicodedata import normalize

import pytest

from diptych.data.store.tokens import SPECIAL, Pieces, Tokens
from diptych.metrics.captions import caption_scores
from diptych.runtime.errors import CheckpointError
from diptych.tasks.caption import score_captions

SENTENCES = {
    "English": "a man in a t-shirt at 7:30 by the dog's bowl",
    "signs": 'the sign says "50% off (2 for $1,000.50)", isn\'t it? see http://x.org/a?b=1&c=d#e or me@x.org — 5 km/h',
    "Chinese": "一个孩子在公园里放红色的风筝",
    "Japanese": "子供が公園で赤い凧を揚げています。",
    "Thai": "เด็กกำลังเล่นว่าวสีแดงในสวนสาธารณะ",
    "Arabic": "طفل يطيّر طائرة ورقية حمراء في الحديقة",
    "Hindi": "एक बच्चा पार्क में लाल पतंग उड़ा रहा है, क़लम",
    "French": "l'élève dessine un château à côté du préau",
    "German": "Ein Mädchen läßt am Strand einen großen Drachen steigen",
    "Spanish": "¿dónde está el niño con la cometa roja? ¡allí!",
    "Portuguese": "uma criança não solta pipa",
    "Polish": "dziecko puszcza żółty latawiec nad łąką",
    "Czech": "dítě pouští červeného draka, že?",
    "Turkish": "çocuk parkta kırmızı uçurtma uçuruyor",
    "Vietnamese": "một đứa trẻ thả diều đỏ trong công viên",
    "Russian": "ребёнок запускает красного змея в парке",
    "Ukrainian": "дитина запускає повітряного змія, п'ять разів",
    "Greek": "ένα παιδί πετά έναν κόκκινο χαρταετό",
    "Turkish capitals": "İKİ KÖPEK İstanbul parkında, ILIK",
    "Greek capitals": "ΣΚΥΛΟΣ ΣΤΗΝ ΠΑΡΑΛΙΑ, Ο ΜΙΚΡΟΣ.",
    "Hebrew": "ילד מעיף עפיפון אדום בפארק",
    "Korean": "아이가 공원에서 빨간 연을 날리고 있다",
    "Tamil": "ஒரு குழந்தை பூங்காவில் பட்டம் விடுகிறது",
    "Bengali": "একটি শিশু পার্কে লাল ঘুড়ি ওড়াচ্ছে",
    "Georgian": "ბავშვი პარკში ფრანს უშვებს",
    "Amharic": "ልጁ በመናፈሻው ውስጥ ካይት ያበራል",
    "Khmer": "ក្មេងម្នាក់កំពុងលេងខ្លែង",
    "emoji": "👨‍👩‍👧 fly a 🪁 at the 🏖️!! 👍🏽",
    "mixed": "the 看板 says «ПРИВЕТ» ~ naïve_ﬁ №5 ½ cup [SEP] ## [UNK] a\u200bb",
}
LEARNT = [text for text in SENTENCES.values() for _ in range(2)]


WAYS = [("wordpiece", True), ("wordpiece", False), ("bpe", True), ("bpe", False)]


@pytest.fixture(scope="module", params=WAYS, ids=["lower-cased", "cased", "bpe, lower-cased", "bpe, cased"])
def tokens(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """As a model folder holds it: saved and loaded."""
    folder = tmp_path_factory.mktemp("tokens")
    kind, lowercase = request.param
    Tokens.train(LEARNT, 1200, lowercase, kind).save(folder)
    return Tokens.load(folder)


def same(one: str, other: str) -> bool:
    """But for case (ς and σ are both the small form of Σ) and runs of spaces."""
    one, other = (text.lower().replace("ς", "σ") for text in (one, other))
    return one.split() == other.split()


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_comes_back(tokens: Tokens, language: str) -> None:
    text = SENTENCES[language]
    written = tokens.decode([*tokens.encode(text), tokens.vocabulary.sep])
    assert same(written, text)
    assert tokens.vocabulary.unknown not in tokens.encode(text)


def test_any_text_of_known_letters_comes_back(tokens: Tokens) -> None:
    letters = [letter for text in SENTENCES.values() for letter in text]
    for seed in range(300):
        rng = Random(seed)
        text = "".join(rng.choices(letters, k=rng.randrange(1, 80)))
        assert same(tokens.decode(tokens.encode(text)), text), seed


def test_spaces_of_any_kind_are_one_space() -> None:
    tokens = Tokens.train(["a red kite"], 60)
    assert tokens.decode(tokens.encode("  a\n\nred\u3000kite\t")) == "a red kite"
    space = tokens.encode("\u2581")[0]
    written = tokens.encode("a red")
    assert tokens.decode([space, *written[:1], space, space, *written[1:], space]) == "a red"


@pytest.mark.parametrize("language", SENTENCES)
def test_who_repeats_the_reference_gets_what_the_file_gets(language: str) -> None:
    """Whatever the case and the length; by a vocabulary of these texts."""
    tokens = Tokens.train(LEARNT, 1200)
    references = {str(n): (SENTENCES[one],) for n, one in enumerate((language, "English", "French"))}
    said = {key: tokens.decode(tokens.encode(text)) for key, (text,) in references.items()}
    whole = caption_scores({key: text for key, (text,) in references.items()}, references)
    assert caption_scores(said, references) == pytest.approx(whole)
    assert whole["ROUGE-L"] == pytest.approx(1)


def test_characters_of_scripts_without_spaces_are_words_and_the_score_says_so() -> None:
    references = {str(n): (text,) for n, text in enumerate(("一个孩子在公园", "两只猫睡在沙发上", "女人骑着自行车"))}
    said = {"0": "一个孩子在公园", "1": "两只狗睡在沙发上", "2": "女人骑着自行车"}
    scored = score_captions(said, references)
    assert 0 < {one.name: one.value for one in scored.scores}["BLEU-4"] < 100
    assert any("without spaces" in note for note in scored.notes)
    assert not any("without spaces" in note for note in score_captions({"0": "a"}, {"0": ("a",)}).notes)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("a man in a t-shirt at 7:30 by the dog's bowl", "a man in a t - shirt at 7 : 30 by the dog ' s bowl"),
        ('it says "stop", doesn\'t it?', 'it says " stop ", doesn \' t it?'),
        ("50% (or 1,000.50) off!", "50 % ( or 1, 000. 50 ) off!"),
    ],
)
def test_a_vocabulary_of_bert_is_read_with_the_usual_spaces(tmp_path: Path, text: str, split: str) -> None:
    """Its splitting stays, for scores as the papers' code counts them (data.split_words)."""
    words = sorted(set(re.sub(r"([,.?!])", r" \1", split).split()))
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *words]))
    tokens = Tokens.from_vocabulary(tmp_path / "vocab.txt", lowercase=True)
    ids = tokens.encode(text)
    assert tokens.decode(ids) == text
    assert tokens.decode(ids, split=True) == split


def test_a_pattern_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    """One of another's choice may take unbounded time."""
    Tokens.train(["a red kite"], 60).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace(r"\\s+", "(a+)+$"))
    with pytest.raises(CheckpointError, match="is not a tokeniser"):
        Tokens.load(tmp_path)


WORDS = ("café", "naïve", "Zürich", "piñata", "가강", "йогурт", "が")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("kind", [*get_args(Pieces), "bert"])
def test_a_word_is_one_in_either_unicode_form(kind: Any, word: str, tmp_path: Path) -> None:
    """Whichever form the vocabulary is trained on, and whichever is asked; BERT's cased vocabulary keeps accents."""
    composed, apart = (normalize(form, f"a sign of {word} here") for form in ("NFC", "NFD"))
    if kind == "bert":
        listed = [*SPECIAL, "a", "sign", "of", word, "here", *(f"T{n}" for n in range(3))]
        (tmp_path / "vocab.txt").write_text("\n".join(listed))
        both = [Tokens.from_vocabulary(tmp_path / "vocab.txt", lowercase=False)]
    else:
        both = [Tokens.train([text] * 20, 300, kind=kind) for text in (composed, apart)]
    for tokens in both:
        assert tokens.encode(apart) == tokens.encode(composed)
        assert tokens.vocabulary.unknown not in tokens.encode(apart)
        assert tokens.decode(tokens.encode(apart)).lower() == composed.lower()
