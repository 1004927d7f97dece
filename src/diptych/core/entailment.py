"""Constants of visual entailment (SNLI-VE): the key of its sentences in `Record.more`, and its three classes."""

ENTAILMENT = "entailment"
LABELS = ("entailment", "neutral", "contradiction")
