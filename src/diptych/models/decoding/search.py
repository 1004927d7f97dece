"""Writing a text word by word: greedy, with several beams, or drawn by chance.

A step asks for the next word of every beam of every picture at once. What was written ends with [SEP].
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from diptych.core import Batch, Vocabulary, Writer
from diptych.core.randomness import pick, uniform
from diptych.models.decoding.options import DecodingOptions

# Added once to a word that follows [SEP], and to each that an option refuses. Finite, as in the authors' code, so that
# scores stay comparable, and a beam whose every word is refused still writes one.
REFUSED = -10000.0
ASKED_SELDOM, EVERY = ("cuda",), 4  # devices that are asked every so many words whether the search is over


@dataclass(frozen=True)
class Hypothesis:
    """One decoded text."""

    tokens: list[int]  # without the final [SEP]
    score: float  # log-probability (of [SEP] too), weighed by length; of a drawn text the model's own


@dataclass
class Frames:
    """What every step chose: the word, score and parent of each beam."""

    words: list[Int[Tensor, "B K"]] = field(default_factory=list)
    scores: list[Float[Tensor, "B K"]] = field(default_factory=list)
    parents: list[Int[Tensor, "B K"]] = field(default_factory=list)
    ended: list[Bool[Tensor, "B K"]] = field(default_factory=list)  # with this step's word or before
    written: Int[Tensor, "B K U"] | None = None  # all words of each beam, kept where repeats are refused

    def __len__(self) -> int:
        return len(self.words)

    def on_host(self) -> Frames:
        """In one journey, and not one a number."""
        words, scores, parents = (
            list(torch.stack(part).cpu().unbind()) for part in (self.words, self.scores, self.parents)
        )
        return Frames(words, scores, parents)


@torch.no_grad()
def decode(model: Writer, batch: Batch, options: DecodingOptions) -> list[list[Hypothesis]]:
    """For each picture its finished texts, best first: `options.captions`, or at most as many as there are beams."""
    frames = search(model, batch, options).on_host()
    return [finished(frames, row, model.vocabulary.sep, options)[: options.captions] for row in range(len(batch))]


@torch.no_grad()
def search(model: Writer, batch: Batch, options: DecodingOptions) -> Frames:
    """All steps of the search. With one beam each takes its best word, whatever came before."""
    options.fit(model.vocabulary.size)
    first, memory = model.begin(batch, options.max_words)
    scores, frames = first[:, None], Frames()
    several = not options.sample and (options.captions or 1) > 1  # the search goes on after the best one has ended
    early = options.stop_early and not several
    while True:
        logs = _refuse(scores.float().log_softmax(-1), frames, model.vocabulary, options)
        if options.sample:
            _draw(logs, frames, model.vocabulary, options, batch.seeds)
        else:
            _choose(logs, frames, model.vocabulary, options)
        # To know whether all is settled, a GPU is waited for: so it is asked now and then. Words that are written
        # behind the end count for nothing.
        due = early and len(frames) % (EVERY if scores.device.type in ASKED_SELDOM else 1) == 0
        if len(frames) == options.max_words or (due and _settled(frames, model.vocabulary.sep, options)):
            return frames
        scores = model.follow(memory, frames.words[-1], frames.parents[-1])


def _refuse(
    logs: Float[Tensor, "B J V"], frames: Frames, vocabulary: Vocabulary, options: DecodingOptions
) -> Float[Tensor, "B J V"]:
    """No end before `min_words`, no run of words that the beam has written already."""
    if len(frames) < options.min_words:
        logs[..., vocabulary.sep] = REFUSED
    if options.no_repeat_ngram is not None and frames.written is not None:
        logs = logs.masked_fill(_repeats(frames.written, options.no_repeat_ngram, logs), REFUSED)
    return logs


def _repeats(written: Int[Tensor, "B K U"], run: int, like: Float[Tensor, "B K V"]) -> Bool[Tensor, "B K V"]:
    """The words that would end a run of `run` words for the second time."""
    if written.shape[-1] < run:
        return torch.zeros_like(like, dtype=torch.bool)
    runs = written.unfold(-1, run, 1)  # (B, K, W, run)
    begun = written[..., written.shape[-1] - run + 1 :]  # what a run would begin with
    same = (runs[..., :-1] == begun[..., None, :]).all(-1)
    return torch.zeros_like(like).scatter_add_(-1, runs[..., -1], same.to(like.dtype)) > 0


def _choose(logs: Float[Tensor, "B J V"], frames: Frames, vocabulary: Vocabulary, options: DecodingOptions) -> None:
    """The K best continuations of the J beams: the best K of each, then the best K of those."""
    if len(frames) and options.ended == "kept":
        nothing = torch.full_like(logs, REFUSED)
        nothing[..., vocabulary.pad] = 0
        logs = torch.where(frames.ended[-1][..., None], nothing, logs)
    best, words = logs.topk(options.beams, -1)
    if len(frames):
        again = (frames.words[-1] == vocabulary.sep) * REFUSED if options.ended == "dropped" else 0
        best = best + (again + frames.scores[-1])[..., None]
    chosen, which = best.flatten(1).topk(options.beams, -1)
    _take(frames, words.flatten(1).gather(1, which), chosen, which // options.beams, vocabulary, options)


def _draw(
    logs: Float[Tensor, "B J V"],
    frames: Frames,
    vocabulary: Vocabulary,
    options: DecodingOptions,
    seeds: Int[Tensor, "B"] | None,
) -> None:
    """A word for each text; one that has ended writes [PAD] at no cost. Scores are the model's own, untempered."""
    count = options.width
    logs = logs.expand(-1, count, -1)
    refused = logs <= REFUSED
    refused = refused & ~refused.all(-1, keepdim=True)
    tempered = (logs - logs.amax(-1, keepdim=True)) / options.temperature
    chances = _narrowed(tempered.masked_fill(refused, float("-inf")), options).softmax(-1)
    if seeds is None:
        words = torch.multinomial(chances.flatten(0, 1), 1).view(-1, count)
    else:  # a function of the sample, the text and the place: parts and processes draw alike
        texts = torch.arange(count, device=chances.device)
        words = pick(chances, uniform(seeds[:, None].expand(-1, count), texts, len(frames)))
    scores = logs.gather(-1, words[..., None])[..., 0]
    if len(frames):
        words = torch.where(frames.ended[-1], vocabulary.pad, words)
        scores = frames.scores[-1] + torch.where(frames.ended[-1], 0, scores)
    parents = torch.arange(count, device=words.device).expand_as(words) if len(frames) else torch.zeros_like(words)
    _take(frames, words, scores, parents, vocabulary, options)


def _narrowed(logs: Float[Tensor, "B K V"], options: DecodingOptions) -> Float[Tensor, "B K V"]:
    """Only the likeliest words are left: `top_k` of them, then those that make up `top_p` of these."""
    if options.top_k is not None:
        least = logs.topk(options.top_k, -1).values[..., -1:]
        logs = logs.masked_fill(logs < least, float("-inf"))
    if options.top_p is not None:
        ordered, order = torch.sort(logs, dim=-1, descending=True, stable=True)
        chances = ordered.softmax(-1)
        before = chances.cumsum(-1) - chances  # the first word always stays
        logs = logs.masked_fill(torch.zeros_like(logs).scatter_(-1, order, before) >= options.top_p, float("-inf"))
    return logs


def _take(
    frames: Frames, words: Tensor, scores: Tensor, parents: Tensor, vocabulary: Vocabulary, options: DecodingOptions
) -> None:
    """One step more. `parents` of the first are 0: all beams begin as one."""
    if options.no_repeat_ngram is not None:
        before = frames.written
        if before is not None:
            before = before.gather(1, parents[..., None].expand(-1, -1, before.shape[-1]))
        frames.written = words[..., None] if before is None else torch.cat([before, words[..., None]], -1)
    ended = words == vocabulary.sep
    if len(frames):
        ended = ended | frames.ended[-1].gather(1, parents)
    frames.words.append(words)
    frames.scores.append(scores)
    frames.parents.append(parents)
    frames.ended.append(ended)


def _settled(frames: Frames, end: int, options: DecodingOptions) -> bool:
    """Whether, for every picture, no beam can still overtake the best finished one. Log-probabilities only fall."""
    if options.ended == "kept" or options.sample:
        return bool(frames.ended[-1].all())
    longest = max(options.length_bonus, 0.0) * options.max_words
    alive = (
        frames.scores[-1] / options.max_words**options.length_penalty + longest + (frames.words[-1] == end) * REFUSED
    )
    best = torch.full_like(alive[:, 0], float("-inf"))
    for number, (words, scores) in enumerate(zip(frames.words, frames.scores, strict=True), 1):
        weighed = scores / number**options.length_penalty + options.length_bonus * number
        best = torch.maximum(best, weighed.masked_fill(words != end, float("-inf")).amax(1))
    return bool((best >= alive.amax(1)).all())


def finished(frames: Frames, row: int, end: int, options: DecodingOptions) -> list[Hypothesis]:
    """Beams that ended, and those that `max_words` cut short, by score; of equal ones the earlier.

    As the authors track back: nothing counts after the first frame in which all beams ended. What a beam writes
    after its [SEP] is no text.
    """
    words = [frame[row].tolist() for frame in frames.words]
    scores = [frame[row].tolist() for frame in frames.scores]
    parents = [frame[row].tolist() for frame in frames.parents]
    if options.ended == "kept" or options.sample:
        return _kept(words, scores[-1], parents, end, options)
    last = next((n for n, frame in enumerate(words) if all(w == end for w in frame)), len(words) - 1)
    ends = [
        (options.weigh(scores[n][k], n + 1), n, k)
        for n in range(last + 1)
        for k, word in enumerate(words[n])
        if word == end or n == options.max_words - 1
    ]
    ends.sort(key=lambda item: -item[0])
    found = []
    for score, number, beam in ends:
        tokens = _track_back(words, parents, number, beam)
        if end not in tokens[:-1]:
            found.append(Hypothesis(tokens[:-1] if tokens[-1] == end else tokens, score))
    return found[: options.beams]


def _kept(
    words: list[list[int]], scores: list[float], parents: list[list[int]], end: int, options: DecodingOptions
) -> list[Hypothesis]:
    """The K beams of the last frame, by score."""
    found = []
    for beam, score in enumerate(scores):
        tokens = _track_back(words, parents, len(words) - 1, beam)
        sentence = tokens[: tokens.index(end)] if end in tokens else tokens
        found.append(Hypothesis(sentence, options.weigh(score, len(sentence) + (end in tokens))))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def _track_back(words: list[list[int]], parents: list[list[int]], step: int, beam: int) -> list[int]:
    """What the beam that wrote a word at `step` had written, that word included."""
    tokens = []
    for n in range(step, -1, -1):
        tokens.append(words[n][beam])
        beam = parents[n][beam]
    return tokens[::-1]
