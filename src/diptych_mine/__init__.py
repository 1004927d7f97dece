"""Collect images with texts from web pages, as ImageBERT did for LAIT (arXiv:2001.07966, section 3; not released).

    inputs -> pages -> texts -> fetch -> decode -> score -> keep -> records, decisions, funnel

A run (`diptych mine run`) works through these stages. Each stage writes its tables in shards, which are the unit of
work and of resuming. The paper states one threshold: both sides of an image have more than 300 pixels. All other rules
and thresholds are ours. `rules.py` and docs/fidelity.md mark them as ours, and each can be switched off.
"""
