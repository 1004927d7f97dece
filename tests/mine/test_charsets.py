"""Pages are decoded as browsers decode them: the web's labels, marks first, each error by itself."""

import pytest

from diptych_mine.pages.charsets import codec_of, decoded

# All labels of encoding.spec.whatwg.org, by the codec that reads them.
LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e "
    "iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
    "iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8 "
    "iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical",
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "cp1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
    "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 "
    "windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk gb18030",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 "
    "windows-949",
    "replacement": "csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr replacement",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
}
WORDS = "the fisherman’s boat rests on the sand – at low tide"


@pytest.mark.parametrize("codec", LABELS)
def test_labels_mean_what_they_mean_on_the_web(codec: str) -> None:
    assert {label: codec_of(f" {label.upper()}\n") for label in LABELS[codec].split()} == dict.fromkeys(
        LABELS[codec].split(), codec
    )


@pytest.mark.parametrize("label", ["utf-7", "utf-32", "cp037", "idna", "zip", "unicode_escape", "", "a\0b", "é" * 99])
def test_other_labels_are_passed_over(label: str) -> None:
    assert codec_of(label) == ""
    assert decoded(f'<meta charset="koi8-r">{WORDS[:3]}'.encode(), label).endswith("the")


@pytest.mark.parametrize(
    ("head", "header", "codec"),
    [
        ('<meta charset="iso-8859-1">', None, "cp1252"),
        ("", "iso-8859-1", "cp1252"),
        ("<meta charset=US-ASCII>", None, "cp1252"),
        ("<META HTTP-EQUIV=Content-Type CONTENT='text/html; charset=latin1'>", None, "cp1252"),
        ('<meta content="text/html;charset=windows-1252;" http-equiv="content-type">', None, "cp1252"),
        ('<!-- <meta charset="koi8-r"> --><meta charset="utf-8">', None, "utf-8"),
        ('<meta name="description" content="charset=koi8-r"><meta charset=iso-8859-1>', None, "cp1252"),
        ('<meta charset="no-such"><meta charset="latin1">', None, "cp1252"),
        ('<meta charset="koi8-r">', "utf-8", "utf-8"),  # the header is first
        ('<meta charset="latin1">', "no-such", "cp1252"),
        ('<meta name="a" content="b > c" charset="latin1">', None, "cp1252"),
        ('<meta charset="utf-16">', None, "utf-8"),
        ('<meta charset="x-user-defined">', None, "cp1252"),
        ('<?xml version="1.0" encoding="windows-1252"?>', None, "cp1252"),
        ("", "utf-16le", "utf-16-le"),
        ("", "UTF-16", "utf-16-le"),
        ("", None, "utf-8"),
        ("", None, "cp1252"),
        (f"<!--{'x' * 2500}--><meta charset=macintosh>", None, "mac-roman"),
    ],
)
def test_a_page_is_read_by_header_and_meta(head: str, header: str | None, codec: str) -> None:
    assert decoded(f"{head}<p>{WORDS}".encode(codec), header) == f"{head}<p>{WORDS}"


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16-le", "utf-16-be"])
def test_a_mark_counts_before_all(mark: str) -> None:
    page = f'<meta charset="koi8-r"><p>{WORDS}'
    assert decoded(f"{'' if mark == 'utf-8-sig' else chr(0xFEFF)}{page}".encode(mark), "iso-8859-1") == page
    assert decoded((chr(0xFEFF) + page).encode("utf-8") + b"\xff", "koi8-r") == page + "\ufffd"


@pytest.mark.parametrize("charset", [None, "utf-8"])
def test_one_error_is_one_replaced_letter(charset: str | None) -> None:
    page = WORDS.encode()
    assert decoded(page + b" caf\xe9 " + page, charset) == f"{WORDS} caf\ufffd {WORDS}"
    for cut in range(1, 3):  # crawls cut at 1 MB
        assert decoded(page + "’".encode()[:cut], charset) == WORDS + "\ufffd"
    assert decoded(b"low tide \xe2\x80", charset) == "low tide \ufffd"


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("gb2312", "海滩上的風筝"),
        ("shift_jis", "①番の凧"),
        ("euc-kr", "펲"),
        ("big5", "沙灘"),
        ("iso-8859-9", "ığ–"),
    ],
)
def test_encodings_are_read_by_the_larger_one(label: str, words: str) -> None:
    assert decoded(words.encode(codec_of(label)) + b" \xff.", label).startswith(words)
    assert decoded(b"\x1b$)C kite", "iso-2022-kr") == "\ufffd"
