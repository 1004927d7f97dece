# ruff: noqa: E501  # a table
"""The mining rules, in the order of their stages.

An image is counted as dropped by the first rule that it breaks. `paper` quotes ImageBERT, section 3. Thresholds and
methods are ours even where a rule has a quote, except the 300 pixels.
"""

from dataclasses import dataclass

VERSION = "5"  # version of the rules; if it changes, all shards are made again


@dataclass(frozen=True)
class Rule:
    """A reason to drop an image, or one of its texts. `what`: the condition as reports show it."""

    name: str
    what: str
    paper: str = "«ours»"


RULES = (
    Rule("opt_out", "the page asks not to be used: robots meta or X-Robots-Tag, TDM-Reservation"),
    Rule("language", "not declared English, or English less probable than this on the first 200 and the first 1,000 characters (0.1 is enough where it is declared)",
         "discard all non-English ones; how is «ours»"),
    Rule("address", "no usable URL: data:, javascript:, over 2,000 characters, or without a host"),
    Rule("dominant", "does not lead the page's other images by this much",
         "detect dominant images by HTML tags and DOM tree features; which is «ours»"),
    Rule("no_text", "none of its texts is left"),
    Rule("refused", "its host, URL or hash is on a list given to --refuse, or was given to `diptych mine forget`"),
    Rule("fetch", "could not be fetched; `reason` gives the cause"),
    Rule("unreadable", "not an image by its content, or damaged"),
    Rule("small_file", "fewer bytes than this"),
    Rule("large_file", "more bytes than this"),
    Rule("pixels", "more pixels than this by its header; never decoded"),
    Rule("sides", "a side of this many pixels or fewer", "only keep images whose width and height are both larger than 300 pixels"),
    Rule("ratio", "the longer side is more than this many times the shorter"),
    Rule("one_colour", "all of one colour"),
    Rule("animation", "more than one frame (off: the first frame is taken)"),
    Rule("realism", "the realism judge gives less than this",
         "a binary classifier to discard unnatural, non-realistic and non-learn-able images; which is «ours»"),
    Rule("nsfw", "the NSFW judge gives less than this (1 is safe)",
         "pornographic or racy content are also discarded; by what is «ours»"),
    Rule("licence", "no licence of the kind given to --license"),
    Rule("exclude", "it is in a val or test split that was given to --exclude"),
    Rule("kinds", "each of its texts is of a kind that --texts leaves out (by default `near`, unless there is a scorer)"),
    Rule("score", "the scorer finds none of its texts relevant",
         "a weak image-text semantic model to predict whether the pair is relevant; features and threshold are «ours»"),
    Rule("common_text", "each of its texts belongs to more images than this",
         "If too many images have the same description, we will directly drop all these pairs; how many is «ours»"),
    Rule("host_pairs", "its host already has this many pairs"),
    Rule("best_pair", "the same image has a better pair on this or another page",
         "only select the best scored pair; what makes two images the same is «ours»"),
)  # fmt: skip

TEXT_RULES = (
    Rule("file_name", "a file's name"),
    Rule("boilerplate", "credits alone, share bars, bylines, dates, copyright lines, what an image may contain, how to enlarge it"),
    Rule("short", "fewer words than this", "sentences within a normal length; both ends are «ours»"),
    Rule("long", "more words than this", "sentences within a normal length; both ends are «ours»"),
    Rule("bad_words", "contains a word of the list of bad words", "noisy words (spam/pornography); the list is «ours»"),
    Rule("spam", "this many marks of spam or more", "noisy words (spam/pornography); the marks are «ours»"),
    Rule("repeats", "a smaller share of its words are different words"),
    Rule("letters", "a smaller share of its characters are letters"),
    Rule("vocabulary", "a larger share of its words is not in the vocabulary",
         "discard sentences that have high ratio of out-of-vocabulary terms; vocabulary and ratio are «ours»"),
    Rule("text_language", "English less probable than this, for texts of 8 words or more"),
)  # fmt: skip

ORDER = {rule.name: number for number, rule in enumerate((*RULES, *TEXT_RULES))}
