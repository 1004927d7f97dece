"""CIDEr does not depend on the order of hashes, which differs between processes."""

from __future__ import annotations

from random import Random

from diptych.metrics.cider import CiderD, DocumentFrequencies


class Word(str):
    """A word whose hash depends on `salt`, as that of a string depends on PYTHONHASHSEED."""

    salt = 0

    def __hash__(self) -> int:
        return hash((self.salt, str.__hash__(self)))

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


def scores_with(salt: int) -> list[float]:
    Word.salt, draw = salt, Random(0)
    captions = [tuple(Word(f"w{draw.randrange(30)}") for _ in range(14)) for _ in range(60)]
    references = {str(number): captions[number : number + 5] for number in range(0, 50, 5)}
    scorer = CiderD(DocumentFrequencies.of(references.values()), references)
    return [scorer.score(key, caption) for key, caption in zip(references, captions[50:], strict=True)]


def test_scores_are_the_same_in_each_process() -> None:
    """Rewards of SCST are CIDEr, so a run would not resume bit for bit."""
    assert all(score > 0 for score in scores_with(0))
    assert len({tuple(scores_with(salt)) for salt in range(8)}) == 1
