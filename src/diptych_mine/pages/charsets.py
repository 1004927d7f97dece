"""Decode pages by the rules of the web (encoding.spec.whatwg.org), with Python's codecs.

The HTML parser, selectolax, reads any bytes as UTF-8. Python's names of encodings differ from the web's names, which
the package webencodings knows: on the web, iso-8859-1 means Windows-1252.
"""

import re

from diptych.runtime.extras import requires_extra
from diptych.runtime.files import encoding_of

HEAD = 4_096  # the name of the encoding is searched in this many first bytes of a page
_MARKED = ("utf-8-sig", "utf-16", "utf-32")  # codecs that remove a byte order mark
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.S)
_META = re.compile(rb"""<meta[\s/](?:[^>"']++|"[^"]*+"|'[^']*+')*+>""", re.I)
_ATTRIBUTE = re.compile(rb"""([^\s"'>/=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"']++)))?""")
_CONTENT = re.compile(rb"""charset\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s;"']++))""", re.I)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.I)
_XML = re.compile(rb"""\s*+<\?xml[^>]{0,200}?\sencoding\s*+=\s*+["']([^"'>]{1,40})""")
_UTF8 = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")  # start of a multi-byte UTF-8 sequence, which is rare in other encodings
# Encodings whose pages the web's rules read by another codec than their own.
_READ_BY = {"gbk": "gb18030", "x-user-defined": "cp1252"}


def content_type(header: str) -> tuple[str, str | None]:
    """Return the media type and the charset (or None) of a header `Content-Type`."""
    media, _, more = header.partition(";")
    charset = _CHARSET.search(more)
    return media.strip().lower(), charset[1] if charset else None


def codec_of(label: str) -> str:
    """Return Python's codec for a label such as "latin1"; empty for a label that the web's rules do not know."""
    with requires_extra("diptych mine", "mine"):
        from webencodings import lookup
    known = lookup(label)
    return "" if known is None else _READ_BY.get(known.name, known.codec_info.name)


def decoded(body: bytes, charset: str | None) -> str:
    """Decode a page by its byte order mark, else by the header's `charset`, else by the encoding that the page names.

    The default is UTF-8. Invalid bytes are replaced one by one. A page that is not valid UTF-8, and has no multi-byte
    UTF-8 sequence, is read as Windows-1252. Never raises an error.
    """
    if (name := encoding_of(body)) not in _MARKED:
        name = codec_of(charset or "") or _named(body[:HEAD]) or "utf-8"
    if name == "replacement":
        return "\ufffd"
    try:
        text = body.decode(name)
    except UnicodeError:
        name = "cp1252" if name == "utf-8" and not _UTF8.search(body) else name
        text = body.decode(name, "replace")
    return text.replace("\0", " ")


def _named(head: bytes) -> str:
    """Return the codec that a page names in its XML declaration or a <meta>; empty if the page names no codec."""
    labels = [match[1]] if (match := _XML.match(head)) else []
    for tag in _META.finditer(_COMMENT.sub(b" ", head)):
        attributes: dict[bytes, bytes] = {}
        for name, *values in _ATTRIBUTE.findall(tag[0], 5):
            attributes.setdefault(name.lower(), b"".join(values))
        if b"charset" in attributes:
            labels.append(attributes[b"charset"])
        elif attributes.get(b"http-equiv", b"").lower() == b"content-type":
            labels += [b"".join(one) for one in _CONTENT.findall(attributes.get(b"content", b""))[:1]]
    for label in labels:
        if name := codec_of(label.decode("ascii", "replace")):
            return "utf-8" if name.startswith("utf-16") else name  # a page with an ASCII label is not UTF-16
    return ""
