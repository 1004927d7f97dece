"""A robots.txt is obeyed whatever its bytes: marks, UTF-16, NULs, other encodings, groups and tokens (RFC 9309)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from diptych.runtime.files import as_text
from diptych_mine.fetch.hosts import Robots, RobotsCache
from tests.support.local_web import PICTURE, Web

ALL = "User-agent: *\nDisallow: /\n"
MINE = "User-agent: diptych-mine\nDisallow: /\n\nUser-agent: *\nAllow: /\n"
GROUPS = "User-agent: diptych-mine\n{}\n\nUser-agent: *\n{}\n".format
MARK = "\ufeff"
EXCEPT = "User-agent: *\nDisallow: /\nAllow: /k\n"


def wide(text: str, encoding: str) -> bytes:
    return text.encode(encoding)


# what the file holds, its bytes, whether /k.jpg may be fetched
CASES: list[tuple[str, bytes, bool]] = [
    ("open", b"User-agent: *\nAllow: /\n", True),
    # byte order marks and UTF-16
    ("mark", (MARK + ALL).encode(), False),
    ("mark, group of ours", (MARK + MINE).encode(), False),
    ("mark and CRLF", (MARK + ALL.replace("\n", "\r\n")).encode(), False),
    ("two marks", (MARK * 2 + ALL).encode(), False),
    ("a mark that was encoded twice", (MARK.encode().decode("cp1252") + ALL).encode(), False),
    ("a mark in a later line", (f"User-agent: other\nAllow: /\n{MARK}{ALL}").encode(), False),
    ("a mark ahead of a rule", f"User-agent: *\n{MARK}Disallow: /\n".encode(), False),
    ("UTF-16", wide(ALL, "utf-16"), False),
    ("UTF-16, big end first", wide(MARK + ALL, "utf-16-be"), False),
    ("UTF-16 and CRLF", wide(MARK + ALL.replace("\n", "\r\n"), "utf-16-le"), False),
    ("UTF-16 without a mark", wide(ALL, "utf-16-le"), False),
    ("UTF-16, big end first, without a mark", wide(ALL, "utf-16-be"), False),
    ("UTF-16 without a mark, group of ours", wide(MINE, "utf-16-le"), False),
    ("UTF-16 cut in a character", wide(MARK + ALL + "x", "utf-16-le")[:-1], False),
    ("UTF-16 with a comment in Chinese", wide(f"# {'禁止' * 99}\n{ALL}", "utf-16-be"), False),
    ("UTF-16 with a first line in Chinese", wide(f"禁止{'禁止' * 99}\n{ALL}", "utf-16-le"), False),
    ("UTF-16 with a path in Chinese", wide("User-agent: *\nDisallow: /上\n", "utf-16-le"), True),
    ("UTF-16 behind UTF-8", b"# managed\n" + wide(ALL, "utf-16"), False),
    ("UTF-32", wide(ALL, "utf-32"), False),
    ("UTF-32 without a mark", wide(ALL, "utf-32-le"), False),
    ("NULs at the end", ALL.encode() + bytes(4000), False),
    ("a NUL at the start", b"\0" + ALL.encode(), False),
    ("UTF-16 that allows", wide(MARK + GROUPS("Allow: /", "Disallow: /"), "utf-16-be"), True),
    # bytes that are not UTF-8, and NULs
    ("Latin-1 in a comment", b"# caf\xe9\n" + ALL.encode(), False),
    ("Latin-1 in a Disallow of other pages", b"User-agent: *\nDisallow: /caf\xe9/\n", True),
    ("Disallow is read up to it", b"User-agent: *\nDisallow: /k\xe9/\n", False),
    ("Disallow with an end is read up to it", b"User-agent: *\nDisallow: /k\xe9.jpg$\n", False),
    ("Allow with it is ignored", EXCEPT.encode().replace(b"/k", b"/k\xe9"), False),
    ("Allow with it at the end", EXCEPT.encode().replace(b"/k", b"/k.jpg\xff"), False),
    ("Disallow up to a NUL", b"User-agent: *\nDisallow: /k\0x\n", False),
    ("Allow with a NUL", EXCEPT.encode().replace(b"/k", b"/k\0x"), False),
    ("Allow with a line separator", EXCEPT.replace("/k", "/k\u2028x").encode(), False),
    ("an ignored Allow ends the agents", b"User-agent: diptych-mine\nAllow: /\xe9\nUser-agent: x\nDisallow: /", True),
    # no rules
    ("empty", b"", True),
    ("a mark alone", MARK.encode(), True),
    ("HTML", b"<!doctype html><html><body><pre>User-agent: *\nDisallow: /</pre></body></html>", True),
    ("binary", PICTURE + bytes(range(256)) * 40, True),
    ("500 kB", b"# long\n" * 70_000 + ALL.encode(), False),
    ("a long line of spaces", b"User-agent: *\nDisallow:" + b" " * 480_000 + b"/\n", False),
    ("rules ahead of any agent", b"Disallow: /\nUser-agent: *\nAllow: /\n", True),
    # product tokens
    ("version", MINE.encode().replace(b"mine", b"mine/0.1"), False),
    ("version behind a space", MINE.encode().replace(b"mine", b"mine 0.1 (+https://a.test)"), False),
    ("star behind", MINE.encode().replace(b"mine", b"mine*"), False),
    ("case", b"USER-AGENT: Diptych-Mine\nDISALLOW: /\n\nUser-agent: *\nAllow: /\n", False),
    ("one letter of ours", b"User-agent: d\nAllow: /\n\nUser-agent: *\nDisallow: /\n", False),
    ("start of ours", b"User-agent: diptych\nAllow: /\n\nUser-agent: *\nDisallow: /\n", False),
    ("end of ours", b"User-agent: mine\nAllow: /\n\nUser-agent: *\nDisallow: /\n", False),
    ("longer than ours", b"User-agent: diptych-miner\nAllow: /\n\nUser-agent: *\nDisallow: /\n", False),
    ("no token", b"User-agent:\nDisallow: /\n", True),
    # groups
    ("group of ours and all", GROUPS("Disallow: /secret", "Disallow: /").encode(), True),
    ("group of ours without rules", GROUPS("Disallow:", "Disallow: /").encode(), True),
    ("two groups of ours", (GROUPS("Allow: /", "Allow: /") + GROUPS("Disallow: /k.jpg", "")).encode(), False),
    ("two groups of all", (ALL + "\nUser-agent: *\nAllow: /x\n").encode(), False),
    ("stacked", b"User-agent: *\nUser-agent: Googlebot\nDisallow: /k.jpg\n", False),
    ("stacked with an empty line", b"User-agent: diptych-mine\n\nUser-agent: Googlebot\nDisallow: /k.jpg\n", False),
    ("stacked with other records", b"User-agent: *\nSitemap: x\nFoo: x\nUser-agent: Googlebot\nDisallow: /\n", False),
    # rules
    ("longest match", b"User-agent: *\nDisallow: /\nAllow: /k.jpg\n", True),
    ("star and end", b"User-agent: *\nDisallow: /*.jpg$\n", False),
    ("CR alone", ALL.encode().replace(b"\n", b"\r"), False),
    ("spaces ahead of colons", b"User-agent : *\nDisallow : /\n", False),
    ("spaces ahead of lines", b"  User-agent: *\n\tDisallow: /\n", False),
    ("spaces of web pages", "User-agent:\xa0*\nDisallow:\xa0/\n".encode(), False),
    ("no colon", b"User-agent: *\nDisallow /\n", False),
    ("typos", b"User agent: *\nDissallow: /\n", False),
    ("comments", b"User-agent: * # all\nDisallow: / # all\n", False),
    ("commented out", b"User-agent: *\n#Disallow: /\n", True),
    ("another folder", b"User-agent: *\nDisallow: /private/\n", True),
]  # fmt: skip


@pytest.mark.parametrize(("content", "fetched"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_rules_are_obeyed_whatever_their_bytes(content: bytes, fetched: bool) -> None:
    robots = Robots(as_text(content, "replace"), "diptych-mine")
    assert robots.allows("http://a.test/k.jpg") is fetched


def test_paths_are_matched_in_all_their_spellings() -> None:
    for path in ("/caf%C3%A9/", "/caf\u00e9/", "/caf%c3%a9/"):
        for encoding in ("utf-8-sig", "utf-16", "utf-16-be"):
            robots = Robots(as_text(f"User-agent: *\nDisallow: {path}".encode(encoding), "replace"), "diptych-mine")
            assert not robots.allows("http://a.test/caf%C3%A9/k.jpg"), (path, encoding)
            assert robots.allows("http://a.test/k.jpg")
    query = Robots("User-agent: *\nDisallow: /*?\n", "diptych-mine")
    assert [query.allows(f"http://a.test/k{end}") for end in ("", "?w=1")] == [True, False]
    folder = Robots("User-agent: *\nDisallow: /上\n", "diptych-mine")
    assert not folder.allows("http://a.test/%E4%B8%8A/k.jpg")


def test_our_own_token_is_cut_too_and_a_delay_is_of_our_group() -> None:
    for agent in ("diptych-mine/0.1 (+x)", "Diptych-Mine"):
        assert not Robots(MINE, agent).allows("http://a.test/k")
    text = "User-agent: *\nCrawl-delay: 9\n\nUser-agent: x\nDisallow: /\n\nUser-agent: diptych-mine/2\nCrawl-delay: 3\n"
    assert Robots(MARK + text, "diptych-mine").delay == 3
    assert Robots(MARK + text, "other").delay == 9
    assert Robots("User-agent:\nDisallow: /\n\nUser-agent: 7\nDisallow: /\n", "7").allows("http://a.test/k")


def test_many_agents_of_one_group_cost_little() -> None:
    text = "".join(f"User-agent: {name}\n" * 9000 for name in ("*", "diptych-mine")) + "Disallow: /k\n" * 20_000
    begun = time.process_time()
    assert not Robots(text, "diptych-mine").allows("http://a.test/k")
    assert time.process_time() - begun < 5


def test_what_a_host_sends_with_a_mark_is_obeyed(tmp_path: Path) -> None:
    for number, body in enumerate(((MARK + ALL).encode(), ALL.encode("utf-16"), ALL.encode("utf-16-be"))):
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        web = Web({"/robots.txt": answer, "/k": PICTURE})
        (tmp_path / str(number)).mkdir()
        assert [found.reason for found in web.fetch(tmp_path / str(number), "/k")] == ["robots"]
        assert [path for _, path, _ in web.asked] == ["/robots.txt"]


def test_a_saved_text_with_a_mark_is_obeyed(tmp_path: Path) -> None:
    """As an earlier version saved it: with the mark, and UTF-16 with replaced bytes."""
    cache = RobotsCache(tmp_path, 24.0, "diptych-mine")
    for text in (MARK + ALL, ALL.encode("utf-16").decode("utf-8", "replace")):
        cache.put("http://a.test", ALL)
        (path,) = tmp_path.glob("*.json")
        path.write_text(json.dumps({"origin": "http://a.test", "at": time.time(), "text": text, "optouts": []}))
        robots = cache.get("http://a.test")
        assert robots is not None
        assert not robots.allows("http://a.test/k")


def page_of(text: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text.encode()), text.encode())


ROBOTS, TDM, AI = "/robots.txt", "/.well-known/tdmrep.json", "/ai.txt"
SIGNAL = "User-agent: *\n{}\nAllow: /\n".format
# the path of the file, its text, whether /k.jpg and /open/k.jpg may be mined
OPT_OUTS: list[tuple[str, str, bool, bool]] = [
    (ROBOTS, SIGNAL("Content-Signal: search=yes, ai-train=no"), False, False),
    (ROBOTS, SIGNAL("content-signal: AI-Train = No"), False, False),
    (ROBOTS, SIGNAL("Content-Signal: search=no, ai-train=yes"), True, True),
    (ROBOTS, SIGNAL("Content-Signal: ai-input=no"), True, True),
    (ROBOTS, "User-agent: other\nContent-Signal: ai-train=no\n", True, True),
    (ROBOTS, "User-agent: diptych-mine\nContent-Signal: ai-train=no\n\nUser-agent: *\nAllow: /\n", False, False),
    (ROBOTS, SIGNAL("Content-Usage: train-ai=n"), False, False),
    (ROBOTS, SIGNAL("Content-Usage: search=y, train-ai=n"), False, False),
    (ROBOTS, SIGNAL("Content-Usage: train-ai=n\nContent-Usage: /open/ train-ai=y"), False, True),
    (ROBOTS, SIGNAL("Content-Usage: /open train-ai=n"), True, False),
    (ROBOTS, SIGNAL("Content-Usage: train-ai=y"), True, True),
    (TDM, '[{"location": "/", "tdm-reservation": 1}]', False, False),
    (TDM, '[{"location": "/*.jpg$", "tdm-reservation": "1"}, {"location": "/open/*.jpg$", "tdm-reservation": 0}]',
     False, True),
    (TDM, '[{"location": "/open/", "tdm-reservation": 1, "tdm-policy": "https://a.test/p"}]', True, False),
    (TDM, '[{"location": "/", "tdm-reservation": 0}]', True, True),
    (TDM, '{"tdm-reservation": 1}', True, True),
    (TDM, "<html>not here</html>", True, True),
    (AI, "# Spawning AI\nUser-Agent: *\nDisallow: *.jpg\n", False, False),
    (AI, "User-Agent: *\nDisallow: /\nAllow: /open/\n", False, True),
    (AI, "User-Agent: other\nDisallow: /\n", True, True),
    (AI, "<html>Disallow: /</html>", True, True),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text", "first", "second"), OPT_OUTS)
def test_a_site_that_opts_out_is_not_mined(path: str, text: str, first: bool, second: bool, tmp_path: Path) -> None:
    web = Web({path: page_of(text), "/k.jpg": PICTURE, "/open/k.jpg": PICTURE})
    reasons = [one.reason for one in web.fetch(tmp_path, "/k.jpg", "/open/k.jpg")]
    assert reasons == ["" if kept else "opt-out" for kept in (first, second)]
    assert [one for _, one, _ in web.opt_outs] == [TDM, AI], "once for a host"
    again = [one.reason for one in web.fetch(tmp_path, "/k.jpg")]
    assert (again, len(web.opt_outs)) == (reasons[:1], 2), "they are cached with the robots.txt"


def test_opt_outs_that_cannot_be_read_forbid_like_a_robots_txt(tmp_path: Path) -> None:
    web = Web({TDM: b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "/k.jpg": PICTURE})
    assert [one.reason for one in web.fetch(tmp_path, "/k.jpg")] == ["robots unreachable"]


def test_a_header_with_content_usage_opts_out(tmp_path: Path) -> None:
    answer = PICTURE.replace(b"\r\n", b"\r\nContent-Usage: train-ai=n\r\n", 1)
    assert [one.reason for one in Web({"/k.jpg": answer}).fetch(tmp_path, "/k.jpg")] == ["opt-out"]
