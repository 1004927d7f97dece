"""Writing a text word by word: greedy, or with several beams.

A step asks for the next word of every beam of every picture at once. What was written ends with [SEP].
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from diptych.core import Batch, Vocabulary, Writer

# Added once to a word that follows [SEP]. Finite, as in the authors' code, so that scores stay comparable.
REFUSED = -10000.0


class DecodingOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    beams: int = Field(default=1, ge=1)  # K; 1 is greedy
    max_words: int = Field(default=20, ge=1)  # the final [SEP] included
    min_words: int = Field(default=0, ge=0)  # [SEP] is refused before
    length_penalty: float = 0.0  # added per word to a finished beam's log-probability; 0 compares the sums alone
    # What becomes of a beam that has written [SEP]: it gives its place to another, or keeps it at no further cost, so
    # that the search may end with fewer alive (TDEN's code).
    ended: Literal["dropped", "kept"] = "dropped"
    stop_early: bool = True  # once no beam can overtake; the captions are the same without, and it takes longer


@dataclass(frozen=True)
class Hypothesis:
    tokens: list[int]  # without the final [SEP]
    score: float  # log-probability (of [SEP] too) + length_penalty * words written


@dataclass
class Frames:
    """What every step chose: the word, score and parent of each beam."""

    words: list[Int[Tensor, "B K"]] = field(default_factory=list)
    scores: list[Float[Tensor, "B K"]] = field(default_factory=list)
    parents: list[Int[Tensor, "B K"]] = field(default_factory=list)
    ended: list[Bool[Tensor, "B K"]] = field(default_factory=list)  # with this step's word or before

    def __len__(self) -> int:
        return len(self.words)


@torch.no_grad()
def decode(model: Writer, batch: Batch, options: DecodingOptions) -> list[list[Hypothesis]]:
    """For each picture its finished texts, best first, at most as many as there are beams."""
    frames = search(model, batch, options)
    return [finished(frames, row, model.vocabulary.sep, options) for row in range(len(batch))]


@torch.no_grad()
def search(model: Writer, batch: Batch, options: DecodingOptions) -> Frames:
    """All steps of the search. With one beam each takes its best word, whatever came before."""
    first, memory = model.begin(batch, options.max_words)
    scores, frames = first[:, None], Frames()
    while True:
        _choose(scores.float(), frames, model.vocabulary, options)
        if len(frames) == options.max_words or (options.stop_early and _settled(frames, model.vocabulary.sep, options)):
            return frames
        scores = model.follow(memory, frames.words[-1], frames.parents[-1])


def _choose(scores: Float[Tensor, "B J V"], frames: Frames, vocabulary: Vocabulary, options: DecodingOptions) -> None:
    """The K best continuations of the J beams: the best K of each, then the best K of those."""
    logs = scores.log_softmax(-1)
    if len(frames) < options.min_words:
        logs[..., vocabulary.sep] = REFUSED
    if len(frames) and options.ended == "kept":
        nothing = torch.full_like(logs, REFUSED)
        nothing[..., vocabulary.pad] = 0
        logs = torch.where(frames.ended[-1][..., None], nothing, logs)
    best, words = logs.topk(options.beams, -1)
    if len(frames):
        again = (frames.words[-1] == vocabulary.sep) * REFUSED if options.ended == "dropped" else 0
        best = best + (again + frames.scores[-1])[..., None]
    chosen, which = best.flatten(1).topk(options.beams, -1)
    frames.words.append(words.flatten(1).gather(1, which))
    frames.scores.append(chosen)
    frames.parents.append(which // options.beams)
    ended = frames.words[-1] == vocabulary.sep
    frames.ended.append(ended | frames.ended[-1].gather(1, frames.parents[-1]) if len(frames) > 1 else ended)


def _settled(frames: Frames, end: int, options: DecodingOptions) -> bool:
    """Whether, for every picture, no beam can still overtake the best finished one. Log-probabilities only fall."""
    if options.ended == "kept":
        return bool(frames.ended[-1].all())
    longest = max(options.length_penalty, 0.0) * options.max_words
    alive = frames.scores[-1] + longest + (frames.words[-1] == end) * REFUSED
    best = torch.full_like(alive[:, 0], float("-inf"))
    for number, (words, scores) in enumerate(zip(frames.words, frames.scores, strict=True), 1):
        ended = (scores + options.length_penalty * number).masked_fill(words != end, float("-inf"))
        best = torch.maximum(best, ended.amax(1))
    return bool((best >= alive.amax(1)).all())


def finished(frames: Frames, row: int, end: int, options: DecodingOptions) -> list[Hypothesis]:
    """Beams that ended, and those that `max_words` cut short, by score; of equal ones the earlier.

    As the authors track back: nothing is looked at after the first frame in which all beams ended. What a beam writes
    after its [SEP] is no text.
    """
    words = [frame[row].tolist() for frame in frames.words]
    scores = [frame[row].tolist() for frame in frames.scores]
    parents = [frame[row].tolist() for frame in frames.parents]
    if options.ended == "kept":
        return _kept(words, scores[-1], parents, end, options)
    last = next((n for n, frame in enumerate(words) if all(w == end for w in frame)), len(words) - 1)
    ends = [
        (scores[n][k] + options.length_penalty * (n + 1), n, k)
        for n in range(last + 1)
        for k, word in enumerate(words[n])
        if word == end or n == options.max_words - 1
    ]
    ends.sort(key=lambda item: -item[0])
    found = []
    for score, number, beam in ends:
        tokens, place = [], beam
        for n in range(number, -1, -1):
            tokens.append(words[n][place])
            place = parents[n][place]
        tokens.reverse()
        if end not in tokens[:-1]:
            found.append(Hypothesis(tokens[:-1] if tokens[-1] == end else tokens, score))
    return found[: options.beams]


def _kept(
    words: list[list[int]], scores: list[float], parents: list[list[int]], end: int, options: DecodingOptions
) -> list[Hypothesis]:
    """The K beams of the last frame, by score."""
    found = []
    for beam, score in enumerate(scores):
        tokens, place = [], beam
        for n in range(len(words) - 1, -1, -1):
            tokens.append(words[n][place])
            place = parents[n][place]
        tokens.reverse()
        said = tokens[: tokens.index(end)] if end in tokens else tokens
        found.append(Hypothesis(said, score + options.length_penalty * (len(said) + (end in tokens))))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)
