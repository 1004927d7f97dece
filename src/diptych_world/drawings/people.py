"""Drawings of people: a head, a trunk in the person's colour, and arms and legs that depend on the pose."""

from typing import NamedTuple

from diptych_world.kinds import HAND, KINDS, sitting_drop
from diptych_world.pencil import INK, Colour, Pencil, shade

SKINS: tuple[Colour, ...] = ((252, 216, 184), (232, 184, 142), (188, 128, 88), (128, 84, 58))
HAIRS: tuple[Colour, ...] = ((232, 190, 92), (122, 76, 42), (58, 44, 44), (34, 30, 36))
TROUSERS: tuple[Colour, ...] = ((58, 72, 118), (84, 84, 96), (92, 74, 62), (48, 56, 84))
SHOE: Colour = (64, 50, 50)
MIDDLE = 16.0  # x of the body's vertical axis
NECK = 14.5  # y of the neck of a standing person


class Manner(NamedTuple):
    """Pose and details of a drawing."""

    pose: str  # "" for kinds without poses
    look: int  # variant of details such as hair, 0 to 3
    holding: bool  # True: a person stretches out an arm


def man(p: Pencil, c: Colour, m: Manner) -> None:
    drop = _body(p, c, m, KINDS["man"].height, dress=False)
    hair, y = HAIRS[m.look], 8 + drop
    _head(p, m.look, y)
    p.chord(MIDDLE - 0.3, y - 0.6, 6.7, 6.6, hair, start=12, end=178, line=None)
    p.box(MIDDLE - 6.8, y - 2, MIDDLE - 4.6, y + 1.4, hair, line=None)
    if m.look == 2:  # draw a beard
        p.chord(MIDDLE + 0.4, y + 1.6, 5.6, 5.2, hair, start=180, end=360, line=None)
        p.stroke((MIDDLE + 0.8, y + 3.4, MIDDLE + 3.2, y + 3.4), (240, 220, 210), 0.9)


def woman(p: Pencil, c: Colour, m: Manner) -> None:
    drop = 0.0 if m.pose != "sitting" else sitting_drop(KINDS["woman"].height)
    hair, y = HAIRS[m.look], 8 + drop
    left = MIDDLE - 7.4
    p.curve((left, y, left, y - 9, MIDDLE + 7.4, y - 9, MIDDLE + 6.6, y, MIDDLE + 7.4, y + 5, MIDDLE + 6, y + 10,
             MIDDLE + 4, y + 11, MIDDLE, y + 12, left - 0.6, y + 13, left, y), hair)  # fmt: skip
    _body(p, c, m, KINDS["woman"].height, dress=True)
    _head(p, m.look, y)
    p.chord(MIDDLE - 0.4, y - 1, 6.8, 6.4, hair, start=20, end=185, line=None)
    p.ellipse(MIDDLE - 5.6, y + 1.2, 1.9, 4.6, hair, line=None)


def boy(p: Pencil, c: Colour, m: Manner) -> None:
    drop = _body(p, c, m, KINDS["boy"].height, dress=False)
    y = 8 + drop
    p.ellipse(MIDDLE - 0.8, y - 0.2, 6.6, 6.4, HAIRS[m.look], line=None)
    _head(p, m.look, y)
    cap = shade(c, -0.12)
    p.chord(MIDDLE - 0.2, y - 1.4, 6.8, 6.4, cap, start=0, end=180)
    p.stroke((MIDDLE + 2, y - 1.6, MIDDLE + 9.4, y - 1.2), cap, 2.2)


def girl(p: Pencil, c: Colour, m: Manner) -> None:
    drop = 0.0 if m.pose != "sitting" else sitting_drop(KINDS["girl"].height)
    hair, y = HAIRS[m.look], 8 + drop
    for side in (-1, 1):  # two bunches of hair, with ties in the colour of the dress
        p.ellipse(MIDDLE + side * 8.4, y + 1.6, 2.5, 3.9, hair)
        p.circle(MIDDLE + side * 6.8, y - 1.6, 1.5, c, line=None)
    _body(p, c, m, KINDS["girl"].height, dress=True)
    _head(p, m.look, y)
    p.chord(MIDDLE, y - 0.6, 6.7, 6.7, hair, start=8, end=172, line=None)


def _head(p: Pencil, look: int, y: float) -> None:
    skin = SKINS[look]
    p.ellipse(MIDDLE, y, 6.2, 6.3, skin)
    for x in (MIDDLE + 0.2, MIDDLE + 3.8):
        p.circle(x, y + 0.2, 0.85, INK, line=None)
    p.curve((MIDDLE + 0.4, y + 2.7, MIDDLE + 1.2, y + 4, MIDDLE + 3, y + 4, MIDDLE + 3.7, y + 2.7), None,
            line=shade(skin, -0.55), width=0.9, closed=False)  # fmt: skip
    p.circle(MIDDLE - 2.2, y + 2.3, 1.1, (240, 130, 120), line=None, opacity=90)


def _body(p: Pencil, c: Colour, m: Manner, height: float, dress: bool) -> float:
    """Draw everything below the head. Return how many pixels lower the neck is than in a standing person."""
    drop = sitting_drop(height) if m.pose == "sitting" else 0.0
    neck = NECK + drop
    hip = neck + 0.47 * (height - NECK)
    _arm(p, c, m, 11.4, neck, back=True)
    _legs(p, m, hip, height, dress)
    p.box(MIDDLE - 1.8, neck - 2, MIDDLE + 1.8, neck + 2, shade(SKINS[m.look], -0.1), line=None)
    if dress:
        hem = hip + (0.42 * (height - hip) if m.pose != "sitting" else 1.5)
        flare = 9.0 if m.pose != "sitting" else 8.0
        p.curve((MIDDLE - 4.2, neck, MIDDLE - 5, neck + 8, MIDDLE - flare, hem - 4, MIDDLE - flare, hem,
                 MIDDLE - 3, hem + 1.8, MIDDLE + 3, hem + 1.8, MIDDLE + flare, hem,
                 MIDDLE + flare, hem - 4, MIDDLE + 5, neck + 8, MIDDLE + 4.2, neck), c)  # fmt: skip
        p.stroke((MIDDLE - 4.6, neck + 9, MIDDLE + 4.6, neck + 9), shade(c, -0.3), 1.3)
    else:
        p.round_box(MIDDLE - 5.6, neck - 0.3, MIDDLE + 5.6, hip + 1.5, c, radius=2.6)
        p.box(MIDDLE - 4.4, neck + 1.4, MIDDLE - 2.6, hip, shade(c, 0.35), line=None, opacity=120)
    _arm(p, c, m, 20.4, neck, back=False)
    return drop


def _legs(p: Pencil, m: Manner, hip: float, height: float, bare: bool) -> None:
    colour = SKINS[m.look] if bare else TROUSERS[m.look]
    width = 3.4 if bare else 4.4
    foot = height - 1.8
    if m.pose == "sitting":
        knee = hip - 0.6
        p.stroke((MIDDLE - 2, hip, 26, knee + 1.2, 26.5, foot - 1), shade(colour, -0.15), width)
        p.stroke((MIDDLE, hip, 24, knee, 23.5, foot - 1), colour, width)
        for x in (27.0, 24.4):
            p.ellipse(x, foot, 2.8, 1.6, SHOE, line=None)
        return
    stride = 6.5 if m.pose == "walking" else 2.8
    for side in (-1, 1):
        end = MIDDLE + side * stride
        lifted = 1.6 if m.pose == "walking" and side < 0 else 0.0
        bend = (MIDDLE + end) / 2 + (2.0 if m.pose == "walking" else side * 0.6), (hip + foot) / 2
        tint = shade(colour, -0.12 if side < 0 else 0)
        p.stroke((MIDDLE + side * 2.6, hip, *bend, end, foot - 1 - lifted), tint, width)
        p.ellipse(end + 1.1, foot - lifted, 3.0, 1.8, SHOE, line=None)


def _arm(p: Pencil, c: Colour, m: Manner, x: float, neck: float, back: bool) -> None:
    """Draw an arm. `back`: the far arm, which hangs or swings; the near arm depends on the pose."""
    y = neck + 3
    skin = SKINS[m.look]
    elbow: tuple[float, float]
    if back:
        elbow, hand = ((7.4, y + 7), (10.5, y + 13)) if m.pose == "walking" else ((8.2, y + 7), (7.6, y + 13.5))
    elif m.holding:
        hand = (HAND[0], HAND[1] + neck - NECK)
        elbow = ((x + hand[0]) / 2 + 0.4, y + 4.6)
    elif m.pose == "waving":
        elbow, hand = (26.2, y - 1), (28, y - 11)
    elif m.pose == "walking":
        elbow, hand = (23.6, y + 6.5), (27, y + 11)
    elif m.pose == "sitting":
        elbow, hand = (22.8, y + 6), (25, y + 10)
    else:
        elbow, hand = (23.8, y + 7), (24.2, y + 13.5)
    p.stroke((x, y, *elbow), shade(c, -0.16 if back else -0.08), 3.8)
    p.stroke((*elbow, *hand), skin, 2.8)
    p.circle(hand[0], hand[1], 1.9, skin, width=0.6)
