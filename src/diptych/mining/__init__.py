"""From web pages to records: the collection of ImageBERT (arXiv:2001.07966, section 3), which was never released.

    inputs -> pages -> texts -> fetch -> decode -> score -> keep -> records, decisions, funnel

The paper has one hard number: both sides larger than 300 pixels. Every other rule and threshold is ours, named so in
`rules.py` and docs/fidelity.md, and has a switch.
"""
