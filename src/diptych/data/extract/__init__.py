"""Extraction: the regions of every image, found by a detector and written to a store."""
