"""Objects named that are not there, counted by hand, and over what Storybook itself says."""

import pytest

from diptych.runtime.errors import DataError
from experiments.hallucination import hallucinations, repeated_ngrams

NAMES = {"dog": "dog", "dogs": "dog", "puppy": "dog", "hot dog": "food", "man": "man", "kite": "kite"}


def test_by_hand() -> None:
    captions = {"a": "A man with a dog and a kite.", "b": "two dogs eat a hot dog", "c": "nothing much"}
    there = {"a": {"man", "dog"}, "b": {"dog", "man"}, "c": {"kite"}}
    found = hallucinations(captions, there, NAMES)
    assert found.named == pytest.approx(5 / 3)  # man, dog, kite; dogs, hot dog
    assert found.per_object == pytest.approx(2 / 5)  # kite and hot dog
    assert found.per_caption == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(3 / 5)  # man, dog; dog; of man, dog, dog, man, kite


def test_an_object_named_twice_counts_twice() -> None:
    assert hallucinations({"a": "a dog, a dog and a man"}, {"a": {"man"}}, NAMES).per_object == pytest.approx(2 / 3)


def test_storybook_names_what_is_there() -> None:
    """Captions of people's say what is there; half of those of another picture's do not."""
    from diptych_world.book import record
    from diptych_world.kinds import names_of_kinds
    from diptych_world.layout import scene

    records = [record(scene(0, "test", index)) for index in range(60)]
    there = {r.key: {thing.kind for thing in r.objects} for r in records}
    own = {r.key: r.captions[0] for r in records}
    others = {r.key: s.captions[0] for r, s in zip(records, records[1:] + records[:1], strict=True)}
    assert hallucinations(own, there, names_of_kinds()).per_object == 0
    assert hallucinations(own, there, names_of_kinds()).named > 1
    assert hallucinations(others, there, names_of_kinds()).per_object > 0.5


def test_names_are_one_kind_s_each() -> None:
    from diptych_world.kinds import names_of_kinds

    names = names_of_kinds()
    assert names["puppies"] == names["puppy"] == names["dogs"] == "dog"
    assert names["men"] == "man"
    assert names["benches"] == "bench"


def test_repeats() -> None:
    assert repeated_ngrams(["a dog and a dog and a dog"], 2) == pytest.approx(4 / 7)
    assert repeated_ngrams(["a dog and a cat", "a dog"], 2) == 0
    assert repeated_ngrams(["word"], 4) == 0


def test_what_cannot_be_checked() -> None:
    with pytest.raises(DataError, match="no captions"):
        hallucinations({}, {}, NAMES)
    with pytest.raises(DataError, match=r"the objects of this image are not known.*\(record b\)"):
        hallucinations({"b": "a dog"}, {"a": {"dog"}}, NAMES)
