"""Words of a caption, as the Penn Treebank cuts them and as caption metrics have counted them since COCO.

coco-caption runs Stanford's PTBTokenizer in Java, lowers the case and drops fifteen punctuation tokens. Numbers in
papers depend on it (`isn't` is two words, `t-shirt` one, a bracket is the word `-lrb-`), so this lexer was written
against its output, without its source. Each pattern below is a kind of token; at every place the longest one wins.
tests/metrics/test_tokenise.py compares the two over thousands of sentences, and lists where they are known to differ.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

Tokens = Sequence[str]
Ngram = tuple[str, ...]
ORDERS = (1, 2, 3, 4)  # BLEU and CIDEr count n-grams up to four words

# What coco-caption drops. It also lists -LRB- and its kin, but compares them in lower case, so brackets stay.
PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"])

_L = r"[^\W\d_¹²³¼½¾⅓⅔]"  # a letter of any script
_W = r"[^\W_¹²³¼½¾⅓⅔]"  # a letter or digit
_A = r"['’`]"  # an apostrophe
_NOT_SUFFIX = r"(?!(?:s|m|d|ll|re|ve)\b)"
_ALWAYS_SHORT = (  # abbreviations that keep their full stop
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri mr mrs ms messrs mlle mme msgr dr "
    "drs prof profs gen col comdr cmdr capt cpl lt lieut sgt maj adm rev hon pres rep reps sen sens gov insp det supt "
    "supts treas atty attys brig pvt pfc ens esq jr sr bros inc co cos corp ltd plc pty assn assoc asst dept bldg bhd "
    "intl mfg natl univ sys etc est ext al cf vs ph tel sq st ste ave blvd rd ft mt mont ala ariz calif colo conn ct "
    "dak fla ga ind kan kans ky md mich minn mo neb nev okla penn tenn va vt wis wisc wyo elec adj adv arr"
)
_SHORT_AS_NAMES = "Ark Az Del Ill La Mass Miss Ore Pa Tex Wash"  # with a capital; `miss.` ends a sentence
_SHORT_BEFORE_NUMBER = "no nos fig figs art pp ca op prop"  # `no. 5`, but `I said no.`


def _any(words: str) -> str:
    return "|".join(words.split())


# A group marks a look-ahead that counts towards the length: `did` before `n't` beats `didn`.
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_L}{_W}*(?:[.!?]{_L}{_W}*)*",  # words; `street.the` after a forgotten space is one
        rf"{_W}+(?:[-_‐‑]{_W}+)*(?:/{_W}+(?:[-_‐‑]{_W}+)*)*",  # t-shirt, and/or, 5pm, 1/2, foo_bar
        rf"{_W}(?:{_W}|[.,])*(?:[-‐‑](?:(?:{_L}\.){{2,}}|{_W}+))+",
        rf"{_L}(?:\.{_L})*\.",  # u.s.
        rf"{_L}+?(?=(n{_A}[tT])(?!{_L}))|{_L}+?(?=(N{_A}T)(?!{_L}))",  # did(n't)
        rf"[nN]{_A}[tT](?!{_L})",
        rf"{_A}(?i:s|m|d|ll|re|ve)(?![A-Za-z])",
        rf"['’](?i:em|cause|till?)(?!{_L})|['’](?i:n)['’]|['’](?i:n)(?!{_W})",  # rock 'n' roll
        r"['’](?:[2-9]0[sS]|\d\d(?!\w|['’]))",  # the '90s
        rf"(?i:[dlo]|qu)['’]{_NOT_SUFFIX}{_L}+|[A-HJ-XZn]'{_NOT_SUFFIX}{_L}{{2,}}",  # d'art, O'Reilly
        rf"(?i:[jy])['’](?={_L})",  # y'all is two
        r"(?i:s'mores|ma'am|ne'er|e'er|o'er|cap'n|li'l|nat'l|nor'easter|ev'ry|c'est|c'mon|ol'|somethin'|dunkin')",
        rf"(?i:'tis|'twas)(?!{_L})|(?i:'tis)(?=n't)",
        rf"(?i:ph\.d|{_any(_ALWAYS_SHORT)})\.|(?:{_any(_SHORT_AS_NAMES)})\.",
        rf"(?i:{_any(_SHORT_BEFORE_NUMBER)})\.(?= ?\d|[,:;])",
        r"[+-]?(?:\d+(?:[.,:]\d+)*|(?:[.,:]\d+)+)",  # 1,000.5  12:30  -5  .22
        r"[A-Z]+(?:[+&][A-Z]+)+",  # AT&T
        r"(?:US|HK|NZ|A|C)?\$",
        rf"[@#]{_L}+|@_\w+",
        r"(?:https?://|www\.)[^\s\"<>()]*[^\s\"<>().,;:!?']|[\w.]{1,64}\.(?:com|net|org|edu)/[^\s\"<>()]*[^\s\"<>().,;:!?']",
        r"[^\W_][^\s\"<>|()@]{0,64}@[^\s\"<>|().]+(?:\.[^\s\"<>|().]+)*",  # an address
        r"</?[A-Za-z][^<>\s]*>|&#\d+;",  # a tag
        r"[<>]?[:;=]['*o-]?[()DPp](?!\w)",  # :-)
        r"-{5,}|-{2,4}|_+|\.\.\.|[!?]+|\*+|#+|<<|>>|``|''",
        r"\S",
    )
)
_TWO_WORDS = {
    "cannot": ("can", "not"),
    "gonna": ("gon", "na"),
    "gotta": ("got", "ta"),
    "wanna": ("wan", "na"),
    "lemme": ("lem", "me"),
    "gimme": ("gim", "me"),
    "'tis": ("'t", "is"),
    "'twas": ("'t", "was"),
}
_SPELT = str.maketrans(
    {"£": "#", "€": "$", "½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3", "¢": "cents", "…": "..."}
    | dict.fromkeys("–—―‒", "--")
    | dict.fromkeys('"“”«»‘’‛‹›', "'")
)
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_ENTITIES = {"&amp;": " & ", "&lt;": " < ", "&gt;": " > ", "&quot;": '"', "&nbsp;": " ", "&apos;": "'"}
_CHUNK = re.compile(r"[^\s\u200b\ufeff]{1,256}")  # longer is no word, and trying every pattern everywhere is quadratic
_PLAIN = re.compile(r"[a-z]+")


def tokens_of(sentence: str) -> tuple[str, ...]:
    """The words of a sentence, lower case, without punctuation; () where there are none.

    >>> tokens_of("The dog's t-shirt isn't red (it is blue).")
    ('the', 'dog', "'s", 't-shirt', 'is', "n't", 'red', '-lrb-', 'it', 'is', 'blue', '-rrb-')
    """
    if "&" in sentence and ";" in sentence:
        sentence = re.sub("|".join(_ENTITIES), lambda match: _ENTITIES[match.group()], sentence)
    chunks = _CHUNK.findall(sentence.replace("\u00ad", ""))
    following = [*chunks, ""][1:]
    return tuple(
        token for chunk, after in zip(chunks, following, strict=True) for token in _cut(chunk, after[:1].isdigit())
    )


def ngrams(tokens: Tokens, order: int) -> Iterator[Ngram]:
    return zip(*(tokens[start:] for start in range(order)), strict=False)


@lru_cache(maxsize=1 << 16)  # captions repeat their words: nearly every chunk is a hit
def _cut(chunk: str, before_digit: bool) -> tuple[str, ...]:
    if _PLAIN.fullmatch(chunk) and chunk not in _TWO_WORDS:
        return (chunk,)
    text = chunk + " 0" * before_digit
    tokens: list[str] = []
    place = 0
    while place < len(chunk):
        found = _longest(text, place)
        tokens.extend(_spelt(found))
        place += len(found)
    return tuple(token for token in tokens if token not in PUNCTUATION)


def _longest(text: str, place: int) -> str:
    matches = (pattern.match(text, place) for pattern in _PATTERNS)
    best = max((match for match in matches if match), key=lambda match: match.end(match.lastindex or 0))
    return best.group()


def _spelt(token: str) -> Iterator[str]:
    """The token as it is written out: lower case, brackets and symbols by name."""
    lower = token.lower()
    if lower in _TWO_WORDS:
        yield from _TWO_WORDS[lower]
    elif len(token) == 1 and (token in _BRACKETS or ord(token) in _SPELT):
        yield _BRACKETS.get(token) or token.translate(_SPELT)
    elif len(token) == 1 and ord(token) > 0xFFFF:
        return  # an emoji: the Java lexer knows 16 bits and deletes the rest
    elif token[0] in "’`" and re.fullmatch(r".(?:s|m|d|ll|re|ve)", lower):
        yield "'" + lower[1:]
    elif re.fullmatch(r"n’t", lower):
        yield "n't"
    elif re.fullmatch(r"-{2,4}", token):
        yield "--"
    elif re.fullmatch(r"[<>]?[:;=].?[()]", token):
        yield "".join(_BRACKETS.get(character, character) for character in token)
    else:
        yield lower
