"""Decoding: greedy search, beam search and sampling."""

from diptych.models.decoding.options import DecodingOptions
from diptych.models.decoding.search import Frames, Hypothesis, decode, search

__all__ = ["DecodingOptions", "Frames", "Hypothesis", "decode", "search"]
