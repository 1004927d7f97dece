"""Storybook: a drawn world with truth and words, endless, without a download."""

from diptych.data.formats.storybook import read
from diptych.storybook.book import Storybook, record
from diptych.storybook.files import write
from diptych.storybook.kinds import COLOURS, KINDS, names_of_kinds
from diptych.storybook.layout import scene
from diptych.storybook.render import render
from diptych.storybook.sheet import show
from diptych.storybook.world import SPLITS, Figure, Scene

__all__ = [
    "COLOURS",
    "KINDS",
    "SPLITS",
    "Figure",
    "Scene",
    "Storybook",
    "names_of_kinds",
    "read",
    "record",
    "render",
    "scene",
    "show",
    "write",
]
