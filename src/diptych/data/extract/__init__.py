"""Detect the regions of every image and write them to a store."""
