"""Pure functions of predictions and truths: no model, no GPU, no Java except where METEOR or SPICE is asked for.

Scores are fractions, as the reference programs give them: 0 to 1, CIDEr 0 to 10. Papers print them times 100.
"""

from diptych.metrics.bleu import bleu_counts, bleu_scores
from diptych.metrics.bootstrap import Interval, bootstrap_interval, paired_interval, ratio, rows_by_picture
from diptych.metrics.captions import CaptionItems, caption_items, caption_scores
from diptych.metrics.cider import CiderD, DocumentFrequencies, cider_scores
from diptych.metrics.hallucination import Hallucinations, hallucinations, repeated_ngrams
from diptych.metrics.java import JAVA_METRICS, unavailable
from diptych.metrics.results import Results, read_answer_results, read_caption_results, read_references
from diptych.metrics.retrieval import Ranks, recalls, retrieval_ranks
from diptych.metrics.rouge import rouge_l
from diptych.metrics.tokenise import tokens_of
from diptych.metrics.vqa import answer_accuracy, normalise_answer, soft_targets, vqa_scores

__all__ = [
    "JAVA_METRICS",
    "CaptionItems",
    "CiderD",
    "DocumentFrequencies",
    "Hallucinations",
    "Interval",
    "Ranks",
    "Results",
    "answer_accuracy",
    "bleu_counts",
    "bleu_scores",
    "bootstrap_interval",
    "caption_items",
    "caption_scores",
    "cider_scores",
    "hallucinations",
    "normalise_answer",
    "paired_interval",
    "ratio",
    "read_answer_results",
    "read_caption_results",
    "read_references",
    "recalls",
    "repeated_ngrams",
    "retrieval_ranks",
    "rouge_l",
    "rows_by_picture",
    "soft_targets",
    "tokens_of",
    "unavailable",
    "vqa_scores",
]
