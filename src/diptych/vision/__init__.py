"""From a picture to its regions: detectors, grids, features of others, region selection."""
