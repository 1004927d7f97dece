import json

import pytest

from diptych.metrics.results import read_answer_results, read_caption_results, read_references
from diptych.runtime.errors import DataError

ONE = '[{"image_id": 1, "caption": "a dog"}]'


def written(tmp_path, content: str | bytes):
    path = tmp_path / "results.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_captions_and_coverage(tmp_path) -> None:
    path = written(tmp_path, '[{"image_id": 1, "caption": "a dog"}, {"image_id": "x", "caption": " ", "more": 1}]')
    results = read_caption_results(path, ["1", "x", "2", "3"], allow_missing=True)
    assert results.predictions == {"1": "a dog", "x": " "}
    assert (results.missing, results.unknown, results.empty, results.coverage) == (("2", "3"), (), ("x",), 0.5)
    results = read_caption_results(path, ["1"], allow_unknown=True)
    assert (results.unknown, results.coverage) == (("x",), 1.0)


def test_answers(tmp_path) -> None:
    path = written(tmp_path, '[{"question_id": 458752000, "answer": "net"}]')
    assert read_answer_results(path, ["458752000"]).predictions == {"458752000": "net"}
    path.write_text(path.read_text(), "utf-8-sig")  # with a byte order mark, as of Windows
    assert read_answer_results(path, ["458752000"]).predictions == {"458752000": "net"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"found no JSON \(.*line 1, column 1\)"),
        ('[{"image_id": 1,\n "caption": }]', r"found no JSON \(.*line 2, column 13\)"),
        (b'[{"image_id": 1, "caption": "caf\xe9"}]', "found bytes that are not UTF-8 .at byte 32."),
        ("[" * 100_000, "found JSON nested too deep"),
        ('[{"image_id": 1, "image_id": 2, "caption": "a"}]', "entry 0: .*name='image_id'"),
        ("{}", "expected a list of entries, found dict"),
        ("7", "expected a list of entries, found int 7"),
        ("null", "expected a list of entries, found NoneType"),
        ("[1]", "entry 0: expected an object with 'image_id', found int 1"),
        ('[{"caption": "a"}]', "entry 0: expected a whole number or text under 'image_id', found NoneType"),
        ('[{"image_id": true, "caption": "a"}]', "found bool True"),
        ('[{"image_id": 1.0, "caption": "a"}]', "found float 1.0"),
        ('[{"image_id": 1}]', r"expected text under 'caption', found NoneType None \(record 1\)"),
        ('[{"image_id": 1, "caption": ["a"]}]', r"expected text under 'caption', found list"),
        (f"[{ONE[1:-1]}, {ONE[1:-1]}]", r"this id has two predictions; keep one of them \(record 1\)"),
        ('[{"image_id": 1, "caption": "a"}, {"image_id": "1", "caption": "b"}]', "this id has two predictions"),
        ("[]", "none of 0 ids is among the 2 of this split"),
        (
            '[{"image_id": 9, "caption": "a"}]',
            "none of 1 ids is among the 2 of this split; pass a file of this split",
        ),
        (ONE, r"1 of 2 ids are missing \(2\).*allow missing predictions and report the coverage"),
        (
            '[{"image_id": 1, "caption": "a"}, {"image_id": 9, "caption": "b"}]',
            r"1 of 2 ids are not in this split \(9\)",
        ),
    ],
)
def test_files_that_are_refused(tmp_path, content, message) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=message) as caught:
        read_caption_results(path, ["1", "2"])
    assert str(path) in str(caught.value)


def test_no_file(tmp_path) -> None:
    with pytest.raises(DataError, match=r"cannot be read \(No such file"):
        read_caption_results(tmp_path / "none.json", ["1"])


def test_references(tmp_path) -> None:
    annotations = [{"image_id": n, "caption": text} for n, text in [(1, "a dog"), (2, "a cat"), (1, "the dog")]]
    path = written(tmp_path, json.dumps({"images": [{"id": 1}, {"id": 2}], "annotations": annotations}))
    assert read_references(path) == {"1": ("a dog", "the dog"), "2": ("a cat",)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected COCO's form"),
        ('{"annotations": []}', "no reference captions"),
        (
            '{"images": [{"id": 3}], "annotations": [{"image_id": 1, "caption": "a"}]}',
            r"no reference caption.*record 3",
        ),
        ('{"images": [], "annotations": 3}', "expected a list of entries, found int 3"),
    ],
)
def test_references_that_are_refused(tmp_path, content, message) -> None:
    with pytest.raises(DataError, match=message):
        read_references(written(tmp_path, content))
