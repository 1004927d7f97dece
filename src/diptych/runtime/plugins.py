"""Plugins: packages that add systems, tasks and so on to Diptych, with an entry point in the group `diptych`:

    [project.entry-points.diptych]
    uniter = "uniter:register"

The function `register` takes no arguments, and adds entries to the tables in TABLES. It is called once per process, at
the first lookup in a table. This happens in `diptych.load`, in verbs of the command line (not in `--help`), and in
processes that Diptych starts.
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
from diptych.runtime.packages import is_own

GROUP, VERBS = "diptych", "diptych.verbs"
CHOSEN, TASKS = "DIPTYCH_PLUGINS", "diptych.tasks:TASKS"
TABLES = {  # MODULE:NAME of each table that plugins extend -> noun for its entries in messages
    "diptych.systems:SYSTEMS": "systems",
    TASKS: "tasks",
    "diptych.systems:OBJECTIVES": "objectives",
    "diptych.models:HEADS": "heads",
    "diptych.data.formats.table:FORMATS": "formats",
    "diptych.vision.detectors.load:DETECTORS": "detectors",
    "diptych.systems:RECIPES": "recipes",
    "diptych.systems:STAGED": "recipes",
}

Entries = Mapping[str, Iterable[str]]  # noun in TABLES, such as "systems" -> names of the added entries


@dataclass(frozen=True)
class Plugin:
    """A plugin: an entry point of a package, and the entries that its function added."""

    package: str  # name of the package, as for `pip install`
    version: str
    module: str
    adds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # noun in TABLES -> names of entries
    error: Exception | None = None

    @property
    def title(self) -> str:
        return f"{self.package} {self.version}"


class PluginError(DiptychError):
    """The `register` of a plugin raised an error, or used a name that is already taken.

    `needed`: the error that the user met, such as an unknown name. The failed plugin may have caused it.
    """

    def __init__(self, plugin: Plugin, needed: str = "") -> None:
        why = str(plugin.error) if isinstance(plugin.error, DiptychError) else repr(plugin.error)
        way_out = (
            f"uninstall it (pip uninstall {plugin.package}), leave it out of {CHOSEN}, or report this to its authors"
        )
        begin = f"{needed}; the cause may be that plugin {plugin.title}" if needed else f"plugin {plugin.title}"
        super().__init__(f"{begin} failed: {why}; {way_out}")


_loaded: list[Plugin] = []
_reported: list[Plugin] = []  # plugins that failed and that the user has been warned about
_verbs: set[str] = set()  # names of Diptych's commands, which tasks must not use
_used: list[tuple[str, str]] = []  # (noun in TABLES, name) of each entry that this process has used
_began, _lock = False, RLock()  # reentrant, because a plugin's `register` may look up entries


def load_plugins() -> tuple[Plugin, ...]:
    """Call the `register` of each plugin once, and return the plugins that succeeded.

    A plugin that fails is reported and left out.
    """
    for plugin in plugins():
        if plugin.error is not None and plugin not in _reported:
            _reported.append(plugin)
            if parent_process() is None and os.environ.get("RANK", "0") == "0":
                print(f"diptych: {PluginError(plugin)}", file=sys.stderr)
    return plugins()


def raise_failed(needed: str) -> None:
    """Raise PluginError if a plugin failed, because it might have added the unknown name.

    `needed`: the error about that name.
    """
    failed = [plugin for plugin in _loaded if plugin.error is not None]
    for plugin in sorted(failed, key=lambda one: one.package not in needed):
        raise PluginError(plugin, needed) from plugin.error


def unknown_name(message: str, kind: type[Exception] = RecipeError) -> Exception:
    """Return the error `kind` for an unknown name.

    If a plugin failed, raise PluginError instead, because it might have added the name.
    """
    raise_failed(message)
    return kind(message)


def plugins() -> tuple[Plugin, ...]:
    """Call the `register` of each plugin once, and return all plugins, also the failed ones."""
    global _began
    with _lock:
        if not _began:
            chosen, _began = _chosen(), True
            for entry in chosen:  # one by one, so that an error can name the plugin that already uses a name
                _loaded.append(_registered(entry))
        return tuple(_loaded)


def reserve_verbs(names: Iterable[str]) -> None:
    """Reserve names of verbs, so that tasks of plugins cannot use them."""
    _verbs.update(names)


def verbs_listed() -> dict[str, str]:
    """Return the verbs that plugins list in their package metadata, each with its package. No plugin is imported."""
    wanted, there = os.environ.get(CHOSEN), sorted(entry_points(group=VERBS))
    chosen = None if wanted is None else {name.strip() for name in wanted.split(",")}
    listed = ((one, (one.dist.name, one.dist.version)) for one in there if one.dist)
    return {one.name: " ".join(title) for one, title in listed if chosen is None or title[0] in chosen}


def _chosen() -> list[EntryPoint]:
    """Return the entry points of the packages in $DIPTYCH_PLUGINS (names separated by commas).

    If it is not set, return those of all packages.
    """
    there, wanted = sorted(entry_points(group=GROUP)), os.environ.get(CHOSEN)
    if wanted is None:
        return there
    names = {name.strip() for name in wanted.split(",") if name.strip()}
    known = {name for entry in there for name in _names(entry)}
    if missing := sorted(names - known):
        raise RecipeError(f"{CHOSEN}={wanted}: {missing[0]} is not an installed plugin; {nearest(missing[0], known)}")
    return [entry for entry in there if names & _names(entry)]


def _names(entry: EntryPoint) -> set[str]:
    return {entry.name} | ({entry.dist.name} if entry.dist else set())


def _registered(entry: EntryPoint) -> Plugin:
    """Call the `register` of an entry point, and record which entries it adds. If it fails, the tables are restored."""
    package, version = (entry.dist.name, entry.dist.version) if entry.dist else (entry.name, "of no version")
    tables = {place: _table(place) for place in TABLES}
    before = {place: dict(table) for place, table in tables.items()}
    try:
        with redirect_stdout(sys.stderr):  # other programs may parse stdout, so a plugin may not print there
            entry.load()()
        adds: dict[str, tuple[str, ...]] = {}
        for place, word in TABLES.items():
            changed = {name for name, value in tables[place].items() if before[place].get(name) is not value}
            gone = before[place].keys() - tables[place].keys()
            for name in sorted((changed | gone) & before[place].keys()):
                owner = _owner(word, name, before[place][name])
                if name in gone or owner != _root(entry.module):
                    raise DiptychError(
                        f"it adds the name {name} to {word}, but this name belongs to {owner}: choose another"
                    )
            adds[word] = (*adds.get(word, ()), *(name for name in tables[place] if name in changed))
        _check_verbs(adds.get("tasks", ()), tables[TASKS])
    except (Exception, SystemExit) as error:
        for place, table in tables.items():
            table.clear()
            table.update(before[place])
        failed = DiptychError(f"it called exit({error.code})") if isinstance(error, SystemExit) else error
        return Plugin(package, version, entry.module, error=failed)
    return Plugin(package, version, entry.module, adds)


def _check_verbs(added: Iterable[str], tasks: Mapping[str, Any]) -> None:
    """Raise DiptychError if an added task uses a verb of Diptych or of another task."""
    verbs = {name: task.interface.verb for name, task in tasks.items() if task.interface is not None}
    for name in added:
        verb = verbs.get(name)
        taken = next((other for other, its in verbs.items() if its == verb and other != name), None)
        if verb is not None and (taken is not None or verb in _verbs):
            owner = "Diptych" if taken is None else f"{_owner('tasks', taken, tasks[taken])} (task {taken})"
            raise DiptychError(f"its task {name} has the verb {verb}, which belongs to {owner}: choose another")


def _owner(word: str, name: str, value: object) -> str:
    """Return the plugin that added an entry, or the entry's module if no plugin did."""
    if (plugin := next((one for one in _loaded if name in one.adds.get(word, ())), None)) is not None:
        return plugin.title
    # The module is that of a system's `objectives`, of a task's `build`, or of the entry itself.
    parts = (getattr(value, part, None) for part in ("objectives", "build"))
    root = _root(str(getattr(next(filter(None, parts), value), "__module__", GROUP)))
    return "Diptych" if is_own(root) else root


def _root(module: str) -> str:
    return module.partition(".")[0]


def _table(place: str) -> dict[str, Any]:
    module, _, name = place.partition(":")
    table: dict[str, Any] = getattr(import_module(module), name)
    return table


def packages_of(entries: Entries) -> dict[str, str]:
    """Return the plugins that added any of these entries: package -> version."""
    return {
        plugin.package: plugin.version
        for plugin in plugins()
        if any(name in plugin.adds.get(word, ()) for word, names in entries.items() for name in names)
    }


def refuse_missing(packages: object, what: object) -> None:
    """Raise an error if a plugin that `what` was made with is missing.

    The error is CheckpointError if the plugin's package is not installed, and PluginError if the plugin failed.
    """
    there = {plugin.package: plugin for plugin in load_plugins()}
    for name, version in packages.items() if isinstance(packages, dict) else ():
        if name not in there:
            raise CheckpointError(f"{what} was made with {name} {version}, which is missing; run pip install {name}")
        if (failed := there[name]).error is not None:
            raise PluginError(failed, f"{what} was made with {name} {version}") from failed.error


@contextmanager
def comparing_versions(packages: object, what: object) -> Iterator[None]:
    """Return a context in which errors also name the plugins whose version has changed since `what` was made."""
    try:
        yield
    except Exception as error:
        there = {plugin.package: plugin.version for plugin in _loaded}
        made = packages.items() if isinstance(packages, dict) else ()
        other = [(name, version) for name, version in made if there.get(name, version) != version]
        if not other:
            raise
        why = str(error) if isinstance(error, DiptychError) else f"{type(error).__name__}: {error}"
        each = (f"{name} {version}, but {name} {there[name]} is installed" for name, version in other)
        again = " ".join(f"{name}=={version}" for name, version in other)
        raise CheckpointError(f"{why}; {what} was made with {'; '.join(each)}; run pip install {again}") from error


def note_use(entries: Entries) -> None:
    """Record that entries are used, so that later errors can name the plugin that added them."""
    _used.extend((word, name) for word, names in entries.items() for name in names if (word, name) not in _used)


def plugin_in_use() -> Plugin | None:
    """Return the plugin whose system, task or objective this process used last, or None."""
    return next((one for word, name in reversed(_used) for one in _loaded if name in one.adds.get(word, ())), None)


def titled(thing: object) -> str:
    """Return an object's plugin and class for an error, such as `albef-lite 0.1: Albef`."""
    kind = thing if isinstance(thing, type) else type(thing)
    root = kind.__module__.partition(".")[0]
    plugin = next((one for one in _loaded if one.module.partition(".")[0] == root), None)
    return kind.__qualname__ if plugin is None else f"{plugin.title}: {kind.__qualname__}"


def plugin_at_fault(error: BaseException) -> Plugin | None:
    """Return the plugin whose code is in the traceback of an error, also if another process raised it.

    None: no plugin.
    """
    text = "".join(traceback.format_exception(error))
    return next((plugin for plugin in _loaded if any(f'File "{place}' in text for place in _places(plugin))), None)


def _places(plugin: Plugin) -> Iterable[Path]:
    """Return the folder of a plugin's code, or its file if it is a single module."""
    try:
        file = Path(str(import_module(plugin.module.partition(".")[0]).__file__))
    except ImportError:
        return ()
    return (file.parent if file.stem == "__init__" else file,)
