"""From images to regions: image files, detectors, grids, backbones, published features, region selection."""
