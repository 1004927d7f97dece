from diptych.core import Object, names_for_tags, split_at_tags, tags

THINGS = (Object("dog", (0.0, 0.0, 1.0, 1.0)), Object("kite", (0.0, 0.0, 1.0, 1.0)))


def test_a_tag_is_a_number_in_brackets() -> None:
    assert tags("is [0] left of [12], or [ 3] or [x]") == [0, 12]
    assert split_at_tags("[0] is red") == [0, " is red"]
    assert split_at_tags("no tags") == ["no tags"]


def test_things_are_told_by_their_names() -> None:
    assert names_for_tags("is [1] left of [0]'s friend [7]", THINGS) == "is kite left of dog's friend [7]"


def test_a_tag_of_5_000_digits_is_none() -> None:
    """Python itself reads no number of so many."""
    text = f"is [{'9' * 5000}] red, or [1]"
    assert tags(text) == [1]
    assert names_for_tags(text, THINGS) == text.replace("[1]", "kite")
