"""Choose the contents of each page of the test web, and its ground truth.

Contents and ground truth depend only on the seed and the page's number.
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from diptych.runtime.files import parse_json, text_of
from diptych_world.captions import caption
from diptych_world.facts import Facts
from diptych_world.layout import scene
from diptych_world.web.templates import HELD_OUT, TEMPLATES

HOSTS = 40
# Texts that do not describe a picture: `prose` and `titles` by language, and careless alt texts by kind.
WORDS = parse_json(text_of(Path(__file__).with_name("prose.json")))
CLOSED = "site-039.test"  # the robots.txt of this host forbids /closed/

# Kinds of texts, pages and sources, with their weights. 41% of the texts do not describe the picture. Galleries and
# pages without pictures have no dominant picture. A source is the way in which a page refers to its picture, such as a
# relative URL.
_PLAN = parse_json(text_of(Path(__file__).with_name("plan.json")))
# Kind of picture -> its weight, and the rule of mining that should drop it, or None.
PICTURES: dict[str, tuple[int, str | None]] = _PLAN["pictures"]
REASONS: dict[str, str] = _PLAN["reasons"]  # kind of fault -> reason for the failed download in a mining report


@dataclass(frozen=True)
class PageCase:
    """The contents and ground truth of a page.

    `texts`: tag -> (text, True if it describes the picture, the rule that should drop it or None).
    """

    number: int
    host: str
    path: str
    template: str
    page: str
    language: str
    declared: str | None  # language in the lang attribute, which may be wrong
    picture: str
    source: str
    text: str
    scene: int
    zoom: int
    title: str
    paragraphs: tuple[str, ...]
    texts: dict[str, tuple[str, bool, str | None]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"http://{self.host}{self.path}"

    @property
    def held_out(self) -> bool:
        """Return True if mining was not tuned on the page's layout."""
        return self.template in HELD_OUT

    @property
    def drop(self) -> str | None:
        """Return the rule that should drop the picture before it is scored, or None if no rule should."""
        if self.page == "opt_out":
            return "opt_out"
        if self.page == "foreign":
            return "language"
        return "dominant" if self.page == "gallery" else PICTURES[self.picture][1]


def plan(seed: int, number: int) -> PageCase:
    """Return the contents of page `number`."""
    rng = Random(f"web {seed} {number}")
    page = _drawn(rng, _PLAN["pages"])
    language = rng.choice(("de", "fr", "es", "nl")) if page == "foreign" else "en"
    declared: str | None = language if rng.random() < 0.7 else None
    if page == "foreign" and rng.random() < 0.2:
        declared = "en"  # as if left over from an English template
    if page == "wrong_lang":
        declared = rng.choice(("de", "fr"))
    picture = _drawn(rng, {name: weight for name, (weight, _) in PICTURES.items()}) if page == "page" else "scene"
    host = CLOSED if picture == "robots" else f"site-{rng.randrange(HOSTS):03d}.test"
    template = TEMPLATES[number % len(TEMPLATES)]
    prose = list(WORDS["prose"][language])
    rng.shuffle(prose)
    text = _drawn(rng, _PLAN["texts"]) if page in ("page", "wrong_lang") else "alt"
    path = f"/{rng.choice(('blog', 'notes', '2024/05', 'p'))}/{number:05d}.html"
    case = PageCase(
        number, host, path, template, page, language, declared, picture, _drawn(rng, _PLAN["sources"]), text,
        number, 3 if rng.random() < 0.5 else 2, rng.choice(WORDS["titles"][language]), tuple(prose[:4]),
    )  # fmt: skip
    case.texts.update(_texts(rng, seed, case))
    return case


def true_caption(rng: Random, seed: int, number: int) -> str:
    """Generate a caption that is true of the scene of page `number`."""
    return caption(rng, Facts(scene(seed, "web", number)))


def _texts(rng: Random, seed: int, case: PageCase) -> dict[str, tuple[str, bool, str | None]]:  # noqa: PLR0911
    if case.page == "foreign":
        return {"alt": (rng.choice(WORDS["prose"][case.language]), False, None)}
    natural = PICTURES[case.picture][1] != "realism" and case.picture != "one_colour"
    right = true_caption(rng, seed, case.scene)
    match case.text:
        case "alt" | "title" | "figcaption":
            return {case.text: (right, natural, None)}
        case "before":
            return {"near": (f"{right[0].upper()}{right[1:]}.", natural, None)}
        case "other":
            return {"alt": (true_caption(rng, seed, case.scene + 1 + rng.randrange(50)), False, None)}
        case "junk":
            junk = rng.choice(WORDS["junk"])
            return {"alt": (junk, False, "letters" if "#" in junk else "short")}
        case "file_name":
            number = rng.randrange(9999)
            name = rng.choice((f"IMG_{number:04d}.JPG", f"DSC{number:05d}", "trip-2019_04.jpg"))
            return {"alt": (name, False, "file_name")}
        case "foreign":
            return {"alt": (rng.choice(WORDS["prose"][rng.choice(("de", "fr", "es", "nl"))]), False, "text_language")}
        case "spam":
            return {"alt": (rng.choice(WORDS["spam"]), False, "spam")}
        case _:
            return {"figcaption": (rng.choice(WORDS["common"]), False, "common_text")}


def _drawn(rng: Random, weights: dict[str, int]) -> str:
    return rng.choices(tuple(weights), tuple(weights.values()))[0]
