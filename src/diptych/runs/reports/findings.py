"""Findings of a report: tables of a model's failures, such as captions that it repeats."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from diptych.runs.reports.report import ReportFinding, ReportRow
from diptych.runtime.errors import counted
from diptych.tasks.scores import ItemScore

MOST = 8  # a finding lists at most this many rows


def findings_of(rows: Iterable[ItemScore]) -> tuple[ReportFinding, ...]:
    """Return the findings on captions and on answers that have rows. Ranked images have none."""
    rows = [row for row in rows if not row.hits]
    captions, answers = [row for row in rows if not row.query], [row for row in rows if row.query and not row.boxes]
    return tuple(one for one in (repeated(captions), wrong_by_kind(answers)) if one.rows)


def repeated(captions: Sequence[ItemScore]) -> ReportFinding:
    """List captions that were generated for more than one image. An undertrained model repeats itself."""
    counts = Counter(row.given for row in captions)
    number, pictures = counted(counts, "different captions"), counted(captions, "pictures")
    text = f"{number} for {pictures}. A good model rarely writes one twice."
    rows = (
        ReportRow(caption, f"{count}×", count / len(captions))
        for caption, count in counts.most_common(MOST)
        if count > 1
    )
    return ReportFinding("Captions written more than once", text, tuple(rows))


def wrong_by_kind(answers: Sequence[ItemScore]) -> ReportFinding:
    """Count wrong answers by kind of question, and the most frequent confusions of two answers."""
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for row in answers:
        by_kind[row.kind].append(row.right)
    confused = Counter((row.wanted, row.given) for row in answers if not row.right)
    wrong = {kind: rights.count(False) for kind, rights in by_kind.items()}
    text = f"{sum(wrong.values())} of {len(answers)} answers are wrong (accuracy below 50%)."
    if any(row.blind for row in answers):
        as_blind = sum(row.given == row.blind for row in answers)
        text += f" {100 * as_blind / len(answers):.0f}% of the answers equal those of the blind baseline."
    rows = [ReportRow(kind, f"{wrong[kind]} of {len(r)}", wrong[kind] / len(r)) for kind, r in sorted(by_kind.items())]
    rows += [
        ReportRow(f"answered “{given}” for “{wanted}”", f"{count}×", count / len(answers))
        for (wanted, given), count in confused.most_common(MOST)
    ]
    return ReportFinding("Wrong answers, by kind and as they were confused", text, tuple(rows))
