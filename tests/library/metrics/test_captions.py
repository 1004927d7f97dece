import json
import math
import os
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.metrics import java
from diptych.metrics.bleu import bleu_counts, bleu_scores
from diptych.metrics.captions import caption_items, caption_scores
from diptych.metrics.cider import CiderD, DocumentFrequencies, cider_scores
from diptych.metrics.java import unavailable
from diptych.metrics.results import read_caption_results, read_references
from diptych.metrics.rouge import rouge_l
from diptych.runtime.errors import DataError, DiptychError, RecipeError

PUBLISHED = {f"Bleu_{n}": f"BLEU-{n}" for n in range(1, 5)} | {
    "ROUGE_L": "ROUGE-L",
    "CIDEr": "CIDEr",
    "METEOR": "METEOR",
}

captions = st.lists(st.sampled_from(["a", "dog", "cat", "runs", "on", "the", "red", ",", "mat"]), max_size=12)
pictures = st.lists(
    st.tuples(captions, st.lists(captions.filter(bool), min_size=1, max_size=4)), min_size=1, max_size=6
)


def assert_published(
    scores: dict[str, float], expected: dict[str, float], within: float, also: tuple[str, ...] = ()
) -> None:
    assert set(PUBLISHED.values()) - {"METEOR"} | set(also) <= set(scores)
    for theirs, ours in PUBLISHED.items():
        if ours in scores:
            assert scores[ours] == pytest.approx(expected[theirs], abs=within), ours


def published_example(data_folder: Path, also: tuple[str, ...] = ()) -> None:
    example = json.loads((data_folder / "metrics/nlg_eval_example/example.json").read_text())
    predictions = {str(n): text for n, text in enumerate(example["hyp"])}
    references = {str(n): texts for n, texts in enumerate(example["refs"])}
    assert_published(caption_scores(predictions, references, also), example["expected"], 1e-6, also)


def test_published_example(data_folder) -> None:
    published_example(data_folder)


@pytest.mark.thorough
def test_published_meteor(data_folder) -> None:
    if reason := unavailable("METEOR"):
        pytest.skip(reason)
    published_example(data_folder, ("METEOR",))


def test_coco_example(data_folder) -> None:
    folder = data_folder / "metrics/coco_fakecap"
    references = read_references(folder / "references_val2017_overlap126.json")
    results = read_caption_results(folder / "captions_val2014_fakecap_results.json", references, allow_unknown=True)
    assert (len(references), results.coverage, len(results.unknown)) == (126, 1.0, 874)
    expected = json.loads((folder / "fakecap_on_val2017_overlap126_expected.json").read_text())
    assert_published(caption_scores(results.predictions, references), expected, within=1e-9)


@settings(max_examples=60, deadline=None)
@given(pictures)
def test_equals_pycocoevalcap(drawn) -> None:
    """Corpus and picture scores; captions of no words and words of no reference among them."""
    bleu_module = pytest.importorskip("pycocoevalcap.bleu.bleu", reason="needs the extra java-metrics (no Java)")
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    written = {str(n): caption for n, (caption, _) in enumerate(drawn)}
    truths = {str(n): references for n, (_, references) in enumerate(drawn)}
    results = {key: [" ".join(caption)] for key, caption in written.items()}
    references = {key: [" ".join(caption) for caption in of_key] for key, of_key in truths.items()}

    rows = np.stack([bleu_counts(written[key], truths[key]) for key in written])
    corpus, each = bleu_module.Bleu(4).compute_score(references, results, verbose=0)
    np.testing.assert_allclose(bleu_scores(rows.sum(axis=0)), corpus, atol=1e-12)
    np.testing.assert_allclose(bleu_scores(rows).T, each, atol=1e-12)
    rouges = [rouge_l(written[key], truths[key]) for key in written]
    np.testing.assert_allclose(rouges, Rouge().compute_score(references, results)[1], atol=1e-12)
    ciders = list(cider_scores(written, truths).values())
    np.testing.assert_allclose(ciders, Cider().compute_score(references, results)[1], atol=1e-12)


def test_cider_by_hand() -> None:
    """Two pictures: each word of one of them weighs log 2, a word of both nothing."""
    truths = {"0": [["a", "dog"]], "1": [["a", "cat"]]}
    scores = cider_scores({"0": ["dog"], "1": ["a", "cat"]}, truths)
    # "dog": unigrams agree wholly; one bigram fewer; bigrams, trigrams and four-grams have nothing to compare
    assert scores["0"] == pytest.approx(10 / 4 * math.exp(-1 / 72))
    assert scores["1"] == pytest.approx(10 / 4 * 2)


def test_cider_d_keeps_the_frequencies_of_its_corpus(tmp_path) -> None:
    truths = {"0": [["a", "dog"], ["the", "dog", "runs"]], "1": [["a", "cat"]], "2": [["a", "cat", "sits"]]}
    frequencies = DocumentFrequencies.of(truths.values())
    assert (frequencies.pictures, frequencies.counts["a",], frequencies.counts["a", "cat"]) == (3, 3, 2)
    frequencies.save(tmp_path / "corpus.json")
    assert DocumentFrequencies.load(tmp_path / "corpus.json") == DocumentFrequencies(3, dict(frequencies.counts))
    scorer = CiderD(frequencies, truths)
    samples = [["a", "dog", "runs"], ["the", "dog"], ["unseen"], []]
    scores = scorer.scores(["0"] * 4, samples)
    assert scores.tolist() == scorer.scores(["0"] * 4, samples).tolist()  # cached references score alike
    assert scores[0] > scores[2] == scores[3] == 0
    assert scores[0] == cider_scores({"0": samples[0], "1": ["a"], "2": ["a"]}, truths)["0"]
    with pytest.raises(DataError, match=r"this image has no reference caption.*record 9"):
        scorer.score("9", ["a"])


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"pictures": 2}', '{"pictures": 2, "counts": {"a": 3}}', '{"pictures": 2, "counts": {"a": "1"}}',
     '{"pictures": true, "counts": {}}', '{"pictures": 2, "counts": [1]}', "\x00"],
)  # fmt: skip
def test_document_frequencies_that_are_none(tmp_path, content) -> None:
    (tmp_path / "corpus.json").write_text(content)
    with pytest.raises(DataError, match="as DocumentFrequencies"):
        DocumentFrequencies.load(tmp_path / "corpus.json")


def test_perfect_and_empty_captions() -> None:
    references = {"a": ["A dog runs on the grass."], "b": ["Two cats sleep in a box."]}
    perfect = caption_scores({key: captions[0] for key, captions in references.items()}, references)
    assert perfect == pytest.approx(dict.fromkeys(perfect, 1.0) | {"CIDEr": 10.0})
    nothing = caption_scores({"a": "", "b": "..."}, references)
    assert nothing == pytest.approx(dict.fromkeys(nothing, 0.0))
    assert caption_items({"a": "x", "b": "y"}, references).bleu.shape == (2, 9)


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [
        ({}, {}, "found no reference captions"),
        ({"a": "x"}, {"a": []}, r"one or more reference captions \(record a\)"),
        ({"a": "x"}, {"a": "a dog"}, r"one or more reference captions \(record a\)"),
        ({"a": "x"}, {"a": ["x"], "b": ["y"]}, r"images without a predicted caption: 1 of 2;.*\(record b\)"),
        ({"a": "x", "c": "z"}, {"a": ["x"]}, r"predictions without reference: 1;.*\(record c\)"),
    ],
)
def test_what_cannot_be_scored(predictions, references, message) -> None:
    with pytest.raises(DataError, match=message):
        caption_scores(predictions, references)


def test_without_java_a_message(monkeypatch) -> None:
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(RecipeError, match="METEOR needs pycocoevalcap, of the extra `java-metrics`: `uv "):
        caption_scores({"a": "x"}, {"a": ["x"]}, extra_metrics=["METEOR"])
    monkeypatch.undo()
    if unavailable("METEOR") is None:
        monkeypatch.setattr(java.shutil, "which", lambda name: None)
        assert "needs Java on the PATH" in str(unavailable("METEOR"))
    with pytest.raises(RecipeError, match="did you mean METEOR"):
        unavailable("METEORS", required=True)


def test_spice_says_what_it_lacks(tmp_path) -> None:
    assert "Stanford CoreNLP 3.6.0" in str(java.without_models(tmp_path))
    (tmp_path / "spice/lib").mkdir(parents=True)
    (tmp_path / "spice/lib/stanford-corenlp-3.6.0.jar").touch()
    assert java.without_models(tmp_path) is None


@pytest.fixture
def fake_java(tmp_path, monkeypatch) -> Callable[[str], None]:
    """A function that puts a shell script in the place of Java, and an empty package in that of pycocoevalcap."""
    package = ModuleSpec("pycocoevalcap", None)
    package.submodule_search_locations = [str(tmp_path)]
    for place in ("bin", "meteor", "spice/lib"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "spice/lib/stanford-corenlp-3.6.0.jar").touch()
    monkeypatch.setattr(java, "find_spec", lambda name: package)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    def put(script: str) -> None:
        (tmp_path / "bin/java").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin/java").chmod(0o755)

    return put


FATAL = "Invalid maximum heap size: -Xmx1x"
STOPPED = [
    ("exit 1", r"\(exit code 1\); check `java` and JAVA_TOOL_OPTIONS$"),
    (f"echo {FATAL} >&2; echo 'Error: A fatal exception has' >&2; exit 1", rf"\(exit code 1: {FATAL}\); check `java`"),
    (
        "echo x.OutOfMemoryError: heap >&2; printf '\\tat x' >&2; exit 1",
        r"x.OutOfMemoryError: heap\); free [28] GB of mem",
    ),
    ("echo Could not reserve space >&2; exit 1", r"Could not reserve space\); free [28] GB of memory for it$"),
    ("kill -9 $$", r"\(ended by a signal, SIGKILL\); free [28] GB of memory for it$"),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["METEOR", "SPICE"])
@pytest.mark.parametrize(("script", "told"), STOPPED)
def test_java_that_stops_is_an_error_with_its_cause(name, script, told, fake_java) -> None:
    fake_java(script)
    with pytest.raises(DiptychError, match=rf"^{name}'s Java program stopped .*{told}"):
        caption_scores({"a": "x"}, {"a": ["x"]}, extra_metrics=[name])


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo WARNING: old; cat", r"\(answered 'WARNING: old', not numbers\)"),
        ("exit 0", r"\(answered '', not numbers\)"),
        ("read one; echo 1 2; sleep 60", r"\(no answer in 0.5 s\); check `java` and JAVA_TOOL_OPTIONS$"),
        ("exec >&-; sleep 60", r"\(no answer in 0.5 s\)"),
    ],
)
def test_nobody_waits_for_a_meteor_without_answers(script, told, fake_java, monkeypatch) -> None:
    monkeypatch.setattr(java, "LIMIT", 0.5 if "sleep" in script else java.LIMIT)
    fake_java(script)
    with pytest.raises(DiptychError, match=rf"^METEOR's Java program stopped {told}"):
        caption_scores({"a": "x"}, {"a": ["x"]}, extra_metrics=["METEOR"])


def test_spice_is_the_mean_of_what_java_writes(fake_java) -> None:
    scores = [{"image_id": key, "scores": {"All": {"f": f}}} for key, f in (("a", 0.5), ("b", 0.25))]
    write = f"""while [ "$1" != -out ]; do shift; done; echo '{json.dumps(scores)}' > "$2" """
    fake_java(f"""case "$*" in *user.language=en*) {write};; esac""")
    assert caption_scores({"a": "x", "b": "y"}, {"a": ["x"], "b": ["y"]}, extra_metrics=["SPICE"])["SPICE"] == 0.375


def test_meteor_reads_its_numbers_in_a_german_locale(monkeypatch) -> None:
    if reason := unavailable("METEOR"):
        pytest.skip(reason)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=de -Duser.country=DE")
    scores = caption_scores({"a": "a dog runs"}, {"a": ["a dog runs"]}, extra_metrics=["METEOR"])
    assert scores["METEOR"] == pytest.approx(1)
