"""Each rule of texts by hand: what it drops, what it lets through, and that its switch is its own."""

import pytest

from diptych_mine.pages.texts import Text, Vocabularies, clean, judge_languages, judged, sentences, spam_marks
from diptych_mine.rules import TEXT_RULES
from diptych_mine.settings import MiningSettings, TextRules, changed

WORDS = Vocabularies(
    frozenset({"porn"}), frozenset(["a", "red", "kite", "over", "the", "beach", "with", "two", "dogs", "and", "one"])
)

BROKEN = {
    "file_name": ("IMG_1234.JPG", "a red kite over the beach"),
    "boilerplate": ("Photo: Kevin C. Downs/Getty Images", "a photo by the sea of a red kite"),
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


@pytest.mark.parametrize(
    "text",
    [
        "Image may contain: 1 person, standing", "Click to enlarge this image", "Photo by Kevin C. Downs",
        "AFP/Getty Images",
        "Kevin C. Downs for Getty Images", "(Credit: AP/Manuel Balce Ceneta)",
        "Photographer: Lorenzo Tugnoli for Bloomberg",
        "© 2014 The New York Times", "Copyright 2020 A. Photographer", "By Ana Sandoiu", "BY Scott Christian",
        "Share on Facebook Twitter LinkedIn Email Print Comments", "Share Tweet Pin-it Bookmark Comment",
        "Published on Nov. 5, 2014", "Topics: uber, libertarians, Sydney", "Posted by Jay Kerr on May 3, 2019",
        "Read more about kites",
    ],
)  # fmt: skip
def test_credits_bars_and_bylines_are_no_captions(text: str) -> None:
    assert judge(text, only("boilerplate").texts).fails == ["boilerplate"]


@pytest.mark.parametrize(
    "text",
    [
        "Photo of Barack Obama", "Image of a red kite over the beach", "a dog on the beach by Jay Kerr",
        "By the sea, a red kite",
        "Barack Obama speaks to Reuters in Berlin", "share of the market by year", "A red kite. Photo: Getty Images",
        "The kite of 2014", "Kevin C. Downs and a red kite", "More than 40 kites on the beach",
    ],
)  # fmt: skip
def test_captions_with_their_words_are_no_boilerplate(text: str) -> None:
    assert judge(text, only("boilerplate").texts).fails == []


def test_boilerplate_takes_no_time_however_it_is_made() -> None:
    for hostile in ("A " * 1_000, "by A," * 400, "share " * 300 + "!", "- / | " * 300, "photo: " + "A-" * 900 + "é"):
        assert all(judge(hostile, only("boilerplate").texts) for _ in range(20))


@pytest.mark.parametrize("name", ["global_affiliates_map", "hero_banner_final", "hero_2"])
def test_words_joined_by_underscores_are_names_of_files(name: str) -> None:
    assert judge(name, only("file_name").texts).fails == (["file_name"])


@pytest.mark.parametrize(
    "text",
    [
        "a kite on 2012-05-17 and 18.05.2012", "a kite at 51.507412, -0.127758", "a kite at +51.507412, -0.12",
        "ISBN 978-0-306-40615-7",
        "kites of 1914 1918 1939 1945", "1234567890 kites",
    ],
)  # fmt: skip
def test_dates_places_and_numbers_of_books_are_no_telephones(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("number", ["+49 30 1234 5678", "(030) 1234567", "555-123-4567", "1-800-555-1234"])
def test_telephones_go(number: str) -> None:
    assert clean(f"kites at {number} today") == "kites at today"


def test_abbreviations_end_no_sentence() -> None:
    text = "On Nov. 5 Gov. Jay met Mr. Kerr in the U.S. capital. The kite, seen at 3 p.m., flew."
    assert sentences(text) == [text[:53].strip(), text[53:]]
    assert sentences(" ") == [""]
