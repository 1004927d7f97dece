"""Recall of image-text retrieval, with confidence intervals. The baseline is a random order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.metrics.bootstrap import bootstrap_interval, rows_by_picture
from diptych.metrics.retrieval import RECALLS, recall_by_chance
from diptych.runtime.errors import DataError, counted
from diptych.tasks.gallery import Equals, RetrievalGallery
from diptych.tasks.matching import AT
from diptych.tasks.scores import ItemScore, Score, Scores, score_of


def recall_scores(
    gallery: RetrievalGallery,
    predictions: Sequence[Mapping[str, Any]],
    notes: Sequence[str] = (),
    folds: int = 1,
    directions: Iterable[str] = RECALLS,
) -> Scores:
    """Compute R@1, R@5 and R@10 for predictions of `rankings`, in each direction ("captions" or "pictures").

    `folds` is the number of equal parts of the gallery that were ranked separately. Raises DataError if a direction has
    no queries.
    """
    scores: list[Score] = []
    captions_at = {caption.key: column for column, caption in enumerate(gallery.captions)}
    rights = {
        "captions": (gallery.right_captions, {key: row for row, key in enumerate(gallery.keys)}),
        "pictures": (gallery.right_pictures, captions_at),
    }
    figures = []
    for asks in directions:
        chosen = [p for p in predictions if p["asks"] == asks]
        if not chosen:
            raise DataError(f"no query for {asks} was scored, so there is no recall of {asks}; raise --queries")
        masks, place = rights[asks]
        ranks = [p["rank"] for p in chosen]
        right = [int(masks(place[p["key"]], gallery.equals).sum()) for p in chosen]
        figures.append((RECALLS[asks], ranks, [p.get("other_rank", p["rank"]) for p in chosen]))
        of = round(gallery.shape[asks == "captions"] / folds)
        scores += recalls_of(asks, ranks, [p["picture"] for p in chosen], right, of)
    pictures, captions = gallery.shape
    held = f"{counted(pictures, 'images')} and {counted(captions, 'captions')}"
    first = f"intervals: 95%, 1,000 bootstrap resamples of images; a gallery of {held}"
    second = "blind: images and captions in random order"
    copies = equal_notes(gallery.same, gallery.images, gallery.equals, figures)
    return Scores(
        "retrieval", tuple(scores), pictures, len(predictions), notes=(first, second, *copies, *notes),
        rows=tuple(rank_row(p["key"], p["picture"], p["caption"], p["rank"], p["first"])
                   for p in predictions if p["asks"] == "pictures"),
    )  # fmt: skip


def rank_row(key: str, picture: str, caption: str, rank: int, hits: Sequence[str]) -> ItemScore:
    """Return the score of a caption as a query: 1 divided by the position (from 1) of the first right image."""
    return ItemScore(key, picture, caption, f"position {rank + 1}", "position 1", 1 / (rank + 1), hits=tuple(hits))


def equal_notes(
    same: NDArray[np.int64],
    images: NDArray[np.int64],
    equals: Equals,
    figures: Sequence[tuple[str, ArrayLike, ArrayLike]],
) -> list[str]:
    """Return a note on copies (captions with the same words, identical images) and their effect on recall.

    `same`: a group number per caption. `images`: a group number per image. Copies have the same number. `figures`: for
    each direction, its name, its ranks, and its ranks by the other rule for copies (`Equals`).
    """
    copies, equal = (len(of) - len(set(of.tolist())) for of in (same, images))
    if not copies and not equal:
        return []
    other = "right (content)" if equals == "papers" else "wrong, as the papers count them (papers)"
    rows = [
        f"{name} R@{at} {100 * after:.1f} instead of {100 * before:.1f}"
        for name, ranks, others in figures
        for at in AT
        if (before := float(np.mean(np.asarray(ranks) < at))) != (after := float(np.mean(np.asarray(others) < at)))
    ]
    rule = "wrong" if equals == "papers" else "right"
    differ = f"; with copies {other}: {', '.join(rows)}" if rows else ""
    also = f" and {equal} of {len(images)} images" if equal else ""
    return [
        f"{copies} of {len(same)} captions{also} are copies of an earlier one; a copy of a right result is {rule}"
        f"{differ}"
    ]


def recalls_of(asks: str, ranks: ArrayLike, pictures: Sequence[str], right: Sequence[int], of: int) -> Iterator[Score]:
    """Yield R@1, R@5 and R@10 with bootstrap intervals.

    `pictures` has the image of each query, which the bootstrap resamples.

    The blind baseline is a random order of `of` results. `right` has each query's number of right results.
    """
    for at in AT:
        hits = (np.asarray(ranks) < at).astype(np.float64)
        blind = float(np.mean([recall_by_chance(count, of, at) for count in right]))
        yield score_of(f"{RECALLS[asks]} R@{at}", bootstrap_interval(rows_by_picture(hits, pictures)), blind)


def shortlist_notes(predictions: Sequence[Mapping[str, Any]], most: int, pairs: int, of: int) -> list[str]:
    """Return notes on a shortlist: the number of scored pairs, and the lost recall on queries with an `exact_rank`."""
    notes = [f"with a shortlist of {most} per query: {pairs:,} of {of:,} pairs scored ({100 * pairs / of:.1f}%)"]
    for asks in RECALLS:
        both = [p for p in predictions if p["asks"] == asks and "exact_rank" in p]
        if both:
            figures = [(_share(both, "exact_rank", at), _share(both, "rank", at)) for at in AT]
            shares = ", ".join(
                f"R@{at} {short:.1f} instead of {exact:.1f}" for at, (exact, short) in zip(AT, figures, strict=True)
            )
            notes.append(
                f"its loss in {RECALLS[asks]}, on {len(both)} queries that were also ranked exactly: {shares} "
                f"(R@1 {figures[0][1] - figures[0][0]:+.1f})"
            )
    return notes


def _share(predictions: Sequence[Mapping[str, Any]], rank: str, at: int) -> float:
    return 100 * float(np.mean([p[rank] < at for p in predictions]))
