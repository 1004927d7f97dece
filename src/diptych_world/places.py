"""Draw backgrounds: four places, by day or night, in three kinds of weather, with many variants."""

from functools import lru_cache
from random import Random

import numpy as np
from numpy.typing import NDArray

from diptych_world.kinds import HORIZON
from diptych_world.pencil import WHITE, Colour, Pencil, mix, shade
from diptych_world.scenery import clouds, lights, rain, snow
from diptych_world.world import SIDE

MIDNIGHT: Colour = (18, 24, 58)
SNOW: Colour = (236, 242, 250)
# Time and weather -> colour of the sky at the top and at the horizon.
CEILINGS: dict[tuple[str, str], tuple[Colour, Colour]] = {
    ("day", "clear"): ((96, 182, 240), (216, 240, 252)),
    ("day", "rain"): ((124, 142, 164), (188, 198, 208)),
    ("day", "snow"): ((164, 188, 214), (226, 234, 244)),
    ("night", "clear"): ((16, 22, 62), (66, 78, 132)),
    ("night", "rain"): ((22, 26, 44), (62, 68, 90)),
    ("night", "snow"): ((32, 40, 80), (100, 110, 150)),
}

_FACADES: tuple[Colour, ...] = (
    (196, 180, 190), (176, 190, 206), (206, 196, 176), (184, 200, 188), (198, 178, 170),
)  # fmt: skip
_WALLS: tuple[Colour, ...] = (
    (250, 232, 204), (222, 236, 226), (232, 224, 242), (246, 222, 216), (220, 232, 244), (244, 240, 214),
)  # fmt: skip


@lru_cache(maxsize=320)  # holds all backgrounds of a split, 77 kB each at standard size
def background(place: str, time: str, weather: str, variant: int, zoom: int = 1) -> NDArray[np.uint8]:
    """Return a background with the shape (160 * zoom, 160 * zoom, 3).

    The array is cached, so copy it before changing it.
    """
    rng = Random(f"background {place} {variant}")
    sky = (time, weather)
    pencil = Pencil(SIDE, SIDE, zoom, _fade(*CEILINGS[sky], SIDE * zoom, round(HORIZON[place] * zoom)))
    if place == "room":
        _room(pencil, rng, sky)
    else:
        lights(pencil, rng, sky, HORIZON[place])
        clouds(pencil, rng, sky, HORIZON[place])
        {"park": _park, "beach": _beach, "street": _street}[place](pencil, rng, sky)
    return pencil.pixels()


def _fade(top: Colour, bottom: Colour, side: int, horizon: int) -> NDArray[np.uint8]:
    """Return an image that fades from the colour `top` to the colour `bottom` at the horizon."""
    share = np.clip(np.arange(side) / horizon, 0, 1)[:, None]
    rows = np.round(np.array(top) * (1 - share) + np.array(bottom) * share).astype(np.uint8)
    return np.repeat(rows[:, None], side, axis=1)


def _lit(colour: Colour, sky: tuple[str, str], snowed: float = 0.0) -> Colour:
    """Return a colour as it looks with this time and weather.

    `snowed`: share that snow covers when it snows, 0 to 1.
    """
    time, weather = sky
    if weather == "snow" and snowed:
        colour = mix(colour, SNOW, snowed)
    if weather == "rain":
        colour = mix(colour, (110, 118, 130), 0.28)
    return mix(colour, MIDNIGHT, 0.44) if time == "night" else colour


def _ground(p: Pencil, top: float, colour: Colour, end: Colour) -> None:
    """Fill the page below `top` with bands whose colours change from `colour` to `end`."""
    for step in range(16):
        p.box(-1, top + (SIDE - top) * step / 16, SIDE + 1, SIDE + 1, mix(colour, end, step / 16), line=None)


def _hill(p: Pencil, rng: Random, y: float, height: float, colour: Colour) -> None:
    a, b, c = (y - rng.uniform(0.1, 1) * height for _ in range(3))
    middle = rng.uniform(50, 110)
    p.curve((-2, y + 6, -2, a, middle / 2, a, middle, (a + b) / 2, middle + 20, b, SIDE - 20, c, SIDE + 2, y,
             SIDE + 2, y + 6, SIDE + 2, y + 6, SIDE + 2, y + 6), colour, line=None)  # fmt: skip


def _park(p: Pencil, rng: Random, sky: tuple[str, str]) -> None:
    top = HORIZON["park"]
    _hill(p, rng, top + 2, 26, _lit((150, 196, 172), sky, 0.5))
    wood = _lit((104, 164, 118), sky, 0.4)
    for _ in range(rng.randint(4, 9)):
        x, radius = rng.uniform(0, SIDE), rng.uniform(4, 9)
        p.circle(x, top - radius * 0.5, radius, wood, line=None)
    _hill(p, rng, top + 6, 14, _lit((128, 194, 104), sky, 0.7))
    grass = _lit((134, 204, 98), sky, 0.86)
    _ground(p, top + 3, grass, _lit((84, 164, 72), sky, 0.8))
    if rng.random() < 0.6:  # a path
        x, bend = rng.uniform(20, 140), rng.uniform(-50, 50)
        path = _lit((222, 200, 156), sky, 0.6)
        p.curve((x, top + 4, x + bend, top + 26, x - bend, 130, x - 26, SIDE + 2, x, SIDE + 2, x, SIDE + 2,
                 x + 26, SIDE + 2, x - bend + 26, 130, x + bend + 8, top + 26, x + 4, top + 4),
                path, line=None)  # fmt: skip
    for _ in range(26):
        x, y = rng.uniform(2, 158), rng.uniform(top + 10, 157)
        p.stroke((x - 1.6, y - 2.6, x, y, x + 1.6, y - 2.8), shade(grass, -0.28), 0.8)
    if sky[1] != "snow":
        for _ in range(rng.randint(5, 14)):  # daisies
            x, y = rng.uniform(2, 158), rng.uniform(top + 12, 157)
            p.circle(x, y, 1.3, _lit(WHITE, sky), line=None)
            p.circle(x, y, 0.5, _lit((250, 204, 60), sky), line=None)


def _beach(p: Pencil, rng: Random, sky: tuple[str, str]) -> None:
    top, shore = HORIZON["beach"] - 30, HORIZON["beach"] + 2
    if rng.random() < 0.6:  # an island
        x = rng.uniform(20, 140)
        p.chord(x, top, rng.uniform(14, 30), rng.uniform(6, 12), _lit((112, 150, 122), sky, 0.5), start=0,
                end=180, line=None)  # fmt: skip
    far, near = _lit((58, 140, 196), sky), _lit((94, 190, 214), sky)
    for step in range(10):
        p.box(-1, top + 3.2 * step, SIDE + 1, shore + 4, mix(far, near, step / 10), line=None)
    foam = _lit(WHITE, sky)
    for _ in range(16):
        x, y, length = rng.uniform(-4, 158), rng.uniform(top + 4, shore - 3), rng.uniform(3, 11)
        p.curve((x, y, x + length / 3, y - 1.4, x + 2 * length / 3, y - 1.4, x + length, y), None,
                line=foam, width=0.7, closed=False)  # fmt: skip
    sand = _lit((246, 222, 164), sky, 0.6)
    wave = [-2.0, shore + 4.0]
    for x in range(-2, SIDE, 27):
        dip = rng.uniform(-3, 3)
        wave += [x + 9, shore + dip - 2, x + 18, shore + dip + 2, x + 27, shore + 1.0]
    edge = [SIDE + 2.0, SIDE + 2.0] * 3 + [-2.0, SIDE + 2.0] * 3
    p.curve((*wave, *edge), sand, line=foam, width=2.2)
    _ground(p, shore + 9, sand, _lit((226, 190, 122), sky, 0.5))
    for _ in range(70):
        x, y = rng.uniform(1, 159), rng.uniform(shore + 7, 158)
        p.circle(x, y, 0.55, shade(sand, -0.2), line=None)
    for _ in range(rng.randint(1, 4)):  # shells
        x, y = rng.uniform(6, 154), rng.uniform(shore + 14, 156)
        p.chord(x, y, 2.4, 2.2, _lit((250, 236, 226), sky), start=0, end=180)


def _street(p: Pencil, rng: Random, sky: tuple[str, str]) -> None:
    top = HORIZON["street"] - 6
    night = sky[0] == "night"
    x = -rng.uniform(0, 14)
    while x < SIDE:
        width, height = rng.uniform(18, 34), rng.uniform(22, 58)
        wall = _lit(rng.choice(_FACADES), sky, 0.1)
        p.box(x, top - height, x + width, top + 4, wall, width=0.6)
        p.box(x - 0.6, top - height - 2, x + width + 0.6, top - height + 1, _lit((150, 140, 150), sky, 0.9), line=None)
        for row in range(int(height // 10)):
            for column in range(int(width // 8)):
                lit = rng.random() < 0.45
                pane = ((255, 222, 130) if lit else (44, 50, 84)) if night else _lit((222, 238, 246), sky)
                left, upper = x + 3 + column * 8, top - height + 4 + row * 10
                p.box(left, upper, left + 4, upper + 5, pane, line=None)
        x += width + rng.uniform(0, 1.5)
    _ground(p, top + 2, _lit((208, 202, 196), sky, 0.7), _lit((186, 180, 176), sky, 0.7))  # the pavement
    for x in range(-10, 170, 20):
        p.stroke((x + 6, top + 2, x, top + 17), _lit((176, 170, 166), sky, 0.5), 0.7)
    kerb = top + 17
    p.box(-1, kerb, SIDE + 1, kerb + 3, _lit((228, 224, 218), sky, 0.6), line=None)
    _ground(p, kerb + 3, _lit((122, 124, 134), sky, 0.4), _lit((98, 100, 110), sky, 0.4))
    paint = _lit((246, 240, 220), sky)
    if rng.random() < 0.35:  # a crossing
        left = rng.uniform(16, 90)
        for stripe in range(5):
            start = left + stripe * 12
            p.polygon((start, kerb + 6, start + 6, kerb + 6, start + 2, 157, start - 6, 157), paint, line=None)
    else:
        start = -rng.uniform(0, 30)
        for dash in range(7):
            p.box(start + dash * 30, 131, start + dash * 30 + 16, 134.4, paint, line=None)


def _room(p: Pencil, rng: Random, sky: tuple[str, str]) -> None:
    top = HORIZON["room"]
    night = sky[0] == "night"
    wall = rng.choice(_WALLS)
    wall = mix(wall, (112, 92, 96), 0.42) if night else wall
    window = rng.uniform(10, 104), rng.uniform(12, 20), rng.uniform(38, 48), rng.uniform(34, 42)
    _wall_around(p, rng, wall, window, top)
    _window(p, rng, sky, window)
    frame = 128.0 if window[0] < 60 else 14.0
    if rng.random() < 0.7:  # a painting
        p.box(frame, 22, frame + 20, 40, (250, 246, 236), line=(140, 100, 66), width=1.8)
        peaks = frame + 2, 38, frame + 8, 28, frame + 13, 34, frame + 16, 30, frame + 18, 38
        p.polygon(peaks, (150, 190, 170), line=None)
    floor = rng.choice(((204, 156, 106), (186, 134, 92), (214, 176, 132)))
    floor = mix(floor, (40, 30, 50), 0.4) if night else floor
    _ground(p, top, floor, shade(floor, -0.14))
    p.box(-1, top - 4, SIDE + 1, top, shade(wall, 0.4), line=shade(wall, -0.2), width=0.6)
    y = top + 6.0
    while y < SIDE:
        p.stroke((0, y, SIDE, y), shade(floor, -0.2), 0.8)
        for _ in range(3):
            x = rng.uniform(0, SIDE)
            p.stroke((x, y, x, y + 9), shade(floor, -0.2), 0.8)
        y += 9
    if rng.random() < 0.75:  # a rug
        rug = rng.choice(((206, 178, 178), (176, 192, 206), (196, 206, 178), (214, 200, 170)))
        rug = mix(rug, (40, 30, 50), 0.35) if night else rug
        x, y, across = rng.uniform(50, 110), rng.uniform(130, 142), rng.uniform(34, 50)
        p.ellipse(x, y, across, 13, rug)
        p.ellipse(x, y, across - 5, 10.4, None, line=shade(rug, 0.4), width=1.2)


def _wall_around(p: Pencil, rng: Random, wall: Colour, window: tuple[float, float, float, float], top: float) -> None:
    """Draw wallpaper around the window. The sky in the window is already on the page."""
    x, y, width, height = window
    stripe = shade(wall, rng.choice((-0.05, 0.25)))
    around = (0, 0, SIDE, y), (0, y + height, SIDE, top), (0, y, x, y + height), (x + width, y, SIDE, y + height)
    for left, upper, right, lower in around:
        p.box(left - 0.5, upper - 0.5, right + 0.5, lower + 0.5, wall, line=None)
    pattern = rng.choice(("plain", "stripes", "dots"))
    inside = (x - 3, y - 3, x + width + 3, y + height + 3)
    for column in range(0, SIDE, 12):
        if pattern == "stripes" and not inside[0] - 6 < column < inside[2]:
            p.box(column, 0, column + 6, top, stripe, line=None)
        for row in range(0, int(top) if pattern == "dots" else 0, 12):
            at_x, at_y = column + 6 * (row // 12 % 2) + 2, row + 5
            if not (inside[0] < at_x < inside[2] and inside[1] < at_y < inside[3]):
                p.circle(at_x, at_y, 1.4, stripe, line=None)


def _window(p: Pencil, rng: Random, sky: tuple[str, str], window: tuple[float, float, float, float]) -> None:
    x, y, width, height = window
    time, weather = sky
    if weather == "clear":
        lit: Colour = (255, 218, 84) if time == "day" else (246, 240, 210)
        p.circle(x + width * 0.3, y + height * 0.34, 5.5, lit, line=None)
        if time == "night":
            p.circle(x + width * 0.3 + 2.6, y + height * 0.34 - 1.6, 4.6, CEILINGS[sky][0], line=None)
        for _ in range(6 if time == "night" else 0):
            p.circle(x + rng.uniform(3, width - 3), y + rng.uniform(3, height - 8), 0.8, WHITE, line=None)
    else:
        p.ellipse(x + width * 0.6, y + 7, width * 0.3, 4, mix(CEILINGS[sky][0], WHITE, 0.3), line=None)
        (rain if weather == "rain" else snow)(p, rng, (x + 2, y + 2, x + width - 2, y + height - 2), 26)
    hill = _lit((120, 186, 104), sky, 0.85)
    p.box(x, y + height - 7, x + width, y + height, hill, line=None)
    wood: Colour = (250, 246, 238) if time == "day" else (176, 160, 154)
    p.box(x, y, x + width, y + height, None, line=wood, width=3)
    p.stroke((x + width / 2, y, x + width / 2, y + height), wood, 1.8)
    p.stroke((x, y + height / 2, x + width, y + height / 2), wood, 1.8)
    p.box(x - 4, y + height, x + width + 4, y + height + 3, wood, line=shade(wood, -0.2), width=0.6)
