"""msgspec 0.22 frees the pattern of `Annotated[str, Meta(pattern=...)] | list` as if it were a type (its issue 717)."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

import diptych.data

CONTAINERS = (list, dict, tuple, set, frozenset)


def unions(hint: Any) -> Iterator[tuple[Any, ...]]:
    """The members of every union inside a type."""
    if get_origin(hint) in (Union, UnionType):
        yield get_args(hint)
    for inner in get_args(hint):
        yield from unions(inner)


def crashes(members: tuple[Any, ...]) -> bool:
    metas = [meta for one in members if get_origin(one) is Annotated for meta in one.__metadata__]
    return any(isinstance(meta, Meta) and meta.pattern is not None for meta in metas) and any(
        (get_origin(one) or one) in CONTAINERS for one in members
    )


def structs(kind: type[Struct] = Struct) -> Iterator[type[Struct]]:
    for one in kind.__subclasses__():
        yield one
        yield from structs(one)


def test_no_struct_has_a_union_that_crashes_at_exit() -> None:
    for module in pkgutil.walk_packages(diptych.data.__path__, "diptych.data."):
        importlib.import_module(module.name)
    ours = [one for one in structs() if one.__module__.startswith("diptych.")]
    assert len(ours) > 20
    for struct in ours:
        for name, hint in get_type_hints(struct, include_extras=True).items():
            assert not any(map(crashes, unions(hint))), f"{struct.__name__}.{name}"


def test_the_guard_sees_such_a_union() -> None:
    text = Annotated[str, Meta(pattern="a")]
    assert any(map(crashes, unions(list[text | list[int]])))  # type: ignore[valid-type]
    assert not any(map(crashes, unions(dict[str, text] | None)))  # type: ignore[valid-type]
