"""Readers of region features in the file formats of other projects: one module per format, one table in `files`.

`files.open_features` recognises the format by content and finds the regions of an image by name.
`diptych.vision.detectors.given` turns them into `Regions`. Files are read in place, one image at a time.
"""
