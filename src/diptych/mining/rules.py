# ruff: noqa: E501  # a table
"""The rules: their names, in the order in which the first that drops a picture is told, and where each is from.

`paper` quotes ImageBERT's section 3; a number or a mechanism beside it is ours all the same, but for the 300 pixels.
"""

from dataclasses import dataclass
from typing import Literal

VERSION = "2"  # of what rules do; a change of it makes every shard anew

Of = Literal["page", "picture", "text", "pair"]


@dataclass(frozen=True)
class Rule:
    name: str
    of: Of
    stage: str
    what: str
    paper: str = "«ours»"


RULES = (
    Rule("opt_out", "page", "pages", "the page asks not to be used: robots meta or X-Robots-Tag, TDM-Reservation"),
    Rule("language", "page", "pages", "not declared English, or English less probable than this on the first 200 characters",
         "discard all non-English ones; how is «ours»"),
    Rule("address", "picture", "pages", "no usable address: data:, javascript:, over 2,000 letters, no host"),
    Rule("dominant", "picture", "pages", "does not lead the page's other pictures by this much",
         "detect dominant images by HTML tags and DOM tree features; which is «ours»"),
    Rule("no_text", "picture", "texts", "none of its texts is left"),
    Rule("refused", "picture", "fetch", "its host or address, or its own hash, is on a list of what is not wanted"),
    Rule("fetch", "picture", "fetch", "it could not be had; `reason` says why"),
    Rule("unreadable", "picture", "decode", "not a picture by its content, or damaged"),
    Rule("small_file", "picture", "decode", "fewer bytes than this"),
    Rule("large_file", "picture", "decode", "more bytes than this"),
    Rule("pixels", "picture", "decode", "more pixels than this; told by its header, never decoded"),
    Rule("sides", "picture", "decode", "a side of this many pixels or fewer",
         "only keep images whose width and height are both larger than 300 pixels"),
    Rule("ratio", "picture", "decode", "the longer side is more than this many times the shorter"),
    Rule("one_colour", "picture", "decode", "all of one colour"),
    Rule("animation", "picture", "decode", "more than one frame (off: the first frame is taken)"),
    Rule("realism", "picture", "decode", "the realism judge gives less than this",
         "a binary classifier to discard unnatural, non-realistic and non-learn-able images; which is «ours»"),
    Rule("nsfw", "picture", "decode", "the NSFW judge gives less than this (1 is safe)",
         "pornographic or racy content are also discarded; by what is «ours»"),
    Rule("licence", "picture", "keep", "no licence of the kind that was asked for"),
    Rule("exclude", "picture", "keep", "a val or test split has it"),
    Rule("score", "picture", "score", "no text that the scorer finds relevant",
         "a weak image-text semantic model to predict whether the pair is relevant; features and threshold are «ours»"),
    Rule("common_text", "picture", "keep", "all its texts are said of more pictures than this",
         "If too many images have the same description, we will directly drop all these pairs; how many is «ours»"),
    Rule("host_pairs", "picture", "keep", "its host has its share already"),
    Rule("best_pair", "picture", "keep", "the same picture has a better pair on this or another page",
         "only select the best scored pair; what makes two pictures one is «ours»"),
)  # fmt: skip

TEXT_RULES = (
    Rule("file_name", "text", "texts", "a file's name"),
    Rule("short", "text", "texts", "fewer words than this", "sentences within a normal length; both ends are «ours»"),
    Rule("long", "text", "texts", "more words than this", "sentences within a normal length; both ends are «ours»"),
    Rule("bad_words", "text", "texts", "holds a word of the list", "noisy words (spam/pornography); the list is «ours»"),
    Rule("spam", "text", "texts", "so many marks of spam", "noisy words (spam/pornography); the marks are «ours»"),
    Rule("repeats", "text", "texts", "a smaller share of its words differ"),
    Rule("letters", "text", "texts", "a smaller share of its characters are letters"),
    Rule("vocabulary", "text", "texts", "a greater share of its words is outside of the vocabulary",
         "discard sentences that have high ratio of out-of-vocabulary terms; vocabulary and ratio are «ours»"),
    Rule("text_language", "text", "texts", "English less probable than this, of texts of 8 words or more"),
)  # fmt: skip

ORDER = {rule.name: number for number, rule in enumerate((*RULES, *TEXT_RULES))}


def first(fails: list[str]) -> str | None:
    """The first rule that dropped it, in the order of the stages."""
    return min(fails, key=ORDER.__getitem__) if fails else None
