"""Split captions into Penn Treebank tokens, as metrics of captions have done since COCO.

The code `coco-caption` runs Stanford's PTBTokenizer in Java, converts to lower case, and drops fifteen punctuation
tokens. Scores in papers depend on this: `isn't` is two words, `t-shirt` is one, and a bracket is the word `-lrb-`. This
lexer was written to produce the same output, without reading the Java source. It differs for scripts without spaces:
here each character is a token, in Java a whole sentence is. Each pattern below describes a kind of token; at each
position the longest match is used. tests/library/metrics/test_tokenise.py compares both on thousands of sentences, and
lists known differences.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from unicodedata import category, normalize

from diptych.core.vocabulary import UNSEEN, with_final_sigma

Tokens = Sequence[str]
Ngram = tuple[str, ...]
Patterns = tuple[re.Pattern[str], ...]
ORDERS = (1, 2, 3, 4)  # BLEU and CIDEr count n-grams of one to four words

# Tokens that coco-caption drops. Its list also has -LRB-, but tokens are in lower case, so brackets are kept.
PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"])

# Characters of scripts without spaces: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
UNSPACED = re.compile(f"[{_UNSPACED}]")
# Marks that continue a letter, such as the vowel signs of Hindi and Arabic; `\w` does not match them.
_BLOCKS = (range(0x300, 0x2100), range(0xA600, 0xAC00), range(0xFB00, 0xFE30), range(0x11000, 0x12000))
_MARKS = "".join(chr(code) for block in _BLOCKS for code in block if category(chr(code)).startswith("M"))
_MARK = re.compile(f"(?![{_UNSPACED}])[{_MARKS}]")
_M = f"(?:{_MARK.pattern})*"
_L = rf"(?:[^\W\d_¹²³¼½¾⅓⅔{_UNSPACED}]{_M})"  # a letter of a script with spaces, and its marks
_W = rf"(?:[^\W_¹²³¼½¾⅓⅔{_UNSPACED}]{_M})"  # a letter or digit, and its marks
_A = r"['’`]"  # an apostrophe, straight or curly
_NOT_SUFFIX = r"(?!(?:s|m|d|ll|re|ve)\b)"
_ALWAYS_SHORT = (  # abbreviations that keep their full stop
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri mr mrs ms messrs mlle mme msgr dr "
    "drs prof profs gen col comdr cmdr capt cpl lt lieut sgt maj adm rev hon pres rep reps sen sens gov insp det supt "
    "supts treas atty attys brig pvt pfc ens esq jr sr bros inc co cos corp ltd plc pty assn assoc asst dept bldg bhd "
    "intl mfg natl univ sys etc est ext al cf vs ph tel sq st ste ave blvd rd ft mt mont ala ariz calif colo conn ct "
    "dak fla ga ind kan kans ky md mich minn mo neb nev okla penn tenn va vt wis wisc wyo elec adj adv arr"
)
_SHORT_AS_NAMES = "Ark Az Del Ill La Mass Miss Ore Pa Tex Wash"  # only if capitalised: `miss.` ends a sentence
# Abbreviations only before a number: `no. 5`, but not `she answered no.`
_SHORT_BEFORE_NUMBER = "no nos fig figs art pp ca op prop"


def _any(words: str) -> str:
    return "|".join(words.split())


# Each pattern matches one kind of token, and the longest match wins. The length includes what a group matches in a
# look-ahead: `did` (before `n't`) has the length of `didn't`, so it wins over `didn`.
_KINDS = (
    rf"{_L}{_W}*(?:[.!?]{_L}{_W}*)*",  # words, also two words joined by a full stop: `street.the`
    rf"{_W}+(?:[-_‐‑]{_W}+)*(?:/{_W}+(?:[-_‐‑]{_W}+)*)*",  # t-shirt, and/or, 5pm, 1/2, foo_bar
    rf"{_W}(?:{_W}|[.,])*(?:[-‐‑](?:(?:{_L}\.){{2,}}|{_W}+))+",
    rf"{_L}(?:\.{_L})*\.",  # u.s.
    rf"{_L}+?(?=(n{_A}[tT])(?!{_L}))|{_L}+?(?=(N{_A}T)(?!{_L}))",  # did(n't)
    rf"[nN]{_A}[tT](?!{_L})",
    rf"{_A}(?i:s|m|d|ll|re|ve)(?![A-Za-z])",
    rf"['’](?i:em|cause|till?)(?!{_L})|['’](?i:n)['’]|['’](?i:n)(?!{_W})",  # rock 'n' roll
    r"['’](?:[2-9]0[sS]|\d\d(?!\w|['’]))",  # the '90s
    # d'art, hors-d'oeuvres, O'Brien-Smith; qu'il, N'Golo
    rf"(?:{_W}+[-‐‑])*(?i:[dlo])['’]{_NOT_SUFFIX}{_L}+(?:[-‐‑]{_W}+)*",
    rf"(?i:qu)['’]{_NOT_SUFFIX}{_L}+|[A-HJ-XZn]'{_NOT_SUFFIX}{_L}{{2,}}",
    rf"(?i:[jy])['’](?={_L})",  # y' in y'all
    r"(?i:s'mores|ma'am|ne'er|e'er|o'er|cap'n|li'l|nat'l|nor'easter|ev'ry|c'est|c'mon|ol'|somethin'|dunkin')",
    rf"(?i:'tis|'twas)(?!{_L})|(?i:'tis)(?=n't)",
    rf"(?i:ph\.d|{_any(_ALWAYS_SHORT)})\.|(?:{_any(_SHORT_AS_NAMES)})\.",
    rf"(?i:{_any(_SHORT_BEFORE_NUMBER)})\.(?= ?\d|[,:;])",
    r"[+-]?(?:\d+(?:[.,:]\d+)*|(?:[.,:]\d+)+)",  # 1,000.5  12:30  -5  .22
    r"[A-Z]+(?:[+&][A-Z]+)+",  # AT&T
    r"(?:US|HK|NZ|A|C)?\$",
    rf"[@#]{_L}+|@_\w+",
    r"(?:https?://|www\.)[^\s\"<>()]*[^\s\"<>().,;:!?']|[\w.]{1,64}\.(?:com|net|org|edu)/[^\s\"<>()]*[^\s\"<>().,;:!?']",
    r"[^\W_][^\s\"<>|()@]{0,64}@[^\s\"<>|().]+(?:\.[^\s\"<>|().]+)*",  # an e-mail address
    r"</?[A-Za-z][^<>\s]*>|&#\d+;",  # an HTML tag or character code
    r"[<>]?[:;=]['*o-]?[()DPp](?!\w)",  # :-)
    r"-{5,}|-{2,4}|_+|\.\.\.|[!?]+|\*+|#+|<<|>>|``|''",
    r"\S",
)
_PATTERNS = tuple(re.compile(kind.replace(_M, "")) for kind in _KINDS)  # faster, for texts without marks
_TWO_WORDS = {
    "cannot": ("can", "not"), "gonna": ("gon", "na"), "gotta": ("got", "ta"), "wanna": ("wan", "na"),
    "lemme": ("lem", "me"), "gimme": ("gim", "me"), "'tis": ("'t", "is"), "'twas": ("'t", "was"),
}  # fmt: skip
_SPELT = str.maketrans(
    {"£": "#", "€": "$", "½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3", "¢": "cents", "…": "..."}
    | {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
    | dict.fromkeys("–—―‒", "--")
    | dict.fromkeys('"“”«»‘’‛‹›', "'")
)
_ENTITIES = {"&amp;": " & ", "&lt;": " < ", "&gt;": " > ", "&quot;": '"', "&nbsp;": " ", "&apos;": "'"}
_CHUNK = re.compile(r"[^\s\u200b-\u200d\ufeff]{1,256}")  # at most 256 characters: matching takes quadratic time
_UNSEEN = str.maketrans("", "", UNSEEN)
_MARKED = re.compile(r"[^\W\d_][\u0300-\u036f]+")
_PLAIN = re.compile(r"[a-z]+")
WORD = re.compile(rf"(?:\w{_M})+")  # a word: letters and digits with their marks


def tokens_of(sentence: str) -> tuple[str, ...]:
    """Return the tokens of a sentence in lower case, without punctuation.

    Emoji are no tokens, as in the Java lexer; but a sentence of emoji alone gives these. Without any, it gives ().

    >>> tokens_of("The dog's t-shirt isn't red (it is blue).")
    ('the', 'dog', "'s", 't-shirt', 'is', "n't", 'red', '-lrb-', 'it', 'is', 'blue', '-rrb-')
    """
    if "&" in sentence and ";" in sentence:
        sentence = re.sub("|".join(_ENTITIES), lambda match: _ENTITIES[match.group()], sentence)
    chunks = _CHUNK.findall(sentence if sentence.isascii() else _one_form(sentence))
    pairs = pairwise([*chunks, ""])
    return tuple(token for chunk, after in pairs for token in _cut(chunk, after[:1].isdigit())) or emoji_of(sentence)


def _one_form(sentence: str) -> str:
    """Return the sentence in one of its forms: NFC, as macOS writes é as two characters, and without unseen marks.

    A capital with marks may have a small letter of another form, such as the Turkish İ, so it becomes small here.
    """
    sentence = normalize("NFC", sentence.translate(_UNSEEN))
    sentence = _MARKED.sub(lambda letter: normalize("NFC", letter[0].lower()), sentence)
    return sentence.replace("İ", "i").replace("i\u0307", "i")


def emoji_of(text: str) -> tuple[str, ...]:
    """Return the characters that take two of Java's 16-bit units, such as emoji, except those of Chinese."""
    return () if text.isascii() else tuple(one for one in text if _is_emoji(one))


def _is_emoji(letter: str) -> bool:
    return ord(letter) > 0xFFFF and not UNSPACED.match(letter)


def ngrams(tokens: Tokens, order: int) -> Iterator[Ngram]:
    """Yield all n-grams of `order` words."""
    return zip(*(tokens[start:] for start in range(order)), strict=False)


@lru_cache(maxsize=1 << 16)  # captions repeat their words, so this cache answers nearly all calls
def _cut(chunk: str, before_digit: bool) -> tuple[str, ...]:
    if _PLAIN.fullmatch(chunk) and chunk not in _TWO_WORDS:
        return (chunk,)
    text = chunk + " 0" * before_digit
    patterns = _patterns_of_marks() if _MARK.search(chunk) else _PATTERNS
    tokens: list[str] = []
    place = 0
    while place < len(chunk):
        token = _longest(patterns, text, place)
        tokens.extend(_spelt(token))
        place += len(token)
    return tuple(token for token in tokens if token not in PUNCTUATION)


@lru_cache(maxsize=1)
def _patterns_of_marks() -> Patterns:
    return tuple(map(re.compile, _KINDS))


def _longest(patterns: Patterns, text: str, place: int) -> str:
    matches = (pattern.match(text, place) for pattern in patterns)
    best = max((match for match in matches if match), key=lambda match: match.end(match.lastindex or 0))
    return best.group()


def _spelt(token: str) -> Iterator[str]:
    """Yield the token as coco-caption writes it: in lower case, with names for brackets and symbols."""
    lower = with_final_sigma(token.lower())
    if lower in _TWO_WORDS:
        yield from _TWO_WORDS[lower]
    elif len(token) == 1 and _is_emoji(token):
        return  # dropped, as by the Java tokenizer with its 16-bit characters
    elif (len(token) == 1 and ord(token) in _SPELT) or re.fullmatch(r"[<>]?[:;=]['*o-]?[()]", token):
        yield token.translate(_SPELT)
    elif re.fullmatch(r"[’`](?:s|m|d|ll|re|ve)|n’t", lower):
        yield re.sub("[’`]", "'", lower)
    elif re.fullmatch(r"-{2,4}", token):
        yield "--"
    else:
        yield lower
