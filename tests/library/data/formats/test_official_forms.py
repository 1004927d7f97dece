"""Files in the whole form that each data set documents: small ones made by hand, and real ones where they are."""

from pathlib import Path

from diptych.data.formats import flickr30k, nlvr, vcr, vqa2
from diptych.data.formats.format import Source, Wanted
from diptych.metrics.vqa import answer_accuracy

DATA = Path(__file__).parent / "data"


def test_vqa2() -> None:
    records = vqa2.read(Wanted(), Source(DATA / "vqav2/questions.json"), Source(DATA / "vqav2/annotations.json"))
    assert [record.key for record in records] == ["COCO_val2014_000000000042", "COCO_val2014_000000000139"]
    rug, rain = records[0].questions
    (kites,) = records[1].questions
    assert (rug.key, rug.text, rug.kind) == ("42000", "What is the dog standing on?", "other")
    assert (rain.kind, kites.kind) == ("yes/no", "number")
    assert kites.answers == ("3",) * 6 + ("2",) * 4
    # Of ten people three said mat, one carpet; of the ten ways to leave one out, three leave out a mat.
    assert [answer_accuracy(said, rug.answers) for said in ("Rug", "mat", "carpet", "cat")] == [1, 0.9, 0.3, 0]


def test_vcr() -> None:
    (one,) = vcr.read(Wanted(), Source(DATA / "vcr/train.jsonl"), Source(DATA / "vcr/metadata"))
    (choices,) = one.choices
    assert (one.key, one.size) == ("by_hand/garden@0", (200, 120))
    assert choices.question == "What are [0] and [1] doing ?"
    assert choices.answers[1] == "[0] throws a ball to [2] ."
    assert choices.rationales[2] == "[0] and [1] sit down ."
    assert (choices.answer, choices.rationale) == (1, 0)


def test_nlvr2() -> None:
    pairs = nlvr.read_pairs(Wanted(), Source(DATA / "nlvr2/dev.json"))
    assert [pair.key for pair in pairs] == ["dev-12-0", "dev-12-3"]
    said = [statement for pair in pairs for statement in pair.statements]
    assert [statement.key for statement in said] == ["dev-12-0-0", "dev-12-0-1", "dev-12-3-0"]
    assert [statement.true for statement in said] == [False, True, True]


def test_flickr30k_entities() -> None:
    folder = DATA / "flickr30k_entities"
    (one,) = flickr30k.read(Wanted(), Source(folder), Source(folder / "test.txt"))
    assert (one.key, one.split) == ("36979", "test")
    assert one.captions == (
        "Two men fly a red kite over the beach .",
        "Friends hold the string of a kite , laughing .",
        "On a windy day , a kite is up .",
        "A pair of men in yellow coats look up .",
        "A beach with # 1 kite .",
    )


def test_real_samples(data_folder: Path) -> None:
    """What real files have that nobody would think of, such as `Texas A&M` in a phrase."""
    folder = data_folder / "formats"
    records = vqa2.read(Wanted(), Source(folder / "vqav2/questions.json"), Source(folder / "vqav2/annotations.json"))
    questions = [question for one in records for question in one.questions]
    assert [len(question.answers) for question in questions] == [10, 10, 10]
    assert questions[0].text == "What is this photo taken looking through?"
    assert answer_accuracy("Net", questions[0].answers) == 1
    (one,) = vcr.read(Wanted(), Source(folder / "vcr/train_one.jsonl"))
    assert one.choices[0].question == "Does [2] feel comfortable ?"
    assert (one.choices[0].answer, one.choices[0].rationale) == (1, 1)
    pairs = nlvr.read_pairs(Wanted(), Source(folder / "nlvr2/tiny-dev.json"))
    assert [(pair.statements[0].key, pair.statements[0].true) for pair in pairs[:2]] == [
        ("dev-850-0-0", False),
        ("dev-850-2-0", True),
    ]
    sentences = folder / "flickr30k_entities"
    records = flickr30k.read(Wanted(), Source(sentences), Source(sentences / "test.txt"))
    assert len(records[0].captions) == 5
    assert records[0].captions[0].startswith("On a sunny , dry day , wearing full football gear , a Texas A&M football")
