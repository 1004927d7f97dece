"""Drawings of vehicles."""

from diptych.storybook.drawings.manner import Manner
from diptych.storybook.pencil import INK, WHITE, Colour, Pencil, shade

GLASS: Colour = (196, 230, 246)
TYRE: Colour = (46, 44, 50)
STEEL: Colour = (196, 200, 208)


def _wheel(p: Pencil, x: float, y: float, radius: float) -> None:
    p.circle(x, y, radius, TYRE, line=None)
    p.circle(x, y, radius * 0.5, STEEL, line=None)
    p.circle(x, y, radius * 0.16, TYRE, line=None)


def car(p: Pencil, c: Colour, m: Manner) -> None:
    dark, light = shade(c, -0.2), shade(c, 0.4)
    p.curve((12, 14, 15, 2, 20, 1.4, 27, 1.4, 36, 1.4, 42, 2, 48, 14), c)
    p.polygon((16.4, 12.6, 19.4, 4.6, 28, 4.2, 28, 12.6), GLASS, width=0.7)
    p.polygon((31, 12.6, 31, 4.2, 38, 4.6, 43.4, 12.6), GLASS, width=0.7)
    p.stroke((20, 11, 23.4, 5.6), WHITE, 1.3, opacity=190)
    p.curve((1.5, 23, 0.6, 15, 3, 13.4, 9, 13, 24, 12.4, 40, 12.4, 47, 13, 56, 13.6, 58.8, 16, 58.6, 24,
             58.6, 25.6, 58, 25.6, 56, 25.6, 40, 25.6, 20, 25.6, 3, 25.6, 1.5, 25.6, 1.5, 25, 1.5, 23), c)  # fmt: skip
    p.stroke((4, 20.6, 56, 20.6), dark, 1.2)
    p.stroke((6, 15.4, 44, 14.8), light, 1.2)
    p.stroke((29.5, 13, 29.5, 25), dark, 0.8)
    p.stroke((32, 17.4, 35, 17.4), INK, 1)
    p.ellipse(56.4, 18, 2, 2.4, (255, 240, 170), width=0.7)
    p.box(1.2, 16.4, 3.2, 20, (226, 70, 60) if m.look % 2 else (240, 120, 60), line=None)
    _wheel(p, 14, 24.4, 5.2)
    _wheel(p, 46, 24.4, 5.2)


def bus(p: Pencil, c: Colour, m: Manner) -> None:
    dark, light = shade(c, -0.25), shade(c, 0.55)
    p.round_box(1, 1, 69, 33, c, radius=4)
    p.box(2, 20.6, 68, 24.4, light, line=None)
    for number in range(4):
        x = 4.6 + number * 12.2
        p.round_box(x, 5.4, x + 10, 16.6, GLASS, radius=1.4)
        p.stroke((x + 2, 14, x + 5, 7.6), WHITE, 1.1, opacity=170)
    p.round_box(54.6, 5.4, 62, 30.4, shade(GLASS, 0.2), radius=1.2)
    p.stroke((58.3, 6, 58.3, 30), dark, 0.8)
    p.box(64, 5.4, 69, 17, GLASS, width=0.7)
    p.ellipse(67.6, 27.6, 1.7, 2, (255, 240, 170), width=0.6)
    p.stroke((3, 31, 67, 31), dark, 1.4)
    if m.look % 2:
        p.box(22, 1.6, 42, 4.4, shade(c, -0.35), line=None)
    _wheel(p, 14.6, 32.2, 5.4)
    _wheel(p, 50, 32.2, 5.4)


def bicycle(p: Pencil, c: Colour, _m: Manner) -> None:
    for x in (9.4, 34.6):
        p.circle(x, 20.4, 8.4, None, line=TYRE, width=1.9)
        for dx, dy in ((7, 0), (0, 7), (5, 5), (5, -5)):
            p.stroke((x - dx, 20.4 - dy, x + dx, 20.4 + dy), (150, 150, 158), 0.5)
        p.circle(x, 20.4, 1.4, STEEL, line=None)
    frame = (
        (9.4, 20.4, 16, 9, 30.4, 9),
        (9.4, 20.4, 21, 20.4, 30.6, 9.6),
        (21, 20.4, 15.2, 6.4),
        (34.6, 20.4, 29.4, 4.4),
    )
    for points in frame:
        p.stroke(points, c, 2.5)
    p.stroke((29.4, 4.4, 33.6, 3.2), INK, 1.8)
    p.round_box(11, 4.4, 19.4, 6.8, (60, 50, 54), radius=1.1)
    p.circle(21, 20.4, 2.6, shade(c, -0.3), line=None)
    p.stroke((21, 20.4, 24, 24.6), INK, 1.1)


def boat(p: Pencil, c: Colour, m: Manner) -> None:
    light = shade(c, 0.5)
    p.stroke((22, 2, 22, 34), (120, 84, 54), 1.8)
    p.curve((23.6, 3.4, 30, 12, 36, 22, 38.6, 29, 33, 30.4, 28, 30.4, 23.6, 29.4), WHITE, line=(170, 166, 160))
    p.polygon((20.4, 8, 20.4, 29.4, 8, 29.4), light)
    for y in (14.0, 20.0):
        p.stroke((24.4, y, 29 + (y - 14) * 0.62, y + 0.6), shade(c, 0.2), 1.5)
    p.polygon((22.6, 1, 30 if m.look % 2 else 28, 2.8, 22.6, 4.6), (226, 70, 60), line=None)
    p.curve((1.6, 33, 12, 35, 32, 35, 42.6, 33, 40, 40, 38, 44.6, 35, 44.6, 28, 45, 16, 45, 9, 44.6, 6, 44,
             3, 40, 1.6, 33), c)  # fmt: skip
    p.stroke((5, 37.6, 39.4, 37.6), light, 1.5)


def plane(p: Pencil, c: Colour, _m: Manner) -> None:
    dark, light = shade(c, -0.22), shade(c, 0.5)
    p.polygon((7, 10, 1.4, 1.2, 7, 1.2, 14, 9.4), dark)
    p.polygon((25, 9, 20, 2.6, 24.4, 2.6, 33, 9), dark)
    p.curve((3, 11.6, 10, 6.4, 30, 6, 38, 7, 44, 8, 47, 10.6, 47, 12.6, 46.6, 16, 40, 17.6, 32, 17.6, 16,
            17.6, 5, 16, 3, 11.6), c)  # fmt: skip
    p.polygon((38, 8.2, 42.4, 8.8, 45, 11.2, 38, 11.2), (196, 230, 246), width=0.6)
    for x in (12.0, 17.5, 23.0, 28.5, 34.0):
        p.circle(x, 10.8, 1.5, (220, 240, 250), line=None)
    p.stroke((5.6, 14.4, 42, 15.4), light, 1.2)
    p.polygon((20, 14.4, 30.4, 14.4, 17, 22.8, 12, 22.8), shade(c, -0.08))
