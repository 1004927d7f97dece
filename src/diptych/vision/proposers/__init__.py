"""Detectors that find boxes and name what is in them; their features come from a backbone (`diptych.vision.pooled`)."""
