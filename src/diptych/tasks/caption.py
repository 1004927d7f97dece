"""Image captioning: generate a sentence about an image. Pre-training uses the same samples (`Pretraining` below)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from diptych.core import Batch, Record, Sample, Task, Vocabulary, Writer, collate
from diptych.core.shares import PartialShare
from diptych.data.store.tokens import Tokens
from diptych.metrics.bleu import bleu_scores
from diptych.metrics.bootstrap import Interval, bootstrap_interval, paired_interval, rows_by_picture
from diptych.metrics.captions import CaptionItems, caption_items, caption_scores, java_scores
from diptych.metrics.tokenise import UNSPACED
from diptych.models.decoding import DecodingOptions, decode
from diptych.models.decoding.chosen import chosen_decoding
from diptych.objectives import GenerateText, Schedule, together
from diptych.objectives.settings import Objectives
from diptych.runtime.configs import derive
from diptych.runtime.decoding import decoding_field
from diptych.runtime.devices import Precision, predicting
from diptych.runtime.errors import UnsupportedError, counted
from diptych.runtime.verbs import TASK_VERBS
from diptych.tasks import interface
from diptych.tasks.baselines import best_blind_caption, caption_ceiling, most_frequent_caption
from diptych.tasks.influence import weigh_words
from diptych.tasks.run import encode
from diptych.tasks.scores import Baselines, ItemScore, Score, Scores, present, score_of
from diptych.tasks.self_critical import SelfCriticalObjectives
from diptych.tasks.spec import LIKELIHOOD, Small, TaskScoring, TaskSpec, TaskTraining


@dataclass(frozen=True)
class Captioning:
    """One training sample per caption; one query per image."""

    tokens: Tokens
    decoding: DecodingOptions
    max_words: int = 20  # maximum number of tokens; longer captions are cut, as in the papers
    # True: captions are scored with words split as in BERT (t - shirt), as in the papers' code.
    split_words: bool = False
    # {key: caption that was left out}. All words of the caption are out of vocabulary, so the model would learn to
    # write [UNK].
    unknown: dict[str, str] = field(default_factory=dict, compare=False)

    name = "caption"

    def samples(self, record: Record) -> list[Sample]:
        samples = []
        for position, caption in enumerate(record.captions):
            key, text = f"{record.key}#{position}", encode(self.tokens, caption, self.max_words)
            if len(text) == 1:  # a text with only [SEP] is an empty caption, which `diptych check` reports
                continue
            if self.tokens.knows(text[:-1].tolist()):
                samples.append(Sample(key, record.key, None, text))
            else:
                self.unknown[key] = caption
        return samples

    def queries(self, record: Record) -> list[Sample]:
        return [Sample(record.key, record.key, record.regions, torch.zeros(0, dtype=torch.long))]

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        best = [hypotheses[0] for hypotheses in decode(model, batch, self.decoding)]
        return [
            {"key": key, "caption": self.tokens.decode(written.tokens, self.split_words), "score": written.score}
            for key, written in zip(batch.keys, best, strict=True)
        ]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return BLEU-1 to 4, ROUGE-L and CIDEr, all times 100, over the records that have captions."""
        references = present(references_of(records), "captions to score against")
        written = {p["key"]: p["caption"] for p in predictions}
        scores = caption_scores({key: written[key] for key in references}, references)
        return {name: 100 * score for name, score in scores.items()}


def caption_baselines(references: Mapping[str, Sequence[str]], training: Sequence[Sequence[str]] = ()) -> Baselines:
    """Return the blind baseline and the ceiling of captions.

    `training`: the captions of each training image. Without training captions, there is no blind baseline.
    """
    blind, ceiling, notes = {}, caption_ceiling(references) or {}, []
    if training:
        best, frequent = best_blind_caption(training), most_frequent_caption(training)
        blind = caption_items(dict.fromkeys(references, best), references).scores()
        cider = caption_items(dict.fromkeys(references, frequent), references).scores()["CIDEr"]
        notes.append(f"blind: the training caption with the best CIDEr on training, given to every image: “{best}”")
        notes.append(
            f"learnt on {counted(training, 'images')}; the most frequent training caption, “{frequent}”, gets "
            f"CIDEr {100 * cider:.1f}"
        )
    if ceiling:
        notes.append(
            "ceiling: mean score of each reference caption against the other captions of its image, which are one "
            "reference fewer than a model has; document frequencies as for the model"
        )
    else:
        notes.append("no ceiling: it needs two or more reference captions for an image")
    return Baselines(blind, ceiling, tuple(notes))


def score_captions(
    predictions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    baselines: Baselines | None = None,
    coverage: float = 1.0,
) -> Scores:
    """Score captions by BLEU-1 to 4, ROUGE-L and CIDEr, with 95% confidence intervals and the given baselines."""
    baselines = baselines or Baselines()
    items = caption_items({key: predictions[key] for key in references}, references)
    scores = [baselines.score(name, _interval(name, items)) for name in items.scores()]
    first = "intervals: 95%, 1,000 bootstrap resamples of images; document frequencies of CIDEr are those of all images"
    notes = [first]
    if len(references) == 1:
        notes.append("CIDEr of a single image is always 0: the inverse document frequency of each word is 0")
    if any(UNSPACED.search(caption) for captions in references.values() for caption in captions):
        notes.append("words of scripts without spaces (Chinese, Japanese, Thai) are single characters")
    rows = zip(items.keys, items.cider.tolist(), strict=True)
    return Scores(
        "caption", tuple(scores), len(references), len(references), coverage, (*notes, *baselines.notes),
        rows=tuple(ItemScore(key, key, "", predictions[key], "", cider) for key, cider in rows),
    )  # fmt: skip


def _interval(name: str, items: CaptionItems) -> Interval:
    if name.startswith("BLEU-"):
        order = int(name[-1]) - 1
        return bootstrap_interval(items.bleu, lambda counts: bleu_scores(counts)[..., order])
    return bootstrap_interval(rows_by_picture(items.rouge if name == "ROUGE-L" else items.cider))


def extra_caption_scores(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]], names: Sequence[str]
) -> list[Score]:
    """Return the scores in `names` (METEOR, SPICE), times 100. Both need Java."""
    values = java_scores({key: predictions[key] for key in references}, references, names)
    return [Score(name, 100 * value) for name, value in values.items()]


def caption_gain(first: Mapping[str, str], second: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> Score:
    """Return the difference in CIDEr, second minus first, with a paired bootstrap interval over images."""
    ours, theirs = (
        rows_by_picture(caption_items({key: captions[key] for key in references}, references).cider)
        for captions in (second, first)
    )
    return score_of("CIDEr", paired_interval(ours, theirs))


def references_of(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Return the captions of each record with captions, by the record's key."""
    return {record.key: record.captions for record in records if record.captions}


def greedily(task: Task, records: list[Record]) -> tuple[Task, list[Record]]:
    """Return the task with greedy decoding for validation, as in the papers; beam search is for final scores."""
    assert isinstance(task, Captioning)
    options = task.decoding
    greedy = derive(options, beams=1, captions=options.captions if options.sample else None)
    return replace(task, decoding=greedy), records


class CaptionObjectives(Objectives):
    """Fine-tuning of an encoder-decoder for captions: cross-entropy of the next word."""

    kind: Literal["caption"] = "caption"
    """Kind of objectives."""
    label_smoothing: PartialShare = 0.0
    """Label smoothing of the words."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(GenerateText(vocabulary, reads="nothing", label_smoothing=self.label_smoothing))


class CaptionRequest(interface.TaskRequest):
    """The options of a caption request. If a decoding option is None, the model's recipe sets it."""

    captions: Annotated[
        int, interface.Form("How many captions", more=True, option="num_captions"), Field(ge=1, le=16)
    ] = 1
    """Captions of each image, at most 16, the likeliest first."""
    beams: Annotated[int | None, interface.Form(
        "Beams (captions searched at once); empty: the recipe's", more=True,
        help="Beam size, 1 (greedy) to 16; more beams take more memory and time; default: the recipe's.",
    )] = decoding_field("beams", le=16)  # fmt: skip
    length_bonus: Annotated[float | None, interface.Form()] = decoding_field("length_bonus", ge=-100, le=100)
    length_penalty: Annotated[float | None, interface.Form()] = decoding_field("length_penalty", le=10)
    sample: Annotated[bool, interface.Form("Sample words at random", more=True)] = False
    """Sample words instead of searching for the likeliest caption; temperature, top-k and top-p imply this."""
    temperature: Annotated[float | None, interface.Form()] = decoding_field("temperature")
    top_k: Annotated[int | None, interface.Form()] = decoding_field("top_k")
    top_p: Annotated[float | None, interface.Form()] = decoding_field("top_p")
    seed: Annotated[int | None, interface.Form("Seed of sampled words", more=True), Field(ge=0, le=2**63 - 1)] = 0
    """Random seed of sampled words, for each image alone; null: they differ at each request."""
    min_words: Annotated[int | None, interface.Form()] = decoding_field("min_words", le=64)
    max_words: Annotated[int | None, interface.Form("Most words", more=True)] = decoding_field("max_words", le=64)
    no_repeat_ngram: Annotated[int | None, interface.Form()] = decoding_field("no_repeat_ngram")
    explain: bool = Field(default=False, description="Also return the regions, with the influence of each on words.")


# Fields of a caption request that `DecodingOptions` does not have.
OWN = {"model", "explain", "captions", "sample", "seed"}


class OtherCaption(interface.Message):
    caption: str
    score: float


class WrittenCaption(interface.TaskAnswer):
    caption: str
    score: float = Field(description="Log-probability.")
    others: tuple[OtherCaption, ...] | None = None
    shown: str | None = None
    explanation: interface.Explanation | None = None


def write(
    model: interface.TaskModel, requests: Sequence[tuple[Record, CaptionRequest]], decoding: DecodingOptions
) -> list[interface.GroundedText]:
    """Caption all records in one batch. With several beams, the other finished captions are in `others`.

    Words that are drawn for a record depend only on the seed of its request, if it has one. Raises UnsupportedError if
    the model cannot generate text.
    """
    writer: Any = model.model
    if not isinstance(writer, Writer):
        raise UnsupportedError(f"{model.system} cannot caption: it has no decoder; choose another model")
    task = Captioning(model.tokens, decoding)
    with predicting(model.model, len(requests)):
        batch = collate([replace(one, seed=given.seed) for record, given in requests for one in task.queries(record)])
        written = decode(writer, batch.to(next(model.model.parameters()).device), decoding)
    predictions = []
    for (record, _), (best, *others) in zip(requests, written, strict=True):
        made = _prediction(model, record, model.tokens.decode(best.tokens), best.score, model.precision(len(requests)))
        further = tuple((model.tokens.decode(other.tokens), other.score) for other in others)
        predictions.append(replace(made, others=further))
    return predictions


def explain_caption(model: interface.TaskModel, record: Record, caption: str) -> interface.Explanation:
    """Return the influence of each region on each word of `caption`. The model need not have generated the caption."""
    interface.require_text("a caption", caption, "a dog on a beach")
    return _prediction(model, record, caption, 0.0, model.precision(1)).explain()


def _prediction(
    model: interface.TaskModel, record: Record, text: str, score: float, precision: Precision
) -> interface.GroundedText:
    words = model.tokens.words(text)
    return interface.GroundedText(
        text=text,
        score=score,
        precision=precision,
        record=record,
        words=tuple(word for word, _ in words),
        weigh=partial(_weigh, model, record, [pieces for _, pieces in words]),
        class_names=model.class_names,
    )


def _weigh(model: interface.TaskModel, record: Record, words: list[list[int]]) -> Float[Tensor, "W R"]:
    """Return the influence of each region on each word. A word's influence is the sum over its word pieces."""
    assert record.regions is not None
    pieces = torch.tensor([piece for word in words for piece in word], dtype=torch.long)
    weights = weigh_words(model.model, record.regions, pieces)
    of_word = torch.tensor([number for number, word in enumerate(words) for _ in word], dtype=torch.long)
    return torch.zeros(len(words), weights.shape[1]).index_add_(0, of_word, weights)


def _answer(
    model: interface.TaskModel, requests: Sequence[tuple[Record, CaptionRequest]]
) -> list[interface.GroundedText]:
    """Caption all records in one batch.

    `TaskInterface.alike` ensures that all requests of a batch have equal options, but for seeds.
    """
    return write(model, requests, _decoding(model, requests[0][1]))


def _decoding(model: interface.TaskModel, request: CaptionRequest) -> DecodingOptions:
    given = request.model_dump(exclude=OWN)
    return chosen_decoding(model.decoding, request.captions, request.sample, **given).fit(model.tokens.vocabulary.size)


def _message(prediction: interface.GroundedText, request: CaptionRequest, picture: str) -> WrittenCaption:
    others = prediction.others[: request.captions - 1]
    return WrittenCaption(
        picture=picture,
        precision=prediction.precision,
        caption=prediction.text,
        score=prediction.score,
        others=tuple(OtherCaption(caption=text, score=score) for text, score in others) or None,
        explanation=prediction.explain() if request.explain else None,
    )


def _all_of(message: WrittenCaption) -> list[str]:
    return [message.caption, *(other.caption for other in message.others or ())]


def _view(_: CaptionRequest, message: WrittenCaption) -> interface.PageView:
    first, *others = _all_of(message)
    return interface.PageView(summary=first, words=first, explanation=message.explanation, items=tuple(others))


def _longest(task: Task) -> str:
    assert isinstance(task, Captioning)
    return f"A caption has at most {task.decoding.max_words} words, from the model's vocabulary."


def _writes(model: Any, trained_for: str | None) -> bool:
    able = isinstance(model, Writer) and "word" in model.heads  # type: ignore[attr-defined]
    return able and trained_for in (None, PRETRAIN.name, CAPTION.name)


CAPTION = TaskSpec(
    name="caption",
    title="Captions",
    learns="write",
    field="captions",
    head="word",
    build=lambda given: Captioning(given.tokens, given.decoding, given.max_words, given.split_words),
    training=TaskTraining(
        watched="CIDEr",
        objectives=(CaptionObjectives, SelfCriticalObjectives),
        small=Small(CaptionObjectives()),
        validation=greedily,
    ),
    scoring=TaskScoring(
        noun="captions",
        key="caption",
        shown=("CIDEr", "BLEU-4"),
        score=lambda written, records, baselines: score_captions(written, references_of(records), baselines),
        baselines=lambda records, training: caption_baselines(
            references_of(records), [record.captions for record in training if record.captions]
        ),
        gain=lambda first, second, records: caption_gain(first, second, references_of(records)),
        extra_scores=lambda written, records, names: extra_caption_scores(written, references_of(records), names),
    ),
    interface=interface.TaskInterface(
        verb="caption",
        help=TASK_VERBS["caption"].help,
        words=interface.InterfaceWords(
            does="writes a sentence about an image",
            example='print(model.caption("photo.jpg"))',
            pipeline="image-to-text",
            limit=_longest,
        ),
        request=CaptionRequest,
        response=WrittenCaption,
        answer=_answer,
        check=_decoding,
        message=_message,
        lines=lambda message, _: [f"{message.picture}: {caption}" for caption in _all_of(message)],
        view=_view,
        offered=_writes,
        alike=lambda request: (request.seed is None, request.model_dump_json(exclude={"explain", "seed"})),
        programs="captions",
    ),
    learnt=lambda model: "decode" in model.provides and "word" in model.heads,
)


@dataclass(frozen=True)
class Pretraining(Captioning):
    """One training sample per caption; for an image without captions, one per answered question."""

    def samples(self, record: Record) -> list[Sample]:
        return super().samples(record if record.captions else replace(record, captions=pretraining_texts(record)))


def pretraining_texts(record: Record) -> tuple[str, ...]:
    """Return a record's captions.

    If the record has no captions, return each answered question joined with its most frequent answer.
    """
    answered = (question for question in record.questions if question.answers)
    usual = ((one.text, Counter(one.answers).most_common(1)[0][0]) for one in answered)
    return record.captions or tuple(f"{question} {answer}" for question, answer in usual)


PRETRAIN = replace(
    CAPTION,
    name="pretrain",
    title="Pre-training",
    also=("questions",),
    build=lambda given: Pretraining(given.tokens, given.decoding, given.max_words),
    training=replace(CAPTION.training, watched=LIKELIHOOD, objectives=(), small=None),
    interface=None,
)
