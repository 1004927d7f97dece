"""Where pictures and words come from: the drawn world, and readers of the public forms.

`storybook` needs no download. `coco`, `vqa2`, `refcoco`, `vcr`, `nlvr`, `flickr30k`, `conceptual` and `jsonl`
(your own data) each have `read`: paths in, a list of `Record`s out, and a `DataError` that names the place and
the way out where a file is not what it should be. `reading.combined` puts together what several know of a picture.
"""
