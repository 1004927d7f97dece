"""Types of fields that several configs use: choices, and numbers with limits."""

from typing import Annotated, Literal

from pydantic import Field

Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]  # a share above 0
PartialShare = Annotated[float, Field(ge=0, lt=1)]  # a share below 1

Size = Annotated[int, Field(ge=1, le=100_000)]  # number of values of a vector, of regions of an image, or of positions
Layers = Annotated[int, Field(ge=1, le=1000)]
MaybeLayers = Annotated[int, Field(ge=0, le=1000)]
Count = Annotated[int, Field(ge=0, le=10_000_000)]  # number of words, classes or answers; 0: none
Epsilon = Annotated[float, Field(gt=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]

# A score over fewer items than this is shown with a warning.
FEWEST = 30

Source = Literal["paper", "official"]  # whether a part follows the paper or the authors' code
AnswerForm = Literal["binary", "softmax"]  # one sigmoid per answer, or one softmax over all answers
