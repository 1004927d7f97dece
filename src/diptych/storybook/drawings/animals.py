"""Drawings of animals."""

from diptych.storybook.drawings.manner import Manner
from diptych.storybook.pencil import INK, WHITE, Colour, Pencil, shade

BEAK: Colour = (246, 160, 40)
LEG: Colour = (216, 120, 40)


def _eye(p: Pencil, x: float, y: float, radius: float = 1.1) -> None:
    p.circle(x, y, radius + 0.5, WHITE, line=None)
    p.circle(x + 0.2, y, radius, INK, line=None)


def dog(p: Pencil, c: Colour, m: Manner) -> None:
    dark, light = shade(c, -0.25), shade(c, 0.45)
    if m.pose == "sitting":
        p.stroke((8, 22, 4, 19, 3, 15), c, 2.8)
        p.curve((9, 27, 5, 18, 11, 12, 17, 11, 23, 11, 25, 20, 23, 27), c)
        p.ellipse(12.5, 22.5, 5, 4.6, c)
        p.stroke((21, 17, 21.5, 25.6), c, 3.2)
        p.ellipse(22.4, 26, 2.8, 1.5, light, width=0.6)
        p.ellipse(14.5, 26, 3.4, 1.6, light, width=0.6)
        _dog_head(p, c, dark, light, 21, 8)
        return
    running = m.pose == "running"
    p.stroke((6, 14, 2.4, 10, 2.8, 6) if not running else (6, 14, 2, 13, 1.6, 9.5), c, 2.8)
    legs = ((9, 5), (13, 8), (23, 29), (27, 33)) if running else ((8.5, 8), (12.5, 12.5), (22.5, 22.5), (26.5, 27))
    for number, (top, end) in enumerate(legs):
        p.stroke((top, 17, end, 25.4), dark if number % 2 else c, 3.2)
        p.ellipse(end + 0.7, 26, 2.4, 1.4, light, line=None)
    p.curve((5, 15, 5, 9, 12, 10.5, 17, 10.5, 22, 10.5, 29, 8, 29.5, 14, 29.5, 20, 24, 20.4, 20, 20, 15,
            19.4, 5, 22, 5, 15), c)  # fmt: skip
    _dog_head(p, c, dark, light, 27, 8)


def _dog_head(p: Pencil, c: Colour, dark: Colour, light: Colour, x: float, y: float) -> None:
    p.ellipse(x, y, 6.6, 6.2, c)
    p.ellipse(x + 4.4, y + 2.4, 3.9, 3.0, light, width=0.6)
    p.ellipse(x + 7.4, y + 1.2, 1.5, 1.2, INK, line=None)
    p.stroke((x + 3.4, y + 4, x + 6.4, y + 3.8), INK, 0.7)
    p.ellipse(x - 4.4, y + 1.2, 2.5, 5, dark)
    _eye(p, x + 1.6, y - 1.4)
    p.stroke((x - 4, y + 6, x + 2.6, y + 6.4), WHITE, 1.5)  # a collar


def cat(p: Pencil, c: Colour, m: Manner) -> None:
    dark, light = shade(c, -0.22), shade(c, 0.45)
    if m.pose == "sleeping":
        p.ellipse(15, 18.5, 13, 6.8, c)
        for x in (10.0, 14.0, 18.0):
            p.stroke((x, 12.6, x + 1, 16), dark, 1.2)
        p.curve((3, 18, 1, 26, 12, 26, 19, 24.4), None, line=dark, width=3, closed=False)
        _cat_head(p, c, light, 22.4, 18, asleep=True)
        return
    if m.pose == "walking":
        p.curve((5, 13, 0, 11, 1, 5, 5, 3), None, line=c, width=2.6, closed=False)
        for number, (top, end) in enumerate(((7, 5), (11, 13), (18, 17), (21, 24))):
            p.stroke((top, 17, end, 24.2), dark if number % 2 else c, 2.6)
        p.ellipse(13.6, 14.6, 10, 5, c)
        for x in (9.0, 13.0, 17.0):
            p.stroke((x, 10.4, x + 0.6, 13.6), dark, 1.2)
        _cat_head(p, c, light, 22.6, 9)
        return
    p.curve((8, 24, 0, 25, 1, 16, 4, 13), None, line=dark, width=2.8, closed=False)
    p.curve((7, 25.4, 5, 16, 10, 12, 15, 12, 20, 12, 24, 18, 23, 25.4), c)
    p.ellipse(15.4, 20, 3.4, 4.6, light, line=None)
    p.stroke((13.4, 20, 13.4, 24.6), dark, 1)
    p.stroke((18, 20, 18, 24.6), dark, 1)
    _cat_head(p, c, light, 15.6, 8.4)


def _cat_head(p: Pencil, c: Colour, light: Colour, x: float, y: float, asleep: bool = False) -> None:
    for side in (-1, 1):
        p.polygon((x + side * 6, y - 1.5, x + side * 5.6, y - 8, x + side * 1.2, y - 4.6), c)
        p.polygon((x + side * 4.9, y - 3, x + side * 4.8, y - 6, x + side * 2.4, y - 4.2), (246, 170, 176), line=None)
    p.ellipse(x, y, 6.4, 5.5, c)
    p.ellipse(x, y + 2.4, 3, 2.1, light, line=None)
    for side in (-1, 1):
        if asleep:
            p.stroke((x + side * 4, y - 0.6, x + side * 2.4, y + 0.3, x + side * 1.2, y - 0.4), INK, 0.9)
        else:
            _eye(p, x + side * 2.6, y - 0.8, 1.0)
        p.stroke((x + side * 2, y + 2, x + side * 6.8, y + 1.2), shade(c, -0.5), 0.5)
    p.polygon((x - 1, y + 1.2, x + 1, y + 1.2, x, y + 2.3), (226, 110, 120), line=None)


def bird(p: Pencil, c: Colour, m: Manner) -> None:
    dark, light = shade(c, -0.25), shade(c, 0.5)
    flying = m.pose == "flying"
    if flying:
        p.polygon((9, 11, 12, 0.8, 16.4, 11), dark)
    else:
        for x in (10.5, 13.5):
            p.stroke((x, 15, x + 0.6, 19), LEG, 1.1)
    p.polygon((5.6, 11, 0.6, 7.6, 0.8, 12.6), dark)
    p.polygon((20, 7, 23.6, 8.4, 20, 10), BEAK, width=0.6)
    p.curve((3.6, 11, 6, 8, 12, 8, 14.4, 5.6, 17, 3, 22, 4.4, 21.4, 9, 20.6, 15.6, 12, 18.6, 3.6, 11), c)
    p.ellipse(14.8, 13, 4.2, 2.4, light, line=None)
    if flying:
        p.polygon((7, 12, 2.6, 1.6, 14.4, 10.6), shade(c, -0.1))
    else:
        p.curve((6.4, 10.6, 9, 8.8, 14, 9.4, 14.6, 11.6, 13, 14.6, 8, 14.4, 6.4, 10.6), dark)
    _eye(p, 18.2, 7.4, 0.9)


def duck(p: Pencil, c: Colour, m: Manner) -> None:
    dark, light = shade(c, -0.22), shade(c, 0.45)
    down = 2.6 if m.pose == "sitting" else 0.0
    if not down:
        for x in (10.0, 14.0):
            p.stroke((x, 17, x, 20.6), LEG, 1.3)
            p.stroke((x - 0.4, 21, x + 2.6, 21), LEG, 1.5)
    p.polygon((20.6, 4.4 + down, 25.6, 6.6 + down, 20.4, 8 + down), BEAK, width=0.7)
    p.curve((1, 9 + down, 3, 12 + down, 8, 11 + down, 12, 10.6 + down, 15, 9 + down, 13, 2 + down, 18, 1 + down,
             23, 1.4 + down, 23, 8.6 + down, 20, 10 + down, 22, 18 + down, 18, 19 + down, 12, 19 + down,
             5, 19 + down, 0, 15 + down, 1, 9 + down), c)  # fmt: skip
    p.curve((5, 13 + down, 8, 11.6 + down, 13, 12 + down, 14.6, 13.4 + down, 12, 17.4 + down, 7, 17 + down,
             5, 13 + down), dark)  # fmt: skip
    p.stroke((14.6, 9.8 + down, 19.8, 10 + down), light, 1.4)
    _eye(p, 18.6, 4.8 + down, 0.95)


def rabbit(p: Pencil, c: Colour, m: Manner) -> None:
    dark, light = shade(c, -0.2), shade(c, 0.5)
    if m.pose == "jumping":
        p.circle(2.6, 15, 2.2, WHITE, line=dark, width=0.6)
        p.stroke((5, 19, 2, 24.6), dark, 2.8)
        p.stroke((15, 18, 19.6, 22), dark, 2.4)
        p.ellipse(9.6, 15.6, 7.4, 5.4, c)
        p.stroke((6.4, 19, 4, 25.6), c, 2.8)
        _rabbit_head(p, c, light, 15.4, 12.6)
        return
    p.circle(3.4, 23, 2.6, WHITE, line=dark, width=0.6)
    p.ellipse(10, 21, 7.2, 6.2, c)
    p.ellipse(12.4, 21.6, 3, 3.6, light, line=None)
    p.ellipse(9, 26, 4.4, 1.7, c)
    p.ellipse(16, 26, 2.6, 1.5, c)
    _rabbit_head(p, c, light, 13.4, 12.8)


def _rabbit_head(p: Pencil, c: Colour, light: Colour, x: float, y: float) -> None:
    for side in (-1.0, 1.0):
        p.ellipse(x - 0.6 + side * 2.4, y - 6.8, 1.9, 5.2, c)
        p.ellipse(x - 0.6 + side * 2.4, y - 6.4, 0.9, 3.8, (246, 176, 184), line=None)
    p.ellipse(x, y, 5.4, 4.8, c)
    p.ellipse(x + 3, y + 1.9, 2.5, 1.9, light, line=None)
    p.circle(x + 4.8, y + 0.9, 0.8, (226, 110, 120), line=None)
    _eye(p, x + 1.6, y - 1)
