"""Decoding word by word: greedy search, beam search or sampling.

Each step predicts the next word of every beam of every image. A finished text ends with [SEP].
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from diptych.core import Batch, Vocabulary, Writer
from diptych.core.randomness import pick, uniform
from diptych.models.decoding.options import DecodingOptions

# Score of a word after [SEP] or of a forbidden word. A finite score (as in the authors' code) keeps beams comparable,
# and a beam generates a word even if all words are forbidden.
REFUSED = -10000.0
# On these devices, the search checks only after every 4th word whether it can end.
ASYNCHRONOUS, EVERY = ("cuda",), 4


@dataclass(frozen=True)
class Hypothesis:
    """A decoded text with its score."""

    tokens: list[int]  # token ids of the text, without the final [SEP]
    score: float  # log-probability of the tokens and [SEP], adjusted for length, at temperature 1


@dataclass
class Frames:
    """The history of a search: for each step, the word, score and parent of each beam."""

    words: list[Int[Tensor, "B K"]] = field(default_factory=list)
    scores: list[Float[Tensor, "B K"]] = field(default_factory=list)
    parents: list[Int[Tensor, "B K"]] = field(default_factory=list)
    ended: list[Bool[Tensor, "B K"]] = field(default_factory=list)  # True: the beam has ended
    written: Int[Tensor, "B K U"] | None = None  # words of each beam; None if no_repeat_ngram is off

    def __len__(self) -> int:
        return len(self.words)

    def on_host(self) -> Frames:
        """Copy the history to the CPU, with one transfer per field."""
        chosen = (self.words, self.scores, self.parents)
        words, scores, parents = (list(torch.stack(part).cpu().unbind()) for part in chosen)
        return Frames(words, scores, parents)


@torch.no_grad()
def decode(model: Writer, batch: Batch, options: DecodingOptions) -> list[list[Hypothesis]]:
    """Return the finished texts of each image, best first.

    There are at most `options.captions` (None: one per beam).
    """
    frames = search(model, batch, options).on_host()
    return [finished(frames, row, model.vocabulary.sep, options)[: options.captions] for row in range(len(batch))]


@torch.no_grad()
def search(model: Writer, batch: Batch, options: DecodingOptions) -> Frames:
    """Run all steps of a search and return its history."""
    options.fit(model.vocabulary.size)
    first, memory = model.begin(batch, options.max_words)
    scores, frames = first[:, None], Frames()
    # If several texts are wanted, the search continues after the best text has ended.
    early = options.stop_early and (options.sample or (options.captions or 1) == 1)
    while True:
        logs = _refuse(scores.float().log_softmax(-1), frames, model.vocabulary, options)
        if options.sample:
            _draw(logs, frames, model.vocabulary, options, batch)
        else:
            _choose(logs, frames, model.vocabulary, options)
        # On a GPU, the check waits for queued work, so it is not made in every step. Words after the end of a text do
        # not change the result.
        due = early and len(frames) % (EVERY if scores.device.type in ASYNCHRONOUS else 1) == 0
        if len(frames) == options.max_words or (due and _settled(frames, model.vocabulary.sep, options)):
            return frames
        scores = model.follow(memory, frames.words[-1], frames.parents[-1])


def _refuse(
    logs: Float[Tensor, "B J V"], frames: Frames, vocabulary: Vocabulary, options: DecodingOptions
) -> Float[Tensor, "B J V"]:
    """Forbid [SEP] before `min_words`, and words that would repeat an n-gram of the beam."""
    if len(frames) < options.min_words:
        logs[..., vocabulary.sep] = REFUSED
    if options.no_repeat_ngram is not None and frames.written is not None:
        logs = logs.masked_fill(_repeats(frames.written, options.no_repeat_ngram, logs), REFUSED)
    return logs


def _repeats(written: Int[Tensor, "B K U"], run: int, like: Float[Tensor, "B K V"]) -> Bool[Tensor, "B K V"]:
    """Return a mask of the words that would complete an n-gram of `run` words that the beam already contains."""
    if written.shape[-1] < run:
        return torch.zeros_like(like, dtype=torch.bool)
    runs = written.unfold(-1, run, 1)  # n-grams of each beam: (B, K, number, run)
    begun = written[..., written.shape[-1] - run + 1 :]  # the last words of a beam, which begin the next n-gram
    same = (runs[..., :-1] == begun[..., None, :]).all(-1)
    return torch.zeros_like(like).scatter_add_(-1, runs[..., -1], same.to(like.dtype)) > 0


def _choose(logs: Float[Tensor, "B J V"], frames: Frames, vocabulary: Vocabulary, options: DecodingOptions) -> None:
    """Append the K best continuations of the J beams to `frames`. This is one step of beam search."""
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
    logs: Float[Tensor, "B J V"], frames: Frames, vocabulary: Vocabulary, options: DecodingOptions, batch: Batch
) -> None:
    """Sample the next word of each text and append the step to `frames`.

    Ended texts get [PAD]. Scores ignore the temperature.
    """
    count, seeds = options.width, batch.seeds
    logs = logs.expand(-1, count, -1)
    refused = logs <= REFUSED
    refused = refused & ~refused.all(-1, keepdim=True)
    tempered = (logs - logs.amax(-1, keepdim=True)) / options.temperature
    chances = _narrowed(tempered.masked_fill(refused, float("-inf")), options).softmax(-1)
    if seeds is None:
        words = torch.multinomial(chances.flatten(0, 1), 1).view(-1, count)
    else:  # one seed per sample, so that words do not depend on micro-batches or processes
        texts = torch.arange(count, device=chances.device)
        words = pick(chances, uniform(seeds[:, None].expand(-1, count), texts, len(frames)))
    scores = logs.gather(-1, words[..., None])[..., 0]
    if len(frames):
        words = torch.where(frames.ended[-1], vocabulary.pad, words)
        scores = frames.scores[-1] + torch.where(frames.ended[-1], 0, scores)
    parents = torch.arange(count, device=words.device).expand_as(words) if len(frames) else torch.zeros_like(words)
    _take(frames, words, scores, parents, vocabulary, options)


def _narrowed(logs: Float[Tensor, "B K V"], options: DecodingOptions) -> Float[Tensor, "B K V"]:
    """Set all words to -inf except the `top_k` best, and of these the smallest set with probability `top_p`."""
    if options.top_k is not None:
        least = logs.topk(options.top_k, -1).values[..., -1:]
        logs = logs.masked_fill(logs < least, float("-inf"))
    if options.top_p is not None:
        ordered, order = torch.sort(logs, dim=-1, descending=True, stable=True)
        chances = ordered.softmax(-1)
        before = chances.cumsum(-1) - chances  # the sum is 0 for the most probable word, so this word is always kept
        logs = logs.masked_fill(torch.zeros_like(logs).scatter_(-1, order, before) >= options.top_p, float("-inf"))
    return logs


def _take(
    frames: Frames, words: Tensor, scores: Tensor, parents: Tensor, vocabulary: Vocabulary, options: DecodingOptions
) -> None:
    """Append a step to `frames`. In the first step all parents are 0, because all beams start from the same state."""
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
    """Return True if no unfinished beam can still exceed the score of the best finished text of its image.

    A beam's log-probability can only fall when words are added.
    """
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
    """Return the texts of image `row`, best first: beams that ended with the token `end`, or were cut at `max_words`.

    As in the authors' code, steps after the first one in which all beams end are ignored. Beams with words after [SEP]
    are left out.
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
    texts = []
    for score, number, beam in ends:
        tokens = _track_back(words, parents, number, beam)
        if end not in tokens[:-1]:
            texts.append(Hypothesis(tokens[:-1] if tokens[-1] == end else tokens, score))
    return texts[: options.beams]


def _kept(
    words: list[list[int]], scores: list[float], parents: list[list[int]], end: int, options: DecodingOptions
) -> list[Hypothesis]:
    """Return the K beams of the last step as texts, best first."""
    texts = []
    for beam, score in enumerate(scores):
        tokens = _track_back(words, parents, len(words) - 1, beam)
        sentence = tokens[: tokens.index(end)] if end in tokens else tokens
        texts.append(Hypothesis(sentence, options.weigh(score, len(sentence) + (end in tokens))))
    return sorted(texts, key=lambda hypothesis: -hypothesis.score)


def _track_back(words: list[list[int]], parents: list[list[int]], step: int, beam: int) -> list[int]:
    """Return the words of a beam from the first step to `step`."""
    tokens = []
    for n in range(step, -1, -1):
        tokens.append(words[n][beam])
        beam = parents[n][beam]
    return tokens[::-1]
