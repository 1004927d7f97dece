"""Readers of data: public data sets, your own JSON lines, and the drawn world.

`table.FORMATS` is the table of formats, `manifest` joins the files of a set, and `public.SETS_KNOWN` lists the files of
public sets. A reader is a function `read(wanted, *files)` that returns a list of `Record`s. If a file is faulty, it
raises a `DataError` with the place and the correction. `parsing.combined` joins the records that several files have of
an image.
"""
