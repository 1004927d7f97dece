"""Files of region features as other projects publish and write them: a reader a format behind one table.

`files.open_features` finds out by looking what lies at a path, and finds the regions of a picture by its name;
`diptych.vision.detectors.given` makes `Regions` of them. Nothing is copied, and no more is read than what
is asked for.
"""
