"""Twelve page layouts. The rules and weights of mining were tuned on six of them; the six in HELD_OUT test them."""

from typing import Any

from jinja2 import Environment, PackageLoader

# Mining was tuned on these templates: an HTML5 news page, a WordPress blog, a page with little but the picture, an
# encyclopaedia with a floating box, tables as in 1999, and a story with a large picture at the top. Held out are a
# product page, a forum thread, a recipe with Schema.org's itemprop, a page with generated class names, AMP with its own
# image tag, and converted Markdown.
TEMPLATES = (
    "article", "shop", "weblog", "forum", "photo_page", "recipe", "wiki", "framework", "old_table", "mobile", "travel",
    "plain",
)  # fmt: skip
HELD_OUT = frozenset({"shop", "forum", "recipe", "framework", "mobile", "plain"})
# There is no autoescape, because the texts are already escaped. `page.html.jinja` removes the line breaks of the
# template files from the body.
_PAGES = Environment(loader=PackageLoader("diptych_world.web"), autoescape=False, keep_trailing_newline=True)
PARTS: Any = _PAGES.get_template("parts.html.jinja").module


def page(template: str, **parts: object) -> str:
    """Return a page as HTML. `template`: one of TEMPLATES. `parts`: the contents of the page."""
    return _PAGES.get_template(f"{template}.html.jinja").render(p=parts, parts=PARTS)
