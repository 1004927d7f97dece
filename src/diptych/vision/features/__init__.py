"""Readers of region features in the file formats of other projects.

Each format has a module; `files` has the table of formats.

`files.open_features` recognises the format from the content, and finds the regions of an image by its name.
`diptych.vision.detectors.given` converts the data that was read to `Regions`. Files are read in place, one image at a
time.
"""
