"""Drawings of plants, buildings and flying toys."""

from diptych.storybook.drawings.manner import Manner
from diptych.storybook.pencil import WHITE, Colour, Pencil, shade

WOOD: Colour = (142, 98, 62)
STRING: Colour = (110, 100, 104)
IRON: Colour = (86, 88, 98)


def balloon(p: Pencil, c: Colour, _m: Manner) -> None:
    p.curve((10, 24, 7, 29, 13, 34, 10, 41), None, line=STRING, width=0.9, closed=False)
    p.polygon((8, 24.6, 12, 24.6, 10, 21.6), shade(c, -0.2), width=0.6)
    p.curve((10, 23.4, 3, 20, 0.8, 14.4, 0.8, 10, 0.8, 4.6, 5, 0.8, 10, 0.8, 15, 0.8, 19.2, 4.6, 19.2, 10,
            19.2, 14.4, 17, 20, 10, 23.4), c)  # fmt: skip
    p.ellipse(6.6, 7, 2.2, 3.6, WHITE, line=None, opacity=170)


def kite(p: Pencil, c: Colour, m: Manner) -> None:
    light = shade(c, 0.45)
    p.curve((14, 30, 20, 35, 6, 38, 2, 45), None, line=STRING, width=0.8, closed=False)
    p.polygon((14, 1, 26.6, 13, 14, 31, 1.4, 13), c)
    p.polygon((14, 1, 26.6, 13, 14, 13), light, line=None)
    p.polygon((14, 13, 14, 31, 1.4, 13), light if m.look % 2 else shade(c, -0.18), line=None)
    p.stroke((14, 1.4, 14, 30.6), shade(c, -0.42), 0.9)
    p.stroke((1.6, 13, 26.4, 13), shade(c, -0.42), 0.9)
    for x, y in ((15, 34.6), (9.4, 38.4)):
        p.polygon((x - 3, y - 1.6, x + 3, y + 1.6, x + 3, y - 1.6, x - 3, y + 1.6), c, width=0.5)


def umbrella(p: Pencil, c: Colour, _m: Manner) -> None:
    light, dark = shade(c, 0.4), shade(c, -0.2)
    p.stroke((20, 2, 20, 37), WOOD, 1.7)
    p.curve((20, 36, 20, 40.4, 25, 40.4, 25, 36.6), None, line=WOOD, width=1.7, closed=False)
    p.curve((1, 17, 1, 6, 9, 2.4, 20, 2.4, 31, 2.4, 39, 6, 39, 17, 36, 13.8, 31, 13.8, 29.4, 17, 27, 13.8,
             22.6, 13.8, 20, 17, 17.4, 13.8, 13, 13.8, 10.6, 17, 9, 13.8, 4, 13.8, 1, 17), c)  # fmt: skip
    p.curve((20, 2.6, 14, 5, 11, 10, 10.6, 16.4, 13, 13.8, 17.4, 13.8, 20, 16.4), light, line=None)
    p.curve((20, 2.6, 26, 5, 29, 10, 29.4, 16.4, 31, 13.8, 36, 13.8, 38.6, 16.4, 38.4, 8, 30, 2.8, 20, 2.6), dark,
            line=None)  # fmt: skip
    p.circle(20, 1.9, 1.2, WOOD, line=None)


def tree(p: Pencil, c: Colour, m: Manner) -> None:
    dark, light = shade(c, -0.16), shade(c, 0.28)
    p.polygon((22, 69, 23.6, 46, 27.4, 46, 30, 69), WOOD)
    p.stroke((25.4, 52, 33, 43), WOOD, 2)
    if m.look == 3:  # a fir
        for top, half in ((22.0, 23.0), (11.0, 18.0), (1.0, 12.5)):
            p.polygon((25, top, 25 + half, top + 27, 25 - half, top + 27), c)
            p.polygon((25, top + 3, 25 - half + 5, top + 25, 25 - half / 3, top + 25), light, line=None, opacity=110)
        return
    for x, y, radius in ((13.0, 34.0, 12.0), (37, 34, 12), (25, 40, 13), (15, 19, 12.4), (35, 19, 12.4), (25, 13, 12)):
        p.circle(x, y, radius, dark)
    for x, y, radius in ((14, 33, 11), (36, 33, 11), (25, 36, 13), (16, 20, 12), (34, 20, 12), (25, 16, 12)):
        p.circle(x, y, radius, c, line=None)
    for x, y, radius in ((16.0, 16.0, 5.0), (30.0, 11.0, 4.4), (12.0, 31.0, 4.0), (33.0, 28.0, 4.6), (22.0, 25.0, 3.4)):
        p.circle(x, y, radius, light, line=None, opacity=150)
    if m.look == 1:  # with fruit
        for x, y in ((12, 24), (25, 31), (38, 27), (29, 19), (19, 42)):
            p.circle(x, y, 1.9, (250, 236, 200), width=0.6)


def house(p: Pencil, c: Colour, m: Manner) -> None:
    roof = shade(c, -0.32)
    p.box(42, 5, 48, 20, (170, 104, 84))
    p.box(7, 26, 53, 57, c)
    for y in (33.0, 41.0, 49.0):
        p.stroke((8, y, 52, y), shade(c, -0.12), 0.7)
    p.polygon((1, 27, 30, 2, 59, 27), roof)
    p.stroke((7, 24.4, 30, 5, 53, 24.4), shade(roof, 0.2), 1)
    p.round_box(24, 37, 36, 57, (110, 74, 50), radius=1.5)
    p.circle(33.4, 47.6, 1, (250, 214, 100), line=None)
    for x in (11.0, 40.0):
        p.box(x, 34, x + 9.4, 45, (255, 240, 176) if m.look % 2 else (206, 232, 246), line=WHITE, width=1.6)
        p.stroke((x + 4.7, 34, x + 4.7, 45), WHITE, 1)
        p.stroke((x, 39.5, x + 9.4, 39.5), WHITE, 1)
    p.circle(30, 18, 3.4, (206, 232, 246), line=WHITE, width=1.2)


def tent(p: Pencil, c: Colour, m: Manner) -> None:
    light, dark = shade(c, 0.4), shade(c, -0.3)
    p.stroke((28, 1, 28, 6), WOOD, 1.4)
    p.polygon((28, 3, 55, 37, 1, 37), c)
    p.polygon((28, 3, 17.5, 37, 1, 37), shade(c, 0.18 if m.look % 2 else -0.1), line=None)
    p.polygon((28, 9, 39, 37, 19, 37), dark)
    p.curve((28, 9, 26, 20, 22, 30, 16, 36.6, 18, 37, 18.6, 37, 20, 37, 25, 28, 28, 20, 28, 9), light, width=0.6)
    p.polygon((28.4, 0.6, 35, 2.6, 28.4, 4.4), light, width=0.5)


def bench(p: Pencil, c: Colour, _m: Manner) -> None:
    for x in (8.0, 50.0):
        p.stroke((x, 3, x, 31), IRON, 2.4)
        p.stroke((x - 4, 30.4, x - 4, 19), IRON, 2)
    for y in (2.0, 8.4):
        p.round_box(2, y, 56, y + 4.6, c, radius=1.2)
        p.stroke((4, y + 1.3, 54, y + 1.3), shade(c, 0.35), 0.8)
    p.polygon((5, 15.6, 53, 15.6, 57, 20.4, 1, 20.4), c)
    p.stroke((4.4, 18, 53.6, 18), shade(c, -0.25), 0.8)
