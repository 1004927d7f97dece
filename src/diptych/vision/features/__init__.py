"""Readers of region features in the file formats of other projects.

Each format has a module; `files` has the table of formats.

`files.open_features` recognises the format from the content, and finds the regions of an image by the image's name.
`diptych.vision.detectors.given` converts the result to `Regions`. Files are read in place, one image at a time.
"""
