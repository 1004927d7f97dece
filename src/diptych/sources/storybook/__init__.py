"""Storybook: a drawn world with truth and words, endless, without a download."""

from diptych.sources.storybook.book import Storybook, record
from diptych.sources.storybook.files import read, write
from diptych.sources.storybook.kinds import COLOURS, KINDS, names_of_kinds
from diptych.sources.storybook.layout import scene
from diptych.sources.storybook.render import render
from diptych.sources.storybook.sheet import show
from diptych.sources.storybook.world import SPLITS, Figure, Scene

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
