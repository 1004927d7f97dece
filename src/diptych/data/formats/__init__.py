"""Readers of data sets: public ones, your own JSON lines, and the drawn world of Storybook.

`table.FORMATS` lists the formats, and `public.SETS_KNOWN` the files of public data sets. `manifest` reads a data set
that consists of several files. A reader is a function `read(wanted, *files)` that returns a list of `Record`s. For a
faulty file it raises a `DataError` with the location and how to correct it. `parsing.combined` merges the records of
the same image from several files.
"""
