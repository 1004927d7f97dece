"""Pure functions of predictions and truths: no model, no GPU, no Java except where METEOR or SPICE is asked for.

Scores are fractions, as the reference programs give them: 0 to 1, CIDEr 0 to 10. Papers print them times 100.
"""
