"""Twelve page layouts. Rules and weights of mining were tuned on the first six; the other six are held out."""

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader

# An HTML5 news page, a WordPress blog, a page of little but the picture, an encyclopaedia with a floating box, tables
# of 1999, a story with a large picture on top; a product page, a forum thread, a recipe with Schema.org's itemprop,
# a build tool's meaningless class names, AMP with its own image tag, and converted Markdown.
TEMPLATES = (
    "article", "shop", "weblog", "forum", "photo_page", "recipe", "wiki", "framework", "old_table", "mobile", "travel",
    "plain",
)  # fmt: skip
HELD_OUT = frozenset({"shop", "forum", "recipe", "framework", "mobile", "plain"})
# No autoescape: `PageParts` holds HTML whose texts are escaped. The files break lines for people; `page.html.jinja`
# removes them from the body.
_PAGES = Environment(loader=PackageLoader("diptych.storybook.web"), autoescape=False, keep_trailing_newline=True)


@dataclass(frozen=True)
class PageParts:
    """The parts of a page, as HTML."""

    host: str
    title: str
    paragraphs: tuple[str, ...]
    picture: str  # the <img>, or ""
    caption: str  # of the <figcaption>
    lead: str  # a sentence in front of the picture
    thumbs: tuple[str, ...]  # the <img>s of other pages' pictures
    shared: str  # the picture's address, for og:image
    sides: tuple[int, int]
    head: str = ""  # robots, base, ...
    lang: str = ""

    def image(self, classes: str = "", sized: bool = True) -> str:
        """Return the <img> with class names, and with width and height if `sized`."""
        sides = f' width="{self.sides[0]}" height="{self.sides[1]}"' if sized else ""
        named = f' class="{classes}"' if classes else ""
        return self.picture.replace("<img", f"<img{sides}{named}", 1)

    def figure(self, inner: str, classes: str = "") -> str:
        """Return `inner` in a <figure> if the picture has a caption."""
        if not self.picture or not self.caption:
            return inner if self.picture else ""
        named = f' class="{classes}"' if classes else ""
        return f"<figure{named}>{inner}<figcaption>{self.caption}</figcaption></figure>"

    def text(self, start: int, end: int) -> str:
        """Return some of the paragraphs."""
        return "".join(f"<p>{paragraph}</p>" for paragraph in self.paragraphs[start:end])

    def before(self, tag: str = "p") -> str:
        """Return the sentence in front of the picture."""
        return f"<{tag}>{self.lead}</{tag}>" if self.lead else ""

    def page(self, template: str) -> str:
        """Return the page as HTML; `template` is one of TEMPLATES."""
        return _PAGES.get_template(f"{template}.html.jinja").render(p=self)
