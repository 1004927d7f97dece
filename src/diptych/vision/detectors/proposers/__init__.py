"""Detectors that find boxes and name what is in them; a backbone makes the features (`detectors.pooled`)."""
