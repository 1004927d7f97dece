"""Findings of a report: tables of a model's failures, such as captions that name absent objects."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from diptych.core import Question, Record, iou
from diptych.metrics.vqa import answer_accuracy, normalise_answer
from diptych.runs.reports.report import ReportFinding, ReportRow
from diptych.runtime.errors import counted
from diptych.tasks.baselines import BlindAnswers
from diptych_world.demo.gallery import Kinds, absent_words, boxes, cider_by_picture, named_kinds

MOST = 8  # a finding lists at most this many rows
ENOUGH = 5  # a comparison needs at least this many images in each of its groups
OVERLAP = 0.5  # a region shows an object if their IoU is at least this


def find(
    records: Sequence[Record],
    class_names: Sequence[str],
    captions: Mapping[str, str],
    answers: Mapping[str, str],
    training: Sequence[Question] = (),
    kinds: Kinds | None = None,
) -> tuple[ReportFinding, ...]:
    """Return all findings.

    The blind baseline is fitted to `training`. `kinds` maps words to kinds of objects, such as "dog". If it is given,
    findings about objects are added; they need Storybook data.
    """
    written = [record for record in records if record.key in captions]
    findings = [repeated(written, captions)] if written else []
    missed = missed_things(records, class_names) if kinds else {}
    if kinds and written:
        findings.append(named_but_absent(written, class_names, captions, kinds))
    if kinds and any(record.objects for record in records):
        findings.append(missed_by_the_detector(records, missed, captions))
    answered = [(record, q) for record in records for q in record.questions if q.key in answers and q.answers]
    if answered:
        findings.append(wrong_by_kind([question for _, question in answered], answers, training))
        if kinds:
            findings.append(by_detection(answered, missed, answers, kinds))
    return tuple(findings)


def repeated(records: Sequence[Record], captions: Mapping[str, str]) -> ReportFinding:
    """List captions that were generated for more than one image. An undertrained model repeats itself."""
    counts = Counter(captions[record.key] for record in records)
    number, pictures = counted(counts, "different captions"), counted(records, "pictures")
    text = f"{number} for {pictures}. A good model rarely writes one twice."
    rows = (
        ReportRow(caption, f"{count}×", count / len(records))
        for caption, count in counts.most_common(MOST)
        if count > 1
    )
    return ReportFinding("Captions written more than once", text, tuple(rows))


def named_but_absent(
    records: Sequence[Record], class_names: Sequence[str], captions: Mapping[str, str], kinds: Kinds
) -> ReportFinding:
    """Count objects that captions mention but images lack, and how many of them the detector had (wrongly) detected."""
    counts: Counter[str] = Counter()
    with_any = seen = 0
    for record in records:
        gone = set(absent_words(captions[record.key], record, kinds).values())
        with_any += bool(gone)
        counts.update(gone)
        seen += len(gone & {box.name for box in boxes(record, class_names)})
    people = [bool(absent_words(caption, record, kinds)) for record in records for caption in record.captions]
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
    records: Sequence[Record], missed: Mapping[str, Sequence[str]], captions: Mapping[str, str]
) -> ReportFinding:
    there = Counter(thing.kind for record in records for thing in record.objects)
    gone = Counter(kind for record in records for kind in missed[record.key])
    text = f"The detector missed or misnamed {gone.total()} of {there.total()} objects."
    scores = cider_by_picture(records, captions)
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


def wrong_by_kind(
    questions: Sequence[Question], answers: Mapping[str, str], training: Sequence[Question] = ()
) -> ReportFinding:
    by_kind: dict[str, list[float]] = defaultdict(list)
    confused: Counter[tuple[str, str]] = Counter()
    blind = BlindAnswers.of(training) if training else None
    as_blind = 0
    for question in questions:
        given = normalise_answer(answers[question.key])
        right = answer_accuracy(answers[question.key], question.answers)
        by_kind[question.kind].append(right)
        as_blind += blind is not None and blind.answer(question) == given
        if right < 0.5:
            wanted = Counter(map(normalise_answer, question.answers)).most_common(1)[0][0]
            confused[wanted, given] += 1
    wrong = {kind: sum(right < 0.5 for right in rights) for kind, rights in by_kind.items()}
    text = f"{sum(wrong.values())} of {len(questions)} answers are wrong (VQA accuracy below 50%)."
    if blind is not None:
        text += f" {100 * as_blind / len(questions):.0f}% of the answers equal those of the blind baseline."
    rows = [ReportRow(kind, f"{wrong[kind]} of {len(r)}", wrong[kind] / len(r)) for kind, r in sorted(by_kind.items())]
    rows += [
        ReportRow(f"answered “{given}” for “{wanted}”", f"{count}×", count / len(questions))
        for (wanted, given), count in confused.most_common(MOST)
    ]
    return ReportFinding("Wrong answers, by kind and as they were confused", text, tuple(rows))


def by_detection(
    answered: Sequence[tuple[Record, Question]],
    missed: Mapping[str, Sequence[str]],
    answers: Mapping[str, str],
    kinds: Kinds,
) -> ReportFinding:
    """Return the VQA accuracy of questions whose objects were all detected, and of questions with a missed object."""
    groups: dict[str, list[float]] = {"all objects found": [], "an object missed": []}
    detected, missing = groups.values()
    for record, question in answered:
        about = set(named_kinds(question.text, kinds).values()) & {thing.kind for thing in record.objects}
        if about:
            right = answer_accuracy(answers[question.key], question.answers)
            (missing if about & set(missed[record.key]) else detected).append(right)
    rows = (
        ReportRow(f"{name} ({counted(rights, 'questions')})", f"{100 * fmean(rights):.1f}", fmean(rights))
        for name, rights in groups.items()
        if rights
    )
    text = "Accuracy of the questions that name objects of the image, by whether the detector found all of these."
    return ReportFinding("Could it have known?", text, tuple(rows))
