"""Make docs/claims.md and its plot from experiments/results/claims.json."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from itertools import pairwise
from typing import Any

from experiments.claims.claim import Claim
from experiments.claims.table import CLAIMS
from experiments.studies import page_of

HEAD = """# The papers' claims, tested

Made by `make docs` from `experiments/results/claims.json`. Each row is a claim of a paper. It has the paper's
difference, and the difference between small models trained here, paired by seed, with Student's 95% interval.

- **seen**: the interval is above 0. **reversed**: it is below 0.
- **too close**: the interval contains 0 and lies within 1 point of it. **not seen**: it contains 0 and is wider.
- **not run**: fewer than three seeds.

A verdict is about the direction only: most differences that are **seen** are far larger here than in the paper.

Scores are multiplied by 100, CIDEr too. Differences are points of the claim's own score: a point of CIDEr is not a
point of accuracy. A positive difference supports the claim. The column `scores` lists the arm that should be higher,
then the other. If a claim compares two gains, it lists four scores. In brackets is the best score without the
image; for retrieval, chance. The paper's column has "–" if the paper gives no number, or if only its ICLR version does,
which was not available.

The arms (configurations) are networks of width 128 with 3 layers (TDEN, XGPT: more), on drawn scenes. Pre-training
reads 10,000 pairs. Unless a row states another number, captions, expressions and retrieval train on 300 scenes,
questions on 1,000 and VCR on 6,000. The test split has 600 scenes. The other settings are in
`experiments/claims/arms.py`; `uv run python -m experiments.claims --list` prints them.

How to read it:

- With three seeds, a difference is seen only if it is at least 2.5 times its standard deviation over the seeds. Many
  differences in the papers are less than a point, which is too small for three seeds.
- The intervals are over seeds, with one detector and one test set. A seed also selects the labelled scenes, and the 300
  captions that are ImageBERT's queries.
- Arms of one seed read the same data in the same order. If they have the same heads, their initial weights are equal.
- Claims share arms, so their errors are correlated. There is no correction for multiple tests. Without an effect, about
  one claim in forty is **seen** by chance, and one in forty **reversed**.
- A claim seen here is seen on drawn scenes. It neither proves nor refutes what the papers measured on photographs. One
  claim is tested on a real set (`vlp-photographs`, on Flickr8k). `--scale real` tests claims on your data, except those
  with a study of their own.

The arms and the rules for verdicts (`experiments/claims/arms.py`) were fixed before any score was computed. They have
been changed three times since (the log, 2026-11-23):

- XGPT's in-domain stage first had as many steps as the stage before, at the same learning rate. In the paper it has
  11,000 of 60,000 steps, at a tenth of the rate.
- Two faults were found after eleven ImageBERT arms of one seed had been scored. The proportion of steps of the two
  stages was the inverse of the paper's, and the feature of the whole image was also in the arms that should lack it.
- VL-BERT now trains on questions for twice the steps of Unified VLP. With the same number, its yes/no answers stayed at
  chance.

Scores computed before these changes are not used. Nor are the scores of eleven earlier arms of Unified VLP, whose
answers had stayed at chance (the log, 2026-11-22). The changes altered three verdicts. `xgpt-in-domain` and
`tden-encoder-over-shared-vqa` had been **reversed**. `vlbert-referring-over-vqa` had been **not seen**, and may now be
**seen** by chance.

Studies with a page of their own have their own settings, and their differences are paired by seed as well. All but
Flickr8k's were scored before the rules were fixed.

![Each claim's difference with its interval](claims.svg)

Dots are our differences and lines their intervals, coloured by the verdict. Black bars are the papers' differences.
Arrows point to values outside the plot.
"""
ROW, LEFT, WIDTH, REACH = 16, 285, 480, 40.0  # pixels; REACH: the largest difference shown, in points
SIZES = (0.0, 1.0, 2.0, 4.0, math.inf)  # limits of the groups of the papers' differences, in points
COLOURS = {
    "seen": "#0072b2",
    "reversed": "#d55e00",
    "too close": "#777777",
    "not seen": "#999999",
    "not run": "#cccccc",
}


def page(figures: Mapping[str, Any]) -> str:
    """Return docs/claims.md. Each system has a table with one row per claim."""
    found = figures.get("claims", {})
    counts = Counter(found.get(claim.id, {}).get("verdict", "not run") for claim in CLAIMS)
    lines = [
        HEAD,
        ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common()) + f", of {len(CLAIMS)}.",
        "",
        *_by_size(found),
        "",
    ]
    for system in dict.fromkeys(claim.system for claim in CLAIMS):
        lines += [
            f"## {system}",
            "",
            "| claim | id | score | paper | ours | 95% | scores | seeds | verdict |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        lines += [_row(claim, found.get(claim.id, {})) for claim in CLAIMS if claim.system == system]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _by_size(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table with one row per range of the paper's difference: how many of our differences have the same sign,
    and the verdicts."""
    told = [(claim.paper, found.get(claim.id, {})) for claim in CLAIMS if claim.paper is not None]
    ran = [(paper, one) for paper, one in told if "value" in one]
    unseen = [one["low"] <= paper <= one["high"] for paper, one in ran if one["verdict"] == "not seen"]
    yield f"The papers give a difference for {len(told)} claims. By chance, half of ours would have the same sign."
    yield ""
    yield "| points in the paper | claims | the same sign here | seen | reversed |"
    yield "|---|---|---|---|---|"
    for low, high in pairwise(SIZES):
        kept = [(paper, one) for paper, one in ran if low <= abs(paper) < high]
        verdicts = Counter(one["verdict"] for _, one in kept)
        same = sum(one["value"] * paper > 0 for paper, one in kept)
        name = f"{low:g} or more, below {high:g}" if math.isfinite(high) else f"{low:g} or more"
        yield f"| {name} | {len(kept)} | {same} | {verdicts['seen']} | {verdicts['reversed']} |"
    yield ""
    yield f"Claims **not seen**: {sum(unseen)} intervals contain the paper's difference, {unseen.count(False)} do not."


def _row(claim: Claim, kept: Mapping[str, Any]) -> str:
    ran = "value" in kept
    cells = [
        f"{claim.says} ({claim.source}{'; ' + claim.note if claim.note else ''})",
        f"`{claim.id}`",
        claim.score,
        "–" if claim.paper is None else f"{claim.paper:+.1f}",
        _signed(kept["value"]) if ran else "–",
        f"{_signed(kept['low'])} to {_signed(kept['high'])}" if ran else "–",
        _scores(kept) if ran else "–",
        str(kept.get("seeds", 0)),
        f"**{kept.get('verdict', 'not run')}**" + (f" ([study]({page_of(claim.study)}))" if claim.study else ""),
    ]
    return "| " + " | ".join(cells) + " |"


def _signed(points: float) -> str:
    """Format a difference with one decimal place; with two if it would round to zero."""
    return f"{points:+.1f}" if abs(points) >= 0.05 or not points else f"{points:+.2f}"


def _scores(kept: Mapping[str, Any]) -> str:
    blind = list(dict.fromkeys(f"{one:.1f}" for one in kept["blind"] if one is not None))
    return ", ".join(f"{score:.1f}" for score in kept["scores"]) + (f" ({', '.join(blind)})" if blind else "")


def plot(figures: Mapping[str, Any]) -> str:
    """Return an SVG. Each claim that ran has a line for its interval, a dot for its difference and a bar for the
    paper's."""
    found = figures.get("claims", {})
    shown = [(claim, found[claim.id]) for claim in CLAIMS if "value" in found.get(claim.id, {})]
    body, y = list[str](), ROW
    for system in dict.fromkeys(claim.system for claim, _ in shown):
        body.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" font-weight="bold">{escape(system)}</text>')
        for claim, kept in shown:
            if claim.system == system:
                y += ROW
                body += _line(claim, kept, y)
        y += 2 * ROW
    for points in range(-int(REACH), int(REACH) + 1, 10):
        at = _x(points)
        body.insert(
            0, f'<line x1="{at:.0f}" x2="{at:.0f}" y1="4" y2="{y - ROW}" stroke="#{"888" if points == 0 else "eee"}"/>'
        )
        body.append(f'<text x="{at:.0f}" y="{y}" text-anchor="middle">{points:+d}</text>'.replace("+0", "0"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{y + 2 * ROW + 8}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
        + "".join(body) + "".join(_legend(y + ROW + 8)) + "</svg>\n"
    )  # fmt: skip


def _line(claim: Claim, kept: Mapping[str, Any], y: int) -> Iterator[str]:
    colour = COLOURS[kept["verdict"]]
    low, value, high = (_x(kept[name]) for name in ("low", "value", "high"))
    yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(claim.id)}</text>'
    yield f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>'
    if abs(kept["value"]) > REACH:
        out = 8 if kept["value"] > 0 else -8
        yield f'<path d="M{value - out:.1f} {y - 5}v10l{out} -5z" fill="{colour}"/>'
    else:
        yield f'<circle cx="{value:.1f}" cy="{y}" r="3.5" fill="{colour}"/>'
    if claim.paper is not None:
        at = _x(claim.paper)
        yield f'<path d="M{at:.1f} {y - 6}v12" stroke="black" stroke-width="1.5"><title>the paper</title></path>'


def _legend(y: int) -> Iterator[str]:
    x = LEFT - 8
    yield f'<text x="{x}" y="{y + 4}" text-anchor="end">points of each claim\'s score:</text>'
    for name, colour in (("seen", "seen"), ("reversed", "reversed"), ("not seen", "not seen")):
        x += 16
        yield f'<line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" stroke="{COLOURS[colour]}" stroke-width="2"/>'
        yield f'<circle cx="{x + 12}" cy="{y}" r="3.5" fill="{COLOURS[colour]}"/>'
        yield f'<text x="{x + 30}" y="{y + 4}">{name}</text>'
        x += 30 + 7 * len(name)
    yield f'<path d="M{x + 16} {y - 6}v12" stroke="black" stroke-width="1.5"/>'
    yield f'<text x="{x + 22}" y="{y + 4}">the paper</text>'


def _x(points: float) -> float:
    """Return the horizontal position of a difference in points; values outside the plot are drawn at its edge."""
    inside = max(-REACH, min(REACH, 0.0 if math.isnan(points) else points))
    return LEFT + WIDTH * (inside + REACH) / (2 * REACH)
