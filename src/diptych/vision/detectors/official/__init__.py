"""The detectors that made the official features: bottom-up attention and Detectron's ResNeXt-101, in torch."""
