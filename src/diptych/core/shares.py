"""What configs share: choices, and numbers with their bounds (shares by which of 0 and 1 may be taken, sizes)."""

from typing import Annotated, Literal

from pydantic import Field

Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]  # nothing at all would make no sense
PartialShare = Annotated[float, Field(ge=0, lt=1)]  # all of it would leave nothing

Size = Annotated[int, Field(ge=1, le=100_000)]  # of vectors, and how many regions or positions there are
Layers = Annotated[int, Field(ge=1, le=1000)]
MaybeLayers = Annotated[int, Field(ge=0, le=1000)]
Count = Annotated[int, Field(ge=0, le=10_000_000)]  # of words, classes or answers; 0: none
Epsilon = Annotated[float, Field(gt=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]

Source = Literal["paper", "official"]  # as the paper has it, or the code that was released
AnswerForm = Literal["binary", "softmax"]  # each answer by itself, or all against each other
