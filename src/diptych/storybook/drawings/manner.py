"""What a drawing depends on apart from the colour."""

from typing import NamedTuple


class Manner(NamedTuple):
    """Pose and details of one drawing."""

    pose: str  # empty where the kind has none
    look: int  # which variant of the details, 0 to 3
    holding: bool  # a person with an arm out
