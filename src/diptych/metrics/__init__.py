"""Scores as pure functions of predictions and ground truth: no model, no GPU, and Java only for METEOR and SPICE.

Scores are fractions, as in the reference implementations: 0 to 1, CIDEr 0 to 10. Papers print them times 100.
"""
