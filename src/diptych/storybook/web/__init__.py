"""A test web for mining: drawn scenes on pages of made-up hosts, with the truth about every page and picture."""

from diptych.storybook.web.plan import PageCase, plan
from diptych.storybook.web.serve import Server, serve
from diptych.storybook.web.write import write

__all__ = ["PageCase", "Server", "plan", "serve", "write"]
