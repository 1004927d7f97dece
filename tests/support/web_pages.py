"""A web page with a picture, and what is found on it."""

from diptych_mine.pages.pages import read_page, settle
from diptych_mine.pages.texts import Vocabularies
from diptych_mine.settings import MiningSettings

NOTHING = Vocabularies(frozenset())


TEXT = "<p>We had planned this trip for months, and in the end everything turned out differently.</p>"


def page(body: str, head: str = "", lang: str = ' lang="en"', settings: MiningSettings | None = None, **more: object):
    html = f"<!doctype html><html{lang}><head><title>Kites</title>{head}</head><body>{body}</body></html>"
    settings = settings or MiningSettings()
    found = read_page("http://a.test/x/y.html", html.encode(), settings, NOTHING, **more)
    settle([found], settings, NOTHING)
    return found
