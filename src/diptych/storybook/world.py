"""One scene of the drawn world: its things and their positions, before any pixel or word."""

from dataclasses import dataclass

from diptych.storybook.kinds import KINDS, SIZES

SIDE = 160  # pixels, width and height of a picture
SPLITS = ("web", "train", "val", "test", "test_rare")
SKIES = tuple((time, weather) for time in ("day", "night") for weather in ("clear", "rain", "snow"))


@dataclass(frozen=True)
class Thing:
    """The looks of one thing: everything that its drawing depends on."""

    kind: str
    colour: str
    size: str
    pose: str  # "" for kinds without poses
    look: int  # variant of the drawing: details that no word names, such as skin and hair
    mirrored: bool
    holding: bool  # a person with an arm out


@dataclass(frozen=True)
class Figure(Thing):
    """One thing and the position of its drawing. `box` and `visible` describe the part that nothing nearer covers.

    Positions are pixels from the top left.
    """

    grounded: bool  # on the ground, where it casts a shadow
    left: int
    top: int
    box: tuple[int, int, int, int] = (0, 0, 0, 0)  # pixels, right and bottom ends excluded
    visible: float = 1.0

    @property
    def right(self) -> int:
        return self.left + round(KINDS[self.kind].width * SIZES[self.size])

    @property
    def bottom(self) -> int:
        return self.top + round(KINDS[self.kind].height * SIZES[self.size])

    @property
    def centre(self) -> tuple[float, float]:
        return (self.box[0] + self.box[2]) / 2, (self.box[1] + self.box[3]) / 2


@dataclass(frozen=True)
class Scene:
    """Layout and truth of a picture. Figures are in painter's order, the farthest first."""

    seed: int
    split: str
    index: int
    place: str
    time: str
    weather: str
    variant: int  # of the background; each split has its own, so no picture is in two splits
    figures: tuple[Figure, ...]
    relations: tuple[tuple[int, str, int], ...]  # (subject, relation, object), indices into figures

    @property
    def key(self) -> str:
        return f"{self.split}/{self.index:06d}"
