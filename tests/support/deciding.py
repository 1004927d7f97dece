"""Four toy pictures with all that VCR, referring expressions and statements ask of them."""

from diptych.core import Choices, Expression, Object, Record, Statement, TaskItem
from diptych.data.store.tokens import Tokens
from diptych.tasks.entailment import LABELS
from tests.support import toy

KINDS = ("dog", "bird", "tree", "person")
ANSWERS = ("[0] is left of [1]", "[1] is red", "[0] is small and [2] is big", "it rests")
REASONS = ("because [2] is near", "since [0] has a ball", "one can see that [1] is far", "it is late")
WORDS = ("a", "b")  # expressions that mean nothing: which region they mean is learnt by heart
TOKENS = Tokens.train([*KINDS, *ANSWERS, *REASONS, "what does [0] do", "the a one", "the b one", "there is", "Casey"])


def record(number: int) -> Record:
    """The same words for each picture, so that only the picture tells what is right."""
    regions = toy.regions(3 + number % 3, seed=number)
    assert regions.classes is not None
    kinds = regions.classes.argmax(1).tolist()
    boxes = [(x1, y1, x2, y2) for x1, y1, x2, y2 in regions.boxes.tolist()]
    key = f"p{number}"
    return Record(
        key,
        regions=regions,
        size=regions.size,
        objects=tuple(Object(KINDS[kind], box) for kind, box in zip(kinds, boxes, strict=True)),
        expressions=tuple(
            Expression(f"{key}/{word}", f"the {word} one", boxes[(number + at) % len(boxes)])
            for at, word in enumerate(WORDS)
        ),
        choices=(Choices(f"{key}/0", "what does [0] do", ANSWERS, number % 4, REASONS, (number + 1) % 4),),
        statements=(
            Statement(f"{key}/0", f"there is a {KINDS[0]}", number % 2 == 0),
            Statement(f"{key}/1", f"there is a {KINDS[1]}", number < 2),
        ),
        more={
            "entailment": tuple(
                TaskItem(f"{key}/{at}", f"there is a {KINDS[at]}", (LABELS[(number + at) % 3],)) for at in range(2)
            ),
            "classify": tuple(
                TaskItem(f"{key}/{at}", f"there is a {KINDS[at]}", (str((number + at) % 3),)) for at in range(2)
            ),
        },
    )


RECORDS = [record(number) for number in range(4)]
