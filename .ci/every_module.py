"""Import every module of Diptych in this process; a warning is an error."""

import importlib
import pkgutil

from diptych.runtime.packages import OWN

parts = {name: importlib.import_module(name).__path__ for name in OWN}
names = [one.name for name, path in parts.items() for one in pkgutil.walk_packages(path, f"{name}.")]
names = [name for name in names if not name.endswith(".__main__")]
for name in names:
    importlib.import_module(name)
print(f"{len(names)} modules imported")
