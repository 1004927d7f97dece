"""Read Detectron's `cfg`, a YAML text with tags for Python objects.

Regular expressions read it, so no Python object is created.
"""

import re

from diptych.runtime.errors import CheckpointError

KEY = re.compile(r"^(\s*)([A-Za-z_]\w*):(?:\s+(.*))?$")
TAG = re.compile(r"!!?\S+|&\w+")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
LONGEST, MOST_SECTIONS = 2**16, 200  # a `cfg` with more characters or opening braces is refused
NOT_SECTIONS = {"dictitems"}  # the values of an AttrDict are below this key, which is not a section itself


def cfg_values(text: str) -> dict[str, str]:
    """Return {path: text of the value}, such as `TEST.SCALE`: `600`.

    The items of a list are joined with commas.

    Raises CheckpointError if the text has more characters than LONGEST, or more braces than MOST_SECTIONS.
    """
    if len(text) > LONGEST or text.count("{") > MOST_SECTIONS:
        raise CheckpointError(f"`cfg` has over {LONGEST} characters or {MOST_SECTIONS} braces; download the file again")
    values: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.lstrip().startswith("- ") and above:
            name = _path(above)
            values[name] = ", ".join(part for part in (values.get(name), line.lstrip()[2:].strip()) if part)
            continue
        if (match := KEY.match(line)) is None:
            continue
        indent, key, value = len(match[1]), match[2], TAG.sub("", match[3] or "").strip()
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, key))
        while value[:1] in ("{", "[") and not _closed(value) and (more := next(lines, None)) is not None:
            value += " " + TAG.sub("", more).strip()
        _keep(values, _path(above), value)
    return values


def number(values: dict[str, str], *names: str) -> float | None:
    """Return the number of the first of `names` whose value contains one, or None. True counts as 1, false as 0."""
    for name in names:
        if name in values:
            if values[name].lower() in ("true", "false"):
                return float(values[name].lower() == "true")
            if members := numbers(values, name):
                return members[0]
    return None


def numbers(values: dict[str, str], name: str) -> list[float]:
    """Return all numbers in the value of `name`. Return [] if `name` is not set."""
    return [float(digits) for digits in NUMBER.findall(values.get(name, ""))]


def _path(above: list[tuple[int, str]]) -> str:
    return ".".join(key for _, key in above if key not in NOT_SECTIONS)


def _closed(value: str) -> bool:
    return value.count("{") <= value.count("}") and value.count("[") <= value.count("]")


def _keep(values: dict[str, str], name: str, value: str) -> None:
    """Store a value in `values`. If it is a section in braces, store each value inside it under its own path."""
    if value.startswith("{"):
        for part in _parts(value[1:].removesuffix("}")):
            key, colon, inner = part.partition(":")
            if colon:
                key = key.strip()
                _keep(values, name if key in NOT_SECTIONS else f"{name}.{key}".lstrip("."), inner.strip())
    elif value:
        values[name] = value.strip("[]'\" ")


def _parts(text: str) -> list[str]:
    """Split a text at the commas that are outside inner braces."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
