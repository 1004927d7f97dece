"""A scene of Storybook: its objects and their positions, from which pixels and texts are made."""

from dataclasses import dataclass

from diptych_world.kinds import KINDS, SIZES

SIDE = 160  # width and height of a picture in pixels
SPLITS = ("web", "train", "val", "test", "test_rare")
SKIES = tuple((time, weather) for time in ("day", "night") for weather in ("clear", "rain", "snow"))


@dataclass(frozen=True)
class Thing:
    """The look of an object: everything that its drawing depends on."""

    kind: str
    colour: str
    size: str
    pose: str  # "" for kinds without poses
    look: int  # variant of details that no text mentions, such as hair
    mirrored: bool
    holding: bool  # True: a person stretches out an arm


@dataclass(frozen=True)
class Figure(Thing):
    """An object and the position of its drawing. `box` and `visible` describe the part that no nearer object covers.

    Positions are in pixels from the top left.
    """

    grounded: bool  # True: on the ground, so it casts a shadow
    left: int
    top: int
    box: tuple[int, int, int, int] = (0, 0, 0, 0)  # in pixels; right and bottom are exclusive
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
    """The layout and ground truth of a picture. Figures are in painter's order, the farthest first."""

    seed: int
    split: str
    index: int
    place: str
    time: str
    weather: str
    variant: int  # variant of the background; no two splits have a common variant, so they share no picture
    figures: tuple[Figure, ...]
    # (subject, relation, object); subject and object are indices into figures.
    relations: tuple[tuple[int, str, int], ...]

    @property
    def key(self) -> str:
        return f"{self.split}/{self.index:06d}"
