"""The drawn world keeps its promises."""

from diptych.sources.storybook import Storybook, record, render


def test_a_scene_has_a_picture_and_words() -> None:
    for scene in Storybook(0, "train", 3):
        assert render(scene).shape == (160, 160, 3)
        assert len(record(scene).captions) == 5
