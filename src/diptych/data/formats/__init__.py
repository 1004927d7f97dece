"""Where pictures and words come from: the drawn world, and readers of the public forms.

`storybook` needs no download. `formats.FORMATS` is the table of what can be read, `manifest` joins the files of a set,
`public.SETS_KNOWN` knows what public sets are made of. Each reader has `read`: paths in, a list of `Record`s out, and a
`DataError` that names the place and the way out where a file is not what it should be. `parsing.combined` puts together
what several know of a picture.
"""
