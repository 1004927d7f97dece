"""What a package offers by name can be imported, and says what it is."""

import dataclasses
import importlib
import inspect
import pkgutil
from importlib.resources import files
from types import FunctionType, ModuleType

import pytest

import diptych

PACKAGES = ["diptych", *(m.name for m in pkgutil.walk_packages(diptych.__path__, "diptych.") if m.ispkg)]
EXPORTING = [name for name in PACKAGES if hasattr(importlib.import_module(name), "__all__")]


@pytest.mark.parametrize("name", EXPORTING)
def test_each_exported_name_is_there_and_documented(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__doc__, f"{name} does not say what it holds"
    assert len(set(package.__all__)) == len(package.__all__)
    for exported in package.__all__:
        value = getattr(package, exported)
        if isinstance(value, type | FunctionType):
            assert says_something(value), f"{name}.{exported} has no docstring"


def says_something(value: type | FunctionType) -> bool:
    """A dataclass without a docstring gets its signature for one."""
    written = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    generated = dataclasses.is_dataclass(value) and (written or "").startswith(f"{value.__name__}(")
    return bool(written) and not generated


@pytest.mark.parametrize("name", EXPORTING)
def test_what_a_package_imports_for_others_is_exported(name: str) -> None:
    """Every public name of an `__init__` is in `__all__`, but modules; a name that is absent is refused by name."""
    package = importlib.import_module(name)
    public = {key for key, value in vars(package).items() if not key.startswith("_") and defined_here(package, value)}
    assert public <= set(package.__all__)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        getattr(package, "nothing_of_this_name")  # noqa: B009


def defined_here(package: ModuleType, value: object) -> bool:
    return inspect.isclass(value) and value.__module__.startswith(f"{package.__name__}.")


def test_types_are_for_users_too() -> None:
    """`py.typed` tells a type checker that Diptych's annotations are meant for it."""
    assert (files("diptych") / "py.typed").is_file()


def test_the_public_names_are_those_of_the_front_page() -> None:
    assert set(diptych.__all__) == set(dir(diptych))
    assert {"load", "Model", "Caption"} <= set(diptych.__all__)
    assert "diptych.load(" in (diptych.__doc__ or "")
