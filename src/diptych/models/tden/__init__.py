"""TDEN (arXiv 2101.11562): two encoders, then a cross-modal encoder and decoder; checkpoints of xmodaler."""
