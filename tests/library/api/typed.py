"""A user's script that mypy reads (pyproject.toml, [tool.mypy] files) and nothing runs: types of the public API."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import diptych
from diptych import Answer, Caption, ChosenAnswer, Explained, Found, Hits, Judgement

model = diptych.load("sample")
photo, pil, path = "a.png", Image.new("RGB", (9, 9)), Path("a.png")

assert_type(model, diptych.Model)
assert_type(model.caption(photo, beams=3, max_words=8), Caption)
assert_type(model.caption(pil), Caption)
assert_type(model.caption(BytesIO()), Caption)
assert_type(model.caption(np.zeros((9, 9, 3))), Caption)
assert_type(model.caption([photo, pil, path]), list[Caption])
assert_type(model.caption(sorted(path.iterdir())), list[Caption])
assert_type(model.caption(iter([photo])), Iterator[Caption])
assert_type(model.caption(photo).boxes[0], tuple[int, int, int, int])
assert_type(model.ask(photo, "is it red?"), Answer)
assert_type(model.ask(photo, ["is it red?"]), list[Answer])
assert_type(model.ask([photo], "is it red?"), list[Answer])
assert_type(model.ask(photo, iter(["is it red?"])), Iterator[Answer])
assert_type(model.ask(iter([photo]), "is it red?"), Iterator[Answer])
assert_type(model.ground(photo, "the dog").box, tuple[int, int, int, int])
assert_type(model.verify([photo], "there is a dog"), list[Judgement])
assert_type(model.choose(photo, "what is [0]?", ["a dog", "a bird"]), ChosenAnswer)
assert_type(model.choose([photo], "what is [0]?", ["a dog", "a bird"]), list[ChosenAnswer])
assert_type(model.explain(photo, "a dog"), Explained)
assert_type(model.search("a dog", [photo]), Hits)
assert_type(model.encode_image([photo]), NDArray[np.float32])
assert_type(model.encode_text("a dog"), NDArray[np.float32])
assert_type(model.ground([photo], ["the dog"]), list[Found])

run = diptych.finetune("caption", diptych.Dataset.read("world"), model, epochs=1, out="runs/a")
assert_type(run, diptych.Run)
assert_type(run.model, diptych.Model)
assert_type(run.model.caption(photo), Caption)
mistakes = (
    model.caption(photo, beam=3),  # type: ignore[call-overload]
    model.caption(3),  # type: ignore[call-overload]
    model.ask(photo),  # type: ignore[call-overload]
    model.ground(photo, 3),  # type: ignore[call-overload]
)
