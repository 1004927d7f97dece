"""UNITER (Chen et al., ECCV 2020, arXiv 1909.11740v3) for Diptych.

Facts of the released code are from https://github.com/ChenRocks/UNITER; each place names the file.
"""


def register() -> None:
    """The entry point: add UNITER to Diptych's systems. Imports are inside, so that `import uniter` is quick."""
    from diptych.plugin import add_system
    from uniter.system import SYSTEM

    add_system(SYSTEM)
