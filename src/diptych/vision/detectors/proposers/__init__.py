"""Detectors that find and classify boxes; a backbone makes the features (`detectors.pooled`)."""
