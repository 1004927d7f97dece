"""Packages that add to Diptych, by entry points of the group `diptych`:

    [project.entry-points.diptych]
    uniter = "uniter:register"

`register` takes no arguments and fills the tables named below. It is called once per process, at the first lookup: by
`diptych.load`, by verbs of the command line (not by `--help`), and by processes that Diptych starts.
"""

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from threading import RLock
from typing import Any

from diptych.runtime.errors import CheckpointError, DiptychError

GROUP = "diptych"
TABLES = {  # tables that packages may add to, as MODULE:NAME, and the word for their entries
    "diptych.systems:SYSTEMS": "systems",
    "diptych.tasks:TASKS": "tasks",
    "diptych.systems:OBJECTIVES": "objectives",
    "diptych.models:HEADS": "heads",
    "diptych.data.formats.table:FORMATS": "formats",
    "diptych.vision.detectors.load:DETECTORS": "detectors",
    "diptych.systems:RECIPES": "recipes",
    "diptych.systems:STAGED": "recipes",
}

Entries = Mapping[str, Iterable[str]]  # names by the words of TABLES


@dataclass(frozen=True)
class Plugin:
    """An entry point, and the entries that its function added."""

    package: str  # as in `pip install PACKAGE`
    version: str
    module: str
    adds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names by the words of TABLES
    error: Exception | None = None

    @property
    def title(self) -> str:
        return f"{self.package} {self.version}"


class PluginError(DiptychError):
    """A package's `register` raised an error, or used a name that is in use."""

    def __init__(self, plugin: Plugin) -> None:
        why = str(plugin.error) if isinstance(plugin.error, DiptychError) else repr(plugin.error)
        way_out = f"uninstall it (pip uninstall {plugin.package}), or report it to its authors"
        super().__init__(f"plugin {plugin.title} failed: {why}; {way_out}")


_loaded: list[Plugin] = []
_used: list[tuple[str, str]] = []  # entries that this process has built, as (word of TABLES, name)
_began, _lock = False, RLock()  # reentrant: a register may itself look something up


def load_plugins() -> tuple[Plugin, ...]:
    """Call the `register` of each package once. Raises PluginError for the first one that failed."""
    for plugin in plugins():
        if plugin.error is not None:
            raise PluginError(plugin) from plugin.error
    return plugins()


def plugins() -> tuple[Plugin, ...]:
    """Like `load_plugins`, but returns failed plugins too."""
    global _began  # noqa: PLW0603
    with _lock:
        if not _began:
            _began = True
            _loaded.extend(map(_registered, sorted(entry_points(group=GROUP))))
        return tuple(_loaded)


def _registered(entry: EntryPoint) -> Plugin:
    """Call an entry point and record its additions. If it fails, the tables are restored."""
    package, version = (entry.dist.name, entry.dist.version) if entry.dist else (entry.name, "of no version")
    tables = {place: _table(place) for place in TABLES}
    before = {place: dict(table) for place, table in tables.items()}
    try:
        entry.load()()
        adds: dict[str, tuple[str, ...]] = {}
        for place, word in TABLES.items():
            if taken := [name for name, value in before[place].items() if tables[place].get(name) is not value]:
                by_hand = "because register was called by hand (diptych.runtime.plugins.load_plugins() calls it)"
                why = f"from Diptych, from another package, or {by_hand}"
                raise DiptychError(f"the {word} {', '.join(taken)} are there already: {why}")
            adds[word] = (*adds.get(word, ()), *(name for name in tables[place] if name not in before[place]))
    except (Exception, SystemExit) as error:
        for place, table in tables.items():
            table.clear()
            table.update(before[place])
        failed = DiptychError(f"it ended the program ({error.code})") if isinstance(error, SystemExit) else error
        return Plugin(package, version, entry.module, error=failed)
    return Plugin(package, version, entry.module, adds)


def _table(place: str) -> dict[str, Any]:
    module, _, name = place.partition(":")
    table: dict[str, Any] = getattr(import_module(module), name)
    return table


def packages_of(entries: Entries) -> dict[str, str]:
    """The packages that added any of these, with their versions."""
    return {
        plugin.package: plugin.version
        for plugin in plugins()
        if any(name in plugin.adds.get(word, ()) for word, names in entries.items() for name in names)
    }


def refuse_missing(packages: object, what: object) -> None:
    """Raise CheckpointError if a package that `what` was made with is not installed here."""
    for name, version in packages.items() if isinstance(packages, dict) else ():
        if name not in {plugin.package for plugin in load_plugins()}:
            raise CheckpointError(f"{what} was made with {name} {version}, which is not installed: pip install {name}")


def note_use(entries: Entries) -> None:
    """Note that entries were built, so that an error on their values names the packages that added them."""
    _used.extend((word, name) for word, names in entries.items() for name in names if (word, name) not in _used)


def plugin_in_use() -> Plugin | None:
    """The package whose system, task or objective this process used last."""
    return next((one for word, name in reversed(_used) for one in _loaded if name in one.adds.get(word, ())), None)


def titled(thing: object) -> str:
    """The class of an object for an error, after its package: `albef-lite 0.1: Albef`."""
    kind = thing if isinstance(thing, type) else type(thing)
    root = kind.__module__.partition(".")[0]
    plugin = next((one for one in _loaded if one.module.partition(".")[0] == root), None)
    return kind.__qualname__ if plugin is None else f"{plugin.title}: {kind.__qualname__}"


def plugin_at_fault(error: BaseException) -> Plugin | None:
    """The package whose code is in the traceback of an error, here or in the process that raised it."""
    text = "".join(traceback.format_exception(error))
    return next((plugin for plugin in _loaded if any(f'File "{place}' in text for place in _places(plugin))), None)


def _places(plugin: Plugin) -> Iterable[Path]:
    """The folder of a plugin's package, or its only file."""
    try:
        file = Path(str(import_module(plugin.module.partition(".")[0]).__file__))
    except ImportError:
        return ()
    return (file.parent if file.stem == "__init__" else file,)
