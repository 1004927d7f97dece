"""Left and right swapped: in boxes, masks, pixels and words alike."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from diptych.core import Choices, Expression, FeatureContract, Object, Question, Record, Regions, Sample, Statement
from diptych.data.store.loader import Loader
from diptych.data.store.mirror import is_foreign, mirrored, swapped
from diptych.data.store.pixels import Pixels
from diptych.data.store.store import Store, StoreWriter
from tests.support.loaded import Always

BOX = (0.1, 0.2, 0.4, 0.9)
OTHER = (0.6, 0.2, 0.9, 0.9)
TOLD = Record(
    "a",
    captions=("a dog left of a cat",),
    questions=(Question("a/0", "what is on the left?", ("right", "a dog")),),
    expressions=(Expression("a/e", "the leftmost dog", BOX),),
    choices=(Choices("a/c", "is [0] left of [1]", ("[0] is to the right", "no"), 0, ("Right.", "it is"), 1),),
    statements=(Statement("a/s", "the RIGHT one sleeps", True),),
    objects=(Object("dog", BOX, mask=("#..", "##.")), Object("cat", OTHER)),
    relations=((0, "left of", 1),),
)


def test_words_boxes_and_masks_are_swapped() -> None:
    seen = mirrored(TOLD)
    assert seen.captions == ("a dog right of a cat",)
    assert (seen.questions[0].text, seen.questions[0].answers) == ("what is on the right?", ("left", "a dog"))
    assert seen.expressions[0].text == "the rightmost dog"
    assert seen.expressions[0].box == pytest.approx(OTHER)
    assert seen.choices[0].question == "is [0] right of [1]"
    assert (seen.choices[0].answers[0], seen.choices[0].rationales[0]) == ("[0] is to the left", "Left.")
    assert (seen.statements[0].text, seen.statements[0].true) == ("the LEFT one sleeps", True)
    assert seen.objects[0].box == pytest.approx(OTHER)
    assert seen.objects[0].mask == ("..#", ".##")
    assert seen.relations == ((0, "right of", 1),)


@given(st.text("leftrigh LEFT.mos", max_size=40))
def test_twice_is_as_before(text: str) -> None:
    assert swapped(swapped(text)) == text
    assert len(swapped(text).split()) == len(text.split())


def test_no_other_word_is_touched() -> None:
    told = "bright lefty copyright upright rightly, left-handed right-hand leftwards"
    assert swapped(told) == "bright lefty copyright upright rightly, right-handed left-hand rightwards"


@pytest.mark.parametrize(("text", "wanted"), [
    ("lft guy, 2nd from rt", "rt guy, 2nd from lft"),
    ("topleft cup", "topright cup"),
    ("Bottomright", "Bottomleft"),
    ("leftside man", "rightside man"),
    ("toplft UPPERRIGHT midright", "toprt UPPERLEFT midleft"),
    ("rt 66, start, Rt", "rt 66, start, Rt"),
    ('the sign reads "LEFT TURN ONLY" on the right', 'the sign reads "LEFT TURN ONLY" on the left'),
    ("\u201cturn right\u201d on a left wall", "\u201cturn right\u201d on a right wall"),
    ("a sign 'keep left' at the boys' left", "a sign 'keep left' at the boys' right"),
])  # fmt: skip
def test_short_forms_are_swapped_and_quotes_are_kept(text: str, wanted: str) -> None:
    assert swapped(text) == wanted
    assert swapped(wanted) == text


OTHERS = (
    "der linke Hund, rechts vom Baum", "le chien à gauche", "左边的狗", "perro a la izquierda", "левая собака",
    "pies po lewej stronie", "de linker hond", "il cane a destra", "كلب على اليسار",
)  # fmt: skip
PLAIN = ("a lewd café, naïve prawns", "the link to the lever", "a leftover left of the bright solution")


def test_other_languages_are_known_by_letters_and_words_for_sides() -> None:
    assert [text for text in OTHERS if not is_foreign(Record("a", captions=("a dog", text)))] == []
    for text in (
        "a lewd caf\u00e9, na\u00efve prawns",
        "the link to the lever",
        "a leftover left of the bright solution",
    ):
        assert not is_foreign(Record("a", captions=(text,)))


def test_regions_of_a_mirror_image() -> None:
    regions = Regions(
        boxes=torch.tensor([BOX]), scores=torch.ones(1), size=(4, 2), features=torch.rand(1, 3),
        masks=torch.tensor([[[1, 0, 0], [1, 1, 0], [0, 1, 0]]]).bool(), pixels=torch.arange(24.0).reshape(3, 2, 4),
    )  # fmt: skip
    seen = regions.mirrored()
    torch.testing.assert_close(seen.boxes, torch.tensor([OTHER]))
    assert seen.masks is not None
    assert seen.pixels is not None
    assert seen.masks[0].int().tolist() == [[0, 0, 1], [0, 1, 1], [0, 1, 0]]
    assert seen.pixels[0].tolist() == [[3, 2, 1, 0], [7, 6, 5, 4]]
    assert seen.features is regions.features  # nobody looks again
    hidden = torch.tensor([True])
    torch.testing.assert_close(seen.hide(hidden).pixels, regions.hide(hidden).mirrored().pixels)


def questions(record: Record) -> list[Sample]:
    """Of `left` alone the answer is known, as a model's list of answers may have it."""
    return [
        Sample(q.key, record.key, record.regions, torch.tensor([len(word) for word in q.text.split()]))
        for q in record.questions
        if q.answers[0] != "up"
    ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    Image.new("RGB", (32, 16)).save(tmp_path / "a.png")
    dark = Image.open(tmp_path / "a.png")
    dark.putpixel((0, 0), (255, 255, 255))  # left, above
    dark.save(tmp_path / "a.png")
    regions = Regions(torch.tensor([BOX]), torch.ones(1), (32, 16), features=torch.zeros(1, 4))
    with StoreWriter(tmp_path / "store", FeatureContract("given", "", feature_size=4)) as writer:
        for number in range(8):
            writer.add(replace(TOLD, key=f"r{number}", image=tmp_path / "a.png", regions=regions))
    return Store(tmp_path / "store")


def batches(store: Store, mirror: float, ask: Callable[[Record], list[Sample]] = questions) -> Loader:
    return Loader(store, range(8), ask, Always(), 8, 0, pixels=Pixels(16, 32), mirror=mirror)


def test_a_share_of_the_samples_is_mirrored_whole(store: Store) -> None:
    seen = {share: [batches(store, share).at(step, 0, 1) for step in range(20)] for share in (0.0, 0.5)}
    turned = 0
    for plain, batch in zip(seen[0.0], seen[0.5], strict=True):
        assert plain.keys == batch.keys
        assert plain.text[:, 4].tolist() == [5] * 8  # left?
        for row in range(8):
            mirror = int(batch.text[row, 4]) == 6  # right?
            turned += mirror
            torch.testing.assert_close(batch.boxes[row, 0], torch.tensor(OTHER if mirror else BOX))
            assert batch.pixels is not None
            brightest = batch.pixels[row].sum((0, 1)).argmax()
            assert int(brightest) == (31 if mirror else 0)
    assert 50 < turned < 110  # of 160
    again = batches(store, 0.5).at(7, 0, 1)
    assert torch.equal(again.text, seen[0.5][7].text)  # by seed, step and part alone


def test_images_with_texts_that_are_not_english_are_never_mirrored(tmp_path: Path, store: Store) -> None:
    with StoreWriter(tmp_path / "other", FeatureContract("given", "", feature_size=4)) as writer:
        for number, text in enumerate(OTHERS[:8]):
            writer.add(replace(store.record(number), captions=(text,)))
    seen = [batches(Store(tmp_path / "other"), 0.9).at(step, 0, 1) for step in range(5)]
    for batch in seen:
        torch.testing.assert_close(batch.boxes[:, 0], torch.tensor(BOX).expand(8, 4))


def test_a_sample_that_has_no_mirror_image_stays(store: Store) -> None:
    """Such as a question whose answer, swapped, is none of those that a model gives."""

    def ask(record: Record) -> list[Sample]:
        return questions(record) if record.questions[0].answers[0] == "right" else []

    batch = batches(store, 0.9, ask).at(0, 0, 1)
    assert len(batch) == 8
    torch.testing.assert_close(batch.boxes[:, 0], torch.tensor(BOX).expand(8, 4))
