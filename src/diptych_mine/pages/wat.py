"""Read a page from its record in a WAT file, as Common Crawl publishes them: the metas, links and headers of a page.

The record becomes HTML with the page's <title>, <meta>, <base> and <img> tags. So all rules apply to it, and an opt-out
holds. Texts around an image, captions and sizes are not in a WAT.
"""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from diptych.runtime.files import parse_json

IMAGE = "IMG@/"  # the paths of links of <img> tags begin with it
_META, _IMG = ("name", "property", "http-equiv", "content"), ("src", "alt", "title")


def page_of(content: bytes) -> tuple[list[tuple[str, str]], bytes] | None:
    """Return the HTTP headers and the HTML of a page; None if the record is not of a page with status 200.

    Raises ValueError if it is not JSON.
    """
    http = _at(parse_json(content), "Envelope", "Payload-Metadata", "HTTP-Response-Metadata")
    html = _at(http, "HTML-Metadata")
    if not html or _at(http, "Response-Message").get("Status", "200") != "200":
        return None
    head = _at(html, "Head")
    tags = [f"<title>{escape(str(head.get('Title') or ''))}</title>", _tag("base", {"href": head.get("Base")}, "href")]
    tags += [_tag("meta", meta, *_META) for meta in _each(head.get("Metas"))]
    images = (link for link in _each(html.get("Links")) if str(link.get("path")).startswith(IMAGE))
    tags += [_tag("img", {"src": link.get("url"), **link}, *_IMG) for link in images]
    named = ((name, one) for name, of in _at(http, "Headers").items() for one in (of if isinstance(of, list) else [of]))
    return [(name, str(value)) for name, value in named], "\n".join(tags).encode("utf-8", "replace")


def _at(values: Any, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def _each(values: Any) -> Iterator[Mapping[str, Any]]:
    return (one for one in (values if isinstance(values, list) else ()) if isinstance(one, dict))


def _tag(name: str, values: Mapping[str, Any], *attributes: str) -> str:
    there = [f'{one}="{escape(values[one])}"' for one in attributes if isinstance(values.get(one), str)]
    return f"<{name} {' '.join(there)}>"
