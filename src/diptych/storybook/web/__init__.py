"""A synthetic web for testing `diptych mine`: pages of made-up hosts with drawn scenes, and their ground truth."""

from diptych.storybook.web.plan import PageCase, plan
from diptych.storybook.web.serve import Server, serve
from diptych.storybook.web.write import settings_of, write

__all__ = ["PageCase", "Server", "plan", "serve", "settings_of", "write"]
