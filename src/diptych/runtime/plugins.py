"""Packages that add to Diptych, by entry points of the group `diptych`:

    [project.entry-points.diptych]
    uniter = "uniter:register"

`register` takes no arguments and fills the tables named below. It is called once per process, at the first lookup: by
`diptych.load`, by verbs of the command line (not by `--help`), and by processes that Diptych starts.
"""

import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from multiprocessing import parent_process
from pathlib import Path
from threading import RLock
from typing import Any

from diptych.runtime.errors import CheckpointError, DiptychError, RecipeError, nearest

GROUP, VERBS = "diptych", "diptych.verbs"
CHOSEN, TASKS = "DIPTYCH_PLUGINS", "diptych.tasks:TASKS"
TABLES = {  # tables that packages may add to, as MODULE:NAME, and the word for their entries
    "diptych.systems:SYSTEMS": "systems",
    TASKS: "tasks",
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
    """An entry point of a package, and the entries that its function added."""

    package: str  # as in `pip install PACKAGE`
    version: str
    module: str
    adds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names by the words of TABLES
    error: Exception | None = None

    @property
    def title(self) -> str:
        return f"{self.package} {self.version}"


class PluginError(DiptychError):
    """A package's `register` raised an error, or used a taken name.

    `needed`: the error that the package may explain.
    """

    def __init__(self, plugin: Plugin, needed: str = "") -> None:
        why = str(plugin.error) if isinstance(plugin.error, DiptychError) else repr(plugin.error)
        way_out = (
            f"uninstall it (pip uninstall {plugin.package}), leave it out of {CHOSEN}, or report it to its authors"
        )
        begin = f"{needed}; plugin {plugin.title}, which it may need," if needed else f"plugin {plugin.title}"
        super().__init__(f"{begin} failed: {why}; {way_out}")


_loaded: list[Plugin] = []
_reported: list[Plugin] = []  # failed ones that the user has seen
_verbs: set[str] = set()  # verbs of the command line, which no task may use
_used: list[tuple[str, str]] = []  # entries that this process has built, as (word of TABLES, name)
_began, _lock = False, RLock()  # reentrant: a register may itself look something up


def load_plugins() -> tuple[Plugin, ...]:
    """Call the `register` of each package once. A package that fails is reported and left out."""
    for plugin in plugins():
        if plugin.error is not None and plugin not in _reported:
            _reported.append(plugin)
            if parent_process() is None and os.environ.get("RANK", "0") == "0":
                print(f"diptych: {PluginError(plugin)}", file=sys.stderr)
    return plugins()


def raise_failed(needed: str) -> None:
    """Raise PluginError if a plugin failed, as it might have added the name that is unknown in the error `needed`."""
    failed = [plugin for plugin in _loaded if plugin.error is not None]
    for plugin in sorted(failed, key=lambda one: one.package not in needed):
        raise PluginError(plugin, needed) from plugin.error


def unknown_name(message: str, kind: type[Exception] = RecipeError) -> Exception:
    """Return the error for a name in no table. Raises PluginError if a plugin failed, as it may have added the name."""
    raise_failed(message)
    return kind(message)


def plugins() -> tuple[Plugin, ...]:
    """Call the `register` of each package once, and return all packages, also those that failed."""
    global _began
    with _lock:
        if not _began:
            chosen, _began = _chosen(), True
            for entry in chosen:  # one by one: an error names the package that has the name already
                _loaded.append(_registered(entry))
        return tuple(_loaded)


def reserve_verbs(names: Iterable[str]) -> None:
    """Keep names of verbs that no task of a package may take."""
    _verbs.update(names)


def verbs_listed() -> dict[str, str]:
    """The verbs that packages list in their metadata, each with its package. Nothing of a package is imported."""
    wanted, there = os.environ.get(CHOSEN), sorted(entry_points(group=VERBS))
    chosen = None if wanted is None else {name.strip() for name in wanted.split(",")}
    listed = ((one, (one.dist.name, one.dist.version)) for one in there if one.dist)
    return {one.name: " ".join(title) for one, title in listed if chosen is None or title[0] in chosen}


def _chosen() -> list[EntryPoint]:
    """The entry points of the packages in DIPTYCH_PLUGINS (names divided by commas), or all if it is not set."""
    there, wanted = sorted(entry_points(group=GROUP)), os.environ.get(CHOSEN)
    if wanted is None:
        return there
    names = {name.strip() for name in wanted.split(",") if name.strip()}
    known = {name for entry in there for name in _names(entry)}
    if missing := sorted(names - known):
        raise RecipeError(f"{CHOSEN}={wanted}: no package {missing[0]} adds to Diptych; {nearest(missing[0], known)}")
    return [entry for entry in there if names & _names(entry)]


def _names(entry: EntryPoint) -> set[str]:
    return {entry.name} | ({entry.dist.name} if entry.dist else set())


def _registered(entry: EntryPoint) -> Plugin:
    """Call an entry point and record its additions. If it fails, the tables are restored."""
    package, version = (entry.dist.name, entry.dist.version) if entry.dist else (entry.name, "of no version")
    tables = {place: _table(place) for place in TABLES}
    before = {place: dict(table) for place, table in tables.items()}
    try:
        with redirect_stdout(sys.stderr):  # a verb's output may be read by a program
            entry.load()()
        adds: dict[str, tuple[str, ...]] = {}
        for place, word in TABLES.items():
            changed = {name for name, value in tables[place].items() if before[place].get(name) is not value}
            gone = before[place].keys() - tables[place].keys()
            for name in sorted((changed | gone) & before[place].keys()):
                owner = _owner(word, name, before[place][name])
                if name in gone or owner != _root(entry.module):
                    raise DiptychError(
                        f"the name {name} of {word} exists already, added by {owner}: choose another name"
                    )
            adds[word] = (*adds.get(word, ()), *(name for name in tables[place] if name in changed))
        _check_verbs(adds.get("tasks", ()), tables[TASKS])
    except (Exception, SystemExit) as error:
        for place, table in tables.items():
            table.clear()
            table.update(before[place])
        failed = DiptychError(f"it ended the program ({error.code})") if isinstance(error, SystemExit) else error
        return Plugin(package, version, entry.module, error=failed)
    return Plugin(package, version, entry.module, adds)


def _check_verbs(added: Iterable[str], tasks: Mapping[str, Any]) -> None:
    """Raise DiptychError if an added task has the verb of another task or of Diptych."""
    verbs = {name: task.interface.verb for name, task in tasks.items() if task.interface is not None}
    for name in added:
        verb = verbs.get(name)
        taken = next((other for other, its in verbs.items() if its == verb and other != name), None)
        if verb is not None and (taken is not None or verb in _verbs):
            owner = "Diptych" if taken is None else f"{_owner('tasks', taken, tasks[taken])} (task {taken})"
            raise DiptychError(f"the verb {verb} of the task {name} exists already, added by {owner}: choose another")


def _owner(word: str, name: str, value: object) -> str:
    """The package that added an entry, or its module if no package did."""
    if (plugin := next((one for one in _loaded if name in one.adds.get(word, ())), None)) is not None:
        return plugin.title
    parts = (getattr(value, part, None) for part in ("objectives", "build"))  # of a system, of a task
    root = _root(str(getattr(next(filter(None, parts), value), "__module__", GROUP)))
    return "Diptych" if root == GROUP else root


def _root(module: str) -> str:
    return module.partition(".")[0]


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
    """Raise CheckpointError if a package that `what` was made with is not installed here, PluginError if it failed."""
    there = {plugin.package: plugin for plugin in load_plugins()}
    for name, version in packages.items() if isinstance(packages, dict) else ():
        if name not in there:
            raise CheckpointError(f"{what} was made with {name} {version}, which is not installed: pip install {name}")
        if (failed := there[name]).error is not None:
            raise PluginError(failed, f"{what} was made with {name} {version}") from failed.error


@contextmanager
def comparing_versions(packages: object, what: object) -> Iterator[None]:
    """Add to errors raised in this context the packages whose version has changed since `what` was made."""
    try:
        yield
    except Exception as error:
        there = {plugin.package: plugin.version for plugin in _loaded}
        made = packages.items() if isinstance(packages, dict) else ()
        other = [(name, version) for name, version in made if there.get(name, version) != version]
        if not other:
            raise
        why = str(error) if isinstance(error, DiptychError) else f"{type(error).__name__}: {error}"
        each = (f"{name} {version}, and {name} {there[name]} is installed" for name, version in other)
        again = " ".join(f"{name}=={version}" for name, version in other)
        raise CheckpointError(f"{why}; {what} was made with {'; '.join(each)}: pip install {again}") from error


def note_use(entries: Entries) -> None:
    """Note that entries were built, so that an error on their values names the packages that added them."""
    _used.extend((word, name) for word, names in entries.items() for name in names if (word, name) not in _used)


def plugin_in_use() -> Plugin | None:
    """The package whose system, task or objective this process used last."""
    return next((one for word, name in reversed(_used) for one in _loaded if name in one.adds.get(word, ())), None)


def titled(thing: object) -> str:
    """The class of an object for an error, preceded by its package: `albef-lite 0.1: Albef`."""
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
