"""Numbers from 0 to 1 in configs, by which of the two may be taken."""

from typing import Annotated

from pydantic import Field

Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]  # nothing at all would make no sense
PartialShare = Annotated[float, Field(ge=0, lt=1)]  # all of it would leave nothing
