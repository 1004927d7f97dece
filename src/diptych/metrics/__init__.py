"""Scores as pure functions of predictions and ground truth.

They need no model and no GPU; METEOR and SPICE need Java. Scores are fractions, as in the reference implementations: 0
to 1, for CIDEr 0 to 10. Papers print them times 100.
"""
