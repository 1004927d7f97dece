"""The detectors of the published features, in torch: bottom-up attention and Detectron's ResNeXt-101."""
