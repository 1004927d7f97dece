"""Pickle objects without their caches, which another process rebuilds when it needs them."""

from functools import cached_property
from typing import Any


class PickledWithoutCaches:
    """Base class that leaves cached properties (open files, memory maps, LRU caches) out of a pickle."""

    def __getstate__(self) -> dict[str, Any]:
        kind = type(self)
        return {k: v for k, v in vars(self).items() if not isinstance(getattr(kind, k, None), cached_property)}
