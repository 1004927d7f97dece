"""Drawings of furniture and small things."""

from diptych.storybook.drawings.manner import Manner
from diptych.storybook.pencil import INK, WHITE, Colour, Pencil, shade

PAPER: Colour = (250, 244, 226)
IRON: Colour = (86, 88, 98)
STEM: Colour = (56, 142, 64)


def cup(p: Pencil, c: Colour, _m: Manner) -> None:
    p.ellipse(4.4, 8.2, 3.2, 3.6, None, line=shade(c, -0.3), width=1.8)
    p.curve((4.6, 2.6, 5, 12, 6, 14.4, 8, 14.4, 11, 14.4, 14, 14.4, 15, 14, 17, 11, 17.2, 6, 17.2, 2.6), c)
    p.ellipse(10.9, 2.7, 6.2, 1.8, shade(c, 0.5), width=0.7)
    p.ellipse(10.9, 3, 4.8, 1.1, (104, 68, 48), line=None)
    p.stroke((7.6, 6, 8.2, 11), WHITE, 1.2, opacity=150)


def ball(p: Pencil, c: Colour, m: Manner) -> None:
    p.circle(9, 9, 8.3, c)
    if m.look % 2:
        p.curve((1.4, 6, 6, 9.6, 12, 9.6, 16.6, 6, 17.4, 8, 17.4, 9.4, 17, 11, 12, 14, 6, 14, 1, 11), WHITE, line=None)
    else:
        p.curve((9, 0.8, 3, 5, 3, 13, 9, 17.2, 12, 13, 12, 5, 9, 0.8), WHITE, line=None)
    p.circle(9, 9, 8.3, None, line=shade(c, -0.42))
    p.ellipse(5.8, 5.4, 1.9, 1.5, WHITE, line=None, opacity=200)


def flower(p: Pencil, c: Colour, m: Manner) -> None:
    p.stroke((9, 11, 9, 29.4), STEM, 1.8)
    p.curve((9, 25, 2, 24, 1.6, 19, 1.6, 17.6, 6, 18, 9, 20, 9, 25), STEM, width=0.6)
    p.curve((9, 23, 15, 22, 16.4, 17, 16.4, 15.6, 12, 16, 9, 18, 9, 23), STEM, width=0.6)
    if m.look == 3:  # a tulip
        p.curve((3, 2, 3, 9, 4, 14, 9, 14, 14, 14, 15, 9, 15, 2, 12.6, 3, 12, 5, 12, 6, 11, 4, 10, 1.6, 9, 1,
                 8, 1.6, 7, 4, 6, 6, 6, 5, 5.4, 3, 3, 2), c)  # fmt: skip
        return
    for x, y in ((9.0, 3.6), (13.6, 7.0), (11.9, 12.2), (6.1, 12.2), (4.4, 7.0)):
        p.circle(x, y, 3.3, c)
    p.circle(9, 8.4, 2.9, (255, 226, 110) if m.look else (120, 74, 44), width=0.7)


def book(p: Pencil, c: Colour, _m: Manner) -> None:
    p.polygon((0.8, 2.4, 11, 5, 21.2, 2.4, 21.2, 14.4, 11, 16.6, 0.8, 14.4), c)
    edge = shade(PAPER, -0.35)
    p.curve((3.6, 2, 6, 1, 9, 1.6, 11, 3.6, 11, 7, 11, 11, 11, 13, 9, 11.2, 6, 10.8, 3.6, 11.4), PAPER, line=edge)
    p.curve((18.4, 2, 16, 1, 13, 1.6, 11, 3.6, 11, 7, 11, 11, 11, 13, 13, 11.2, 16, 10.8, 18.4, 11.4), PAPER, line=edge)
    for y in (4.2, 6.4, 8.6):
        p.stroke((5.2, y, 9.4, y + 1), (150, 150, 160), 0.7)
        p.stroke((12.6, y + 1, 16.8, y), (150, 150, 160), 0.7)


def chair(p: Pencil, c: Colour, _m: Manner) -> None:
    dark = shade(c, -0.25)
    for x in (5.6, 8.4, 22.4):
        p.stroke((x, 24, x if x > 6 else 4.4, 40.6), dark, 2.2)
    p.round_box(2.6, 1, 7, 26, c, radius=2)
    p.stroke((4, 3, 4, 22), shade(c, 0.4), 0.9)
    p.stroke((9, 33, 22, 33), dark, 1.4)
    p.polygon((4, 21.6, 23.6, 21.6, 26.4, 26, 4, 26), c)
    p.stroke((7, 22.9, 23, 22.9), shade(c, 0.4), 1)
    p.stroke((25, 26, 25, 40.6), c, 2.4)


def table(p: Pencil, c: Colour, _m: Manner) -> None:
    dark = shade(c, -0.22)
    for x in (10.6, 47.4):
        p.stroke((x, 8, x, 28), shade(c, -0.35), 2.6)
    for x in (4.6, 53.4):
        p.box(x - 1.6, 7, x + 1.6, 31, dark, width=0.7)
    p.box(4, 7, 54, 10.6, dark, width=0.7)
    p.polygon((5, 1, 53, 1, 57.2, 7, 0.8, 7), c)
    p.stroke((8, 2.8, 50, 2.8), shade(c, 0.4), 1)


def lamp(p: Pencil, c: Colour, _m: Manner) -> None:
    p.ellipse(12, 57.4, 7.4, 2, IRON)
    p.stroke((12, 18, 12, 57), IRON, 2)
    p.circle(12, 19, 2.6, (255, 240, 176), line=None)
    p.polygon((6.4, 1, 17.6, 1, 23, 18, 1, 18), c)
    p.polygon((7.4, 2.4, 10.4, 2.4, 7.4, 16.6, 3.4, 16.6), shade(c, 0.5), line=None, opacity=170)
    p.stroke((1.6, 17, 22.4, 17), (255, 240, 176), 1.6)


def box(p: Pencil, c: Colour, _m: Manner) -> None:
    light = shade(c, 0.3)
    p.box(1.6, 6, 26.4, 23.2, c)
    p.polygon((1.6, 6, 5.4, 1, 22.6, 1, 26.4, 6), light)
    p.polygon((11.4, 6, 12.4, 1, 15.8, 1, 16.6, 6), PAPER, line=None)
    p.box(11.4, 6, 16.6, 11.4, PAPER, line=None)
    p.stroke((4, 20.4, 10, 20.4), INK, 0.8)
    p.stroke((4, 18, 8, 18), INK, 0.8)
