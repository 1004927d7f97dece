"""Protocols checked at run time, on Python 3.12 and later too."""

import inspect
import typing
from typing import Any


def see_submodules() -> None:
    """From 3.12 on isinstance looks for members without `__getattr__`, through which an nn.Module shows its
    parts: no model would have the `heads` of a `Model`. Here they are looked for where nn.Module keeps them too."""

    def found(instance: Any, name: str) -> Any:
        try:
            return inspect.getattr_static(instance, name)
        except AttributeError:
            kept = getattr(instance, "__dict__", {})
            for table in ("_parameters", "_buffers", "_modules"):
                if name in kept.get(table, {}):
                    return kept[table][name]
            raise

    typing._lazy_load_getattr_static = lambda: found  # type: ignore[attr-defined]
