# ruff: noqa: E501  # a table
"""The mining rules, in the order of their stages.

An image is counted as dropped by the first rule that it breaks. `paper` quotes ImageBERT, section 3. Thresholds and
methods are ours even where a rule has a quote, except the 300 pixels.
"""

from dataclasses import dataclass

VERSION = "7"  # version of the rules; if it changes, all shards are made again


@dataclass(frozen=True)
class Rule:
    """A reason to drop an image, or one of its texts.

    `what`: the condition as reports show it; "this" is the threshold in the run's settings.
    """

    name: str
    what: str
    paper: str = "«ours»"


RULES = (
    Rule("opt_out", "the page opts out of mining, by robots meta tags, X-Robots-Tag or TDM-Reservation"),
    Rule("language", "English is less probable than this in the first 200 and the first 1,000 characters (than 0.1 if the page declares English, than 0.98 if it declares another language), or the page has little text and does not declare English",
         "discard all non-English ones; how is «ours»"),
    Rule("address", "no usable URL: data:, javascript:, over 2,000 characters, or without a host"),
    Rule("dominant", "does not lead the page's other images by this much",
         "detect dominant images by HTML tags and DOM tree features; which is «ours»"),
    Rule("no_text", "each of its texts breaks a rule"),
    Rule("refused", "its host, URL or hash is on a list given to --refuse, or was given to `diptych mine forget`"),
    Rule("fetch", "could not be fetched; `reason` gives the cause"),
    Rule("unreadable", "not an image by its content, or damaged"),
    Rule("small_file", "fewer bytes than this"),
    Rule("large_file", "more bytes than this"),
    Rule("pixels", "more pixels than this, according to the file's header; it is not decoded"),
    Rule("sides", "a side of this many pixels or fewer", "only keep images whose width and height are both larger than 300 pixels"),
    Rule("ratio", "the longer side is more than this many times the shorter"),
    Rule("one_colour", "all of one colour"),
    Rule("animation", "more than one frame (if this rule is off, the first frame is used)"),
    Rule("realism", "the score of the realism judge is below this",
         "a binary classifier to discard unnatural, non-realistic and non-learn-able images; which is «ours»"),
    Rule("nsfw", "the score of the NSFW judge is below this (1 is safe)",
         "pornographic or racy content are also discarded; by what is «ours»"),
    Rule("licence", "its licence is not of the kind given to --license"),
    Rule("exclude", "it is in a val or test split that was given to --exclude"),
    Rule("kinds", "each of its texts is of a kind that --texts leaves out (by default `near`, unless there is a scorer)"),
    Rule("score", "the scorer finds none of its texts relevant",
         "a weak image-text semantic model to predict whether the pair is relevant; features and threshold are «ours»"),
    Rule("common_text", "each of its texts belongs to more images than this",
         "If too many images have the same description, we will directly drop all these pairs; how many is «ours»"),
    Rule("top", "this share of the images has better scores"),
    Rule("host_pairs", "its host already has this many pairs"),
    Rule("best_pair", "the same image has a better pair on this or another page",
         "only select the best scored pair; what makes two images the same is «ours»"),
)  # fmt: skip

TEXT_RULES = (
    Rule("file_name", "a file's name"),
    Rule("boilerplate", "only credits, a share bar, a byline, a date, a copyright line, 'image may contain ...' or 'click to enlarge'"),
    Rule("short", "fewer words than this", "sentences within a normal length; both ends are «ours»"),
    Rule("long", "more words than this", "sentences within a normal length; both ends are «ours»"),
    Rule("bad_words", "it contains a word from the list of bad words", "noisy words (spam/pornography); the list is «ours»"),
    Rule("spam", "this many marks of spam or more", "noisy words (spam/pornography); the marks are «ours»"),
    Rule("repeats", "the share of distinct words is below this"),
    Rule("letters", "the share of letters among its characters is below this"),
    Rule("vocabulary", "the share of words that are not in the vocabulary is above this",
         "discard sentences that have high ratio of out-of-vocabulary terms; vocabulary and ratio are «ours»"),
    Rule("text_language", "English is less probable than this (only for texts of 8 words or more)"),
)  # fmt: skip

ORDER = {rule.name: number for number, rule in enumerate((*RULES, *TEXT_RULES))}
KINDS = ("figcaption", "alt", "title", "caption", "near")  # of texts; best first, to order pairs with equal scores
