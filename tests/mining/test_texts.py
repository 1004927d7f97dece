"""Each rule of texts by hand: what it drops, what it lets through, and that its switch is its own."""

import pytest

from diptych.mining.pages.texts import Text, Vocabularies, clean, judge_languages, judged, sentences, spam_marks
from diptych.mining.rules import TEXT_RULES
from diptych.mining.settings import MiningSettings, TextRules, changed

WORDS = Vocabularies(
    frozenset({"porn"}), frozenset(["a", "red", "kite", "over", "the", "beach", "with", "two", "dogs", "and", "one"])
)

BROKEN = {
    "file_name": ("IMG_1234.JPG", "a red kite over the beach"),
    "short": ("red kite", "a red kite"),
    "long": (" ".join(["kite"] + ["beach dogs"] * 20), " ".join(["kite", "beach"] * 20)),
    "bad_words": ("a free porn kite", "a free red kite"),
    "spam": ("Buy now and get free shipping on kites", "Buy now a red kite"),
    "repeats": ("kite kite kite kite beach", "kite kite beach dogs"),
    "letters": ("kite 123 4567 89 !!", "a red kite, 2 dogs"),
    "vocabulary": ("zorp blik kite fnord", "a red kite zorp"),
    "text_language": (
        "Wir hatten diese Reise seit Monaten geplant, und alles kam anders.",
        "We had planned this trip for months, and all of it came otherwise.",
    ),
}


def test_addresses_of_mail_go_and_many_signs_take_no_time() -> None:
    assert clean("write to kites@a.test or k.b+c@mail.a.test today") == "write to or today"
    for hostile in ("@" * 2_000, "a@" * 1_000):
        assert all("@" in clean(hostile) for _ in range(200))


def only(name: str) -> MiningSettings:
    """All other rules off."""
    return changed(MiningSettings(), [f"rules.{rule.name}=off" for rule in TEXT_RULES if rule.name != name])


def judge(raw: str, rules: TextRules) -> Text:
    found = judged("alt", raw, rules, WORDS)
    assert found is not None
    judge_languages([vars(found)], rules)
    return found


@pytest.mark.parametrize("name", BROKEN)
def test_a_rule_drops_what_breaks_it_and_nothing_else(name: str) -> None:
    bad, good = BROKEN[name]
    rules = only(name).texts
    assert judge(bad, rules).fails == [name]
    assert judge(good, rules).fails == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_rule_that_is_off_drops_nothing(name: str) -> None:
    assert name not in judge(BROKEN[name][0], changed(MiningSettings(), [f"rules.{name}=off"]).texts).fails


def test_every_rule_of_texts_is_tried_here() -> None:
    assert set(BROKEN) == {rule.name for rule in TEXT_RULES}


def test_words_are_counted_at_both_ends() -> None:
    rules = MiningSettings().texts
    forty, more = " ".join(f"w{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(40)), "one"
    assert "long" not in (judged("alt", forty, rules, WORDS) or pytest.fail("nothing left")).fails
    assert "long" in (judged("alt", f"{forty} {more}", rules, WORDS) or pytest.fail("nothing left")).fails


def test_cleaning_takes_out_what_is_no_word() -> None:
    told = "<b>A red\u00a0kite</b>&amp;two dogs, see https://a.test/x?y=1 or mail me@a.test, call +49 (30) 1234-5678 "
    told += "ﬁne\x00"
    assert clean(told) == "A red kite &two dogs, see or mail, call fine"


def test_half_surrogates_and_control_characters_do_no_harm() -> None:
    assert clean("kite \ud83d over\u202e\x07 the beach").encode() == b"kite? over the beach"


def test_sentences_end_where_the_next_begins_with_a_capital() -> None:
    assert sentences("It was 3.5 m long. We went home! Then it rained.") == [
        "It was 3.5 m long.",
        "We went home!",
        "Then it rained.",
    ]


def test_marks_of_spam_are_counted_and_capitals_are_capitals() -> None:
    assert spam_marks("brown rabbits under umbrellas") == 0
    assert spam_marks("GREAT KITES HERE now") == 1
    assert spam_marks("Buy now! 50% off, click here") == 3


@pytest.mark.parametrize(
    "text",
    [
        "click here", "Buy now", "shop Online", "FREE shipping", "lowest prices", "a cheap price", "50 % off",
        "a discount", "on sale", "for sale", "$5", "£ 5", "kites!!", "Subscribe", "sign up", "our newsletter",
        "free trial", "limited offer", "coupon", "promo code", "Casino", "payday", "read more", "Follow us",
        "guaranteed", "BLUE KITES SOAR", "#kite #red #sky", "call today", "act now",
    ],
)  # fmt: skip
def test_each_mark_of_spam_is_found(text: str) -> None:
    assert spam_marks(f"a kite, {text} and a dog") == 1


@pytest.mark.parametrize(
    "text", ["a pink duck is under a blue umbrella", "a pink cup under an orange umbrella at night"]
)
def test_short_english_of_which_the_model_of_languages_is_unsure_stays(text: str) -> None:
    assert judge(text, only("text_language").texts).fails == []


def test_without_a_vocabulary_its_rule_drops_nothing() -> None:
    told = judged("alt", "zorp blik fnord kites", MiningSettings().texts, Vocabularies(frozenset()))
    assert told is not None
    assert "vocabulary" not in told.fails
