"""Twelve page layouts. Rules and weights of mining were tuned on the first six; the other six are held out."""

from typing import Any

from jinja2 import Environment, PackageLoader

# An HTML5 news page, a WordPress blog, a page of little but the picture, an encyclopaedia with a floating box, tables
# of 1999, a story with a large picture on top; a product page, a forum thread, a recipe with Schema.org's itemprop,
# a build tool's meaningless class names, AMP with its own image tag, and converted Markdown.
TEMPLATES = (
    "article", "shop", "weblog", "forum", "photo_page", "recipe", "wiki", "framework", "old_table", "mobile", "travel",
    "plain",
)  # fmt: skip
HELD_OUT = frozenset({"shop", "forum", "recipe", "framework", "mobile", "plain"})
# No autoescape: the texts are escaped. The files break lines for people; `page.html.jinja` removes them from the body.
_PAGES = Environment(loader=PackageLoader("diptych.storybook.web"), autoescape=False, keep_trailing_newline=True)
PARTS: Any = _PAGES.get_template("parts.html.jinja").module


def page(template: str, **parts: object) -> str:
    """Return a page as HTML; `template` is one of TEMPLATES."""
    return _PAGES.get_template(f"{template}.html.jinja").render(p=parts, parts=PARTS)
