"""Mining web pages for images with texts, as ImageBERT collected LAIT (arXiv:2001.07966, section 3; never released).

    inputs -> pages -> texts -> fetch -> decode -> score -> keep -> records, decisions, funnel

The paper states one threshold: both sides larger than 300 pixels. All other rules and thresholds are ours. They are
marked as ours in `rules.py` and docs/fidelity.md, and can be switched off.
"""
