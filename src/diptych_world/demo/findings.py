"""Findings of a report: tables of a model's failures, such as captions that name absent objects."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from diptych.core import Record, iou
from diptych.runs.reports.findings import MOST, findings_of
from diptych.runs.reports.gallery import boxes
from diptych.runs.reports.report import ReportFinding, ReportRow
from diptych.runtime.errors import counted
from diptych.tasks.scores import ItemScore
from diptych_world.demo.gallery import absent_words, named_kinds

ENOUGH = 5  # a comparison needs at least this many images in each of its groups
OVERLAP = 0.5  # a region shows an object if their IoU is at least this


def find(records: Sequence[Record], class_names: Sequence[str], rows: Sequence[ItemScore]) -> tuple[ReportFinding, ...]:
    """Return all findings: those of any data, and those about objects, which need Storybook data."""
    captions = {row.picture: row for row in rows if not row.query}
    about = {record.key: record for record in records}
    missed = missed_things(records, class_names)
    findings = [*findings_of(rows)]
    if captions:
        findings.append(named_but_absent([about[key] for key in captions], class_names, captions))
    if any(record.objects for record in records):
        findings.append(missed_by_the_detector(records, missed, captions))
    if answers := [row for row in rows if row.query]:
        findings.append(by_detection(answers, about, missed))
    return tuple(findings)


def named_but_absent(
    records: Sequence[Record], class_names: Sequence[str], captions: Mapping[str, ItemScore]
) -> ReportFinding:
    """Count objects that captions mention but images lack, and how many of them the detector had (wrongly) detected."""
    counts: Counter[str] = Counter()
    with_any = seen = 0
    for record in records:
        gone = set(absent_words(captions[record.key].given, record).values())
        with_any += bool(gone)
        counts.update(gone)
        seen += len(gone & {box.name for box in boxes(record, class_names)})
    people = [bool(absent_words(caption, record)) for record in records for caption in record.captions]
    text = (
        f"{with_any} of {len(records)} captions name an object that is not in the image"
        + (f" ({100 * sum(people) / len(people):.0f}% of the reference captions do so)" if people else "")
        + "."
        + (
            f" The detector had reported {seen} of these {counts.total()} objects; the captioner added the others."
            if counts
            else ""
        )
    )
    rows = (ReportRow(kind, str(count), count / max(len(records), 1)) for kind, count in counts.most_common(MOST))
    return ReportFinding("Named, but not there", text, tuple(rows))


def missed_things(records: Sequence[Record], class_names: Sequence[str]) -> dict[str, list[str]]:
    """Return {image: kinds of its objects that the detector missed}.

    A missed object has no region of its kind with an IoU of OVERLAP or more.
    """
    missed = {}
    for record in records:
        regions = boxes(record, class_names)
        missed[record.key] = [
            thing.kind
            for thing in record.objects
            if not any(box.name == thing.kind and iou(box.box, thing.box) >= OVERLAP for box in regions)
        ]
    return missed


def missed_by_the_detector(
    records: Sequence[Record], missed: Mapping[str, Sequence[str]], captions: Mapping[str, ItemScore]
) -> ReportFinding:
    there = Counter(thing.kind for record in records for thing in record.objects)
    gone = Counter(kind for record in records for kind in missed[record.key])
    text = f"The detector missed or misnamed {gone.total()} of {there.total()} objects."
    scores = {key: 100 * row.value for key, row in captions.items()}
    whole = [score for key, score in scores.items() if not missed[key]]
    partly = [score for key, score in scores.items() if missed[key]]
    if min(len(whole), len(partly)) >= ENOUGH:
        text += (
            f" Mean CIDEr is {sum(whole) / len(whole):.1f} for the {len(whole)} images with all objects found, "
            f"and {sum(partly) / len(partly):.1f} for the other {len(partly)}."
        )
    worst = sorted(gone, key=lambda kind: (-gone[kind] / there[kind], kind))[:MOST]
    rows = (ReportRow(kind, f"{gone[kind]} of {there[kind]}", gone[kind] / there[kind]) for kind in worst)
    return ReportFinding("Missed by the detector", text, tuple(rows))


def by_detection(
    answers: Sequence[ItemScore], about: Mapping[str, Record], missed: Mapping[str, Sequence[str]]
) -> ReportFinding:
    """Return the VQA accuracy of questions whose objects were all detected, and of questions with a missed object.

    `about`: {key of the image: its record}.
    """
    groups: dict[str, list[float]] = {"all objects found": [], "an object missed": []}
    detected, missing = groups.values()
    for row in answers:
        named = set(named_kinds(row.query).values()) & {thing.kind for thing in about[row.picture].objects}
        if named:
            (missing if named & set(missed[row.picture]) else detected).append(row.value)
    rows = (
        ReportRow(f"{name} ({counted(rights, 'questions')})", f"{100 * fmean(rights):.1f}", fmean(rights))
        for name, rights in groups.items()
        if rights
    )
    text = "Accuracy of the questions that name objects of the image, by whether the detector found all of these."
    return ReportFinding("Could it have known?", text, tuple(rows))
