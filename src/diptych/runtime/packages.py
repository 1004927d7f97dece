"""The import packages of the distribution `diptych`: the library and three programs, which may be left out."""

OWN = ("diptych", "diptych_mine", "diptych_serve", "diptych_world")


def is_own(module: str) -> bool:
    """Return True for the name of a module of the distribution, False for a module of a plugin."""
    return module.partition(".")[0] in OWN
