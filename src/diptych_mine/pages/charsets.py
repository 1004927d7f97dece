"""Decode pages by the rules of the web (encoding.spec.whatwg.org), with Python's codecs.

The HTML parser, selectolax, reads any bytes as UTF-8. Python's names of encodings differ from the web's names: on the
web, iso-8859-1 means Windows-1252.
"""

import codecs
import re
from contextlib import suppress
from functools import lru_cache

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
# Python's codec for a label -> the codec that the web uses for this label.
_READ_BY = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs", "shift_jis": "cp932", "euc_kr": "cp949",
    "utf-16": "utf-16-le",
}  # fmt: skip
_CODECS = re.compile(
    r"utf-(?:8|16-[lb]e)|cp(?:125\d|866|874|932|949)|koi8-[ru]|mac-(?:roman|cyrillic)|gb18030|big5hkscs|euc_jp|iso2022_jp"
    r"|iso8859-\d+"
)
# Label that the web's rules know, but Python does not -> Python's codec.
_LABELS = {
    label: codec
    for codec, labels in {
        "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
        "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff", "utf-16-be": "unicodefffe",
        "iso8859-6": "asmo-708 csiso88596e csiso88596i iso-8859-6-e iso-8859-6-i", "iso8859-7": "sun_eu_greek",
        "iso8859-8": "csiso88598e csiso88598i iso-8859-8-e iso-8859-8-i logical visual", "iso8859-10": "csisolatin6",
        "iso8859-15": "csisolatin9", "koi8-r": "koi koi8", "koi8-u": "koi8-ru", "cp1252": "x-user-defined",
        "cp874": "dos-874 windows-874", "mac-cyrillic": "x-mac-ukrainian", "mac-roman": "csmacintosh mac",
        "cp932": "ms932 windows-31j", "gb18030": "csgb2312 gb_2312 gb_2312-80", "big5hkscs": "cn-big5 x-x-big5",
        "cp949": "cseuckr csksc56011987 iso-ir-149 ks_c_5601-1989 ksc_5601 windows-949",
        "euc_jp": "cseucpkdfmtjapanese",
        "replacement": "csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr replacement",
    }.items()
    for label in labels.split()
}  # fmt: skip


def content_type(header: str) -> tuple[str, str | None]:
    """Return the media type and the charset (or None) of a header `Content-Type`."""
    media, _, more = header.partition(";")
    charset = _CHARSET.search(more)
    return media.strip().lower(), charset[1] if charset else None


@lru_cache(1_000)
def codec_of(label: str) -> str:
    """Return Python's codec for a label such as "latin1"; empty for a label that the web's rules do not know."""
    label = label.strip("\t\n\f\r ").lower()
    if label in _LABELS:
        return _LABELS[label]
    label = re.sub(r"^iso8859(?=\d)", "iso8859-", label)
    for name in (label, label.removeprefix("x-").replace("mac-", "mac_")):
        with suppress(LookupError, ValueError):
            codec = codecs.lookup(name).name
            if _CODECS.fullmatch(codec := _READ_BY.get(codec, codec)):
                return codec
    return ""


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
