"""Detectron's `cfg`: a YAML text of Python objects, read by its patterns so that no object is ever made."""

import re

KEY = re.compile(r"^(\s*)([A-Za-z_]\w*):(?:\s+(.*))?$")
TAG = re.compile(r"!!?\S+|&\w+")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
NOT_SECTIONS = {"dictitems"}  # how an AttrDict is written


def cfg_values(text: str) -> dict[str, str]:
    """`TEST.SCALE` -> `600`: the text of each value under its sections' names; of a list its members, by commas."""
    values: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.lstrip().startswith("- ") and above:
            name = _path(above)
            values[name] = ", ".join(part for part in (values.get(name), line.lstrip()[2:].strip()) if part)
            continue
        if (found := KEY.match(line)) is None:
            continue
        indent, key, value = len(found[1]), found[2], TAG.sub("", found[3] or "").strip()
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, key))
        while value[:1] in ("{", "[") and not _closed(value):
            more = next(lines, None)
            if more is None:
                break
            value += " " + TAG.sub("", more).strip()
        _keep(values, _path(above), value)
    return values


def number(values: dict[str, str], *names: str) -> float | None:
    """The first number of the first of these names that there is; a truth value is 1 or 0."""
    for name in names:
        if name in values:
            if values[name].lower() in ("true", "false"):
                return float(values[name].lower() == "true")
            if found := numbers(values, name):
                return found[0]
    return None


def numbers(values: dict[str, str], name: str) -> list[float]:
    return [float(found) for found in NUMBER.findall(values.get(name, ""))]


def _path(above: list[tuple[int, str]]) -> str:
    return ".".join(key for _, key in above if key not in NOT_SECTIONS)


def _closed(value: str) -> bool:
    return value.count("{") <= value.count("}") and value.count("[") <= value.count("]")


def _keep(values: dict[str, str], name: str, value: str) -> None:
    """A value in braces is a section of its own."""
    if value.startswith("{"):
        for part in _parts(value[1:].removesuffix("}")):
            key, colon, inner = part.partition(":")
            if colon:
                key = key.strip()
                _keep(values, name if key in NOT_SECTIONS else f"{name}.{key}".lstrip("."), inner.strip())
    elif value:
        values[name] = value.strip("[]'\" ")


def _parts(text: str) -> list[str]:
    """What commas part that stand in no inner braces."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
