"""Unified VLP (arXiv 1909.11059): one encoder that reads and writes; checkpoints of its authors."""
