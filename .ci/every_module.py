"""Import every module of Diptych in this process; a warning is an error."""

import importlib
import pkgutil

import diptych

names = [module.name for module in pkgutil.walk_packages(diptych.__path__, "diptych.")]
names = [name for name in names if not name.endswith(".__main__")]
for name in names:
    importlib.import_module(name)
print(f"{len(names)} modules imported")
