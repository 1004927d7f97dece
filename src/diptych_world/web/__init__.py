"""A synthetic web for testing `diptych mine`: pages of made-up hosts with drawn scenes, and their ground truth."""

from diptych_world.web.plan import PageCase, plan
from diptych_world.web.serve import Server, serve
from diptych_world.web.write import settings_of, write

__all__ = ["PageCase", "Server", "plan", "serve", "settings_of", "write"]
