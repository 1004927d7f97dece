"""Pictures of any shape in one square."""

import torch

from diptych.vision.detectors.letterbox import GREY, letterbox, to_picture_fractions, to_square


def test_a_wide_picture_keeps_its_aspect_and_stands_at_the_top() -> None:
    wide = torch.zeros(3, 20, 80, dtype=torch.uint8)
    wide[:, 10:, 40:] = 255
    squares, shares = letterbox([wide], 40)
    assert shares.tolist() == [[1.0, 0.25]]
    square = squares[0, 0]
    assert (square[:4] == 0).all()  # apart from a blurred edge
    assert (square[6:10, 22:] == 255).all()
    assert (square[10:] == GREY).all()


def test_boxes_go_there_and_back() -> None:
    _, shares = letterbox([torch.zeros(3, 90, 30, dtype=torch.uint8)], 64)
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.2, 0.5, 0.4, 0.75]])
    square = to_square(boxes, shares[0])
    assert square[0].tolist() == [0, 0, 21 / 64, 1]
    torch.testing.assert_close(to_picture_fractions(square, shares[0]), boxes)
    assert to_picture_fractions(torch.tensor([[0.0, 0.0, 0.9, 0.9]]), shares[0]).tolist()[0][2] == 1


def test_small_ones_are_enlarged_and_thin_ones_keep_a_pixel() -> None:
    squares, shares = letterbox([torch.full((3, 4, 4), 9, dtype=torch.uint8)], 8)
    assert (squares == 9).all()
    assert shares.tolist() == [[1, 1]]
    squares, shares = letterbox([torch.full((3, 1, 4000), 9, dtype=torch.uint8)], 8)
    assert shares.tolist() == [[1, 1 / 8]]
    assert (squares[0, :, 0] == 9).all()


def test_pictures_of_different_sizes_are_stacked() -> None:
    pictures = [torch.zeros(3, h, w, dtype=torch.uint8) for h, w in ((5, 9), (9, 5), (16, 16))]
    assert letterbox(pictures, 16)[0].shape == (3, 3, 16, 16)
