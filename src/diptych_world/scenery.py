"""Draw the sky: sun, moon, stars, clouds, rain and snow."""

from random import Random

from diptych_world.pencil import WHITE, Colour, Pencil, mix
from diptych_world.world import SIDE

Sky = tuple[str, str]  # (time, weather)


def lights(p: Pencil, rng: Random, sky: Sky, horizon: float) -> None:
    """Draw the sun with its glow, or at night the moon and stars. Draw nothing if the sky is overcast."""
    x, y = rng.uniform(18, SIDE - 18), rng.uniform(15, 30)
    if sky == ("day", "clear"):
        for radius, opacity in ((24.0, 36), (18.5, 60), (14.0, 90)):
            p.circle(x, y, radius, (255, 240, 170), line=None, opacity=opacity)
        p.circle(x, y, 9.5, (255, 218, 84), line=(250, 180, 50), width=1)
    if sky == ("night", "clear"):
        for _ in range(34):
            star = rng.uniform(0, SIDE), rng.uniform(0, horizon - 24), rng.choice((0.5, 0.7, 1.0))
            p.circle(*star, WHITE, line=None, opacity=210)
        p.circle(x, y, 15, (240, 236, 210), line=None, opacity=34)
        p.circle(x, y, 9, (246, 240, 212), line=None)
        for dx, dy, radius in ((-3, -2, 1.8), (3, 3, 1.3), (2, -4, 1.0)):  # craters
            p.circle(x + dx, y + dy, radius, (222, 214, 184), line=None)


def clouds(p: Pencil, rng: Random, sky: Sky, horizon: float) -> None:
    """Draw one to three clouds, or four to six if the sky is overcast."""
    time, weather = sky
    colour: Colour = {"clear": WHITE, "rain": (146, 154, 168), "snow": (226, 230, 238)}[weather]
    if time == "night":
        colour = mix(colour, (24, 30, 62), 0.62)
    for _ in range(rng.randint(1, 3) if weather == "clear" else rng.randint(4, 6)):
        x, y, size = rng.uniform(8, SIDE - 8), rng.uniform(10, horizon - 46), rng.uniform(0.7, 1.3)
        below, above = (
            ((-10, 1, 6), (-3, -3, 8), (6, -1, 7), (12, 2, 5)),
            ((-9.5, -0.5, 5), (-3, -4.2, 6.6), (6, -2.2, 5.8), (11.5, 1, 4)),
        )
        for puffs, tint in ((below, mix(colour, (120, 150, 190), 0.16)), (above, colour)):
            for dx, dy, radius in puffs:
                p.circle(x + dx * size, y + dy * size, radius * size, tint, line=None, opacity=235)


def rain(p: Pencil, rng: Random, inside: tuple[float, float, float, float], drops: int) -> None:
    """Draw slanting streaks of rain in a box (left, top, right, bottom)."""
    for _ in range(drops):
        x, y, length = rng.uniform(inside[0] + 2, inside[2]), rng.uniform(inside[1], inside[3] - 7), rng.uniform(4, 7)
        p.stroke((x, y, max(inside[0], x - length * 0.3), y + length), (214, 232, 250), 0.8, opacity=190)


def snow(p: Pencil, rng: Random, inside: tuple[float, float, float, float], flakes: int) -> None:
    """Draw snowflakes in a box (left, top, right, bottom)."""
    for _ in range(flakes):
        x, y = rng.uniform(inside[0], inside[2]), rng.uniform(inside[1], inside[3])
        p.circle(x, y, rng.choice((0.7, 1.0, 1.4)), (255, 255, 255), line=None, opacity=235)
