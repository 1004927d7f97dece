"""The detectors behind the published features, in PyTorch: bottom-up attention and Detectron's ResNeXt-101."""
