"""Readers of data: public data sets, your own JSON lines, and the drawn world.

`table.FORMATS` is the table of formats, `manifest` joins the files of a set, and `public.SETS_KNOWN` lists the files of
public sets. A reader is a function `read(wanted, *files)` that returns a list of `Record`s. It raises a `DataError`
with the place and the correction where a file is faulty. `parsing.combined` joins what several files have of an image.
"""
