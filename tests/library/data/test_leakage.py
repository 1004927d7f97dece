"""Fingerprints of images: which are equal, which are near, and what a list of them keeps."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from diptych.core import Record
from diptych.data.check import check
from diptych.data.leakage import FILE, Fingerprints, SeenImages, copies_across, leakage, near_copies, prints_of
from diptych.data.store.loader import Loader
from diptych.data.store.record_json import record_from_json, record_to_json
from diptych.data.store.store import Store, StoreWriter
from diptych.data.store.tokens import Tokens
from diptych.objectives import ImageTextMatching, OneForward, Schedule
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import write_weights
from diptych.tasks.matching import CaptionTask
from diptych.vision.fingerprints import MOST_NEAR, NEAR, image_fingerprint, near_pairs
from tests.library.data.conftest import CONTRACT, MakeStore
from tests.library.data.conftest import record as stored_record


def noise(seed: int) -> Image.Image:
    cells = np.random.default_rng(seed).integers(0, 255, (9, 9, 3)).astype(np.uint8)
    return Image.fromarray(cells).resize((90, 80), Image.Resampling.BICUBIC)


def seen(*images: Image.Image) -> SeenImages:
    found = [image_fingerprint(np.asarray(image)) for image in images]
    return SeenImages.of(Fingerprints.of(found, 0), None, begun=False)


def test_a_fingerprint_is_of_the_pixels_and_their_shape() -> None:
    pixels = np.asarray(noise(0))
    assert image_fingerprint(pixels) == image_fingerprint(pixels.copy())
    changed = pixels.copy()
    changed[0, 0, 0] ^= 1
    assert image_fingerprint(changed)[0] != image_fingerprint(pixels)[0]
    assert image_fingerprint(changed)[1] == image_fingerprint(pixels)[1]
    assert image_fingerprint(pixels.reshape(40, 180, 3))[0] != image_fingerprint(pixels)[0]


def test_near_hashes_are_those_of_a_comparison_of_all() -> None:
    drawn = np.random.default_rng(0)
    known = drawn.integers(1, 2**64, (3000, 4), dtype=np.uint64)
    asked = known[:400].copy()
    for row in range(400):  # 0 to 2 * NEAR - 1 bits changed
        for bit in drawn.choice(256, row % (2 * NEAR), replace=False):
            asked[row, bit // 64] ^= np.uint64(1 << int(bit) % 64)
    distance = np.bitwise_count(asked[:, None] ^ known[None]).sum(2)
    found = near_copies(asked, known)
    assert ((found >= 0) == (distance <= NEAR).any(1)).all()
    assert (found >= 0).sum() == sum(row % (2 * NEAR) <= NEAR for row in range(400))
    assert all(distance[row, place] <= NEAR for row, place in enumerate(found) if place >= 0)
    for bits in (0, MOST_NEAR):
        rows, places = near_pairs(asked, known, bits)
        assert list(zip(rows, places, strict=True)) == [*map(tuple, np.argwhere(distance <= bits))]


def test_images_without_an_edge_are_no_copies_of_each_other() -> None:
    red, blue = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    assert seen(red).leakage(Fingerprints.of([image_fingerprint(np.asarray(blue))], 0)).near == 0
    assert seen(red).leakage(Fingerprints.of([image_fingerprint(np.asarray(red))], 0)).exact == 1


def test_a_mirrored_copy_is_a_near_one() -> None:
    """Also saved again as a JPEG, of another size; of 600 drawn images none is near the mirrored copy of another."""
    trained = seen(*map(noise, range(5)))
    content = io.BytesIO()
    ImageOps.mirror(noise(3)).resize((81, 72)).save(content, "JPEG", quality=80)
    copies = [ImageOps.mirror(noise(0)), Image.open(content), ImageOps.mirror(noise(7)), ImageOps.flip(noise(1))]
    prints = [image_fingerprint(np.asarray(one)) for one in copies]
    assert [trained.leakage(Fingerprints.of([one], 0)).near for one in prints] == [1, 1, 0, 0]
    splits = {"train": {"a": image_fingerprint(np.asarray(noise(0)))}, "test": {"b": prints[0], "c": prints[2]}}
    assert list(copies_across(splits, ("val", "test"))) == [(("b", "test"), ("a", "train"))]


def test_lists_are_joined_kept_and_checked(tmp_path: Path) -> None:
    first = seen(noise(0), noise(1))
    both = SeenImages.of(
        Fingerprints.of([image_fingerprint(np.asarray(noise(n))) for n in (1, 2)], 3), first, begun=True
    )
    assert (len(both.content), both.missing, both.complete) == (3, 3, True)
    both.save(tmp_path)
    again = SeenImages.load(tmp_path)
    assert again is not None
    assert (again.content.tolist(), again.perceptual.tolist()) == (both.content.tolist(), both.perceptual.tolist())
    asked = Fingerprints.of([image_fingerprint(np.asarray(noise(n))) for n in (0, 2, 9)], 1)
    assert again.leakage(asked).text == (
        "2 of 3 scored images were trained on, and 0 near copies; 1 of the test images could not be compared; "
        "3 of the training images have no fingerprint"
    )
    write_weights({"prints": torch.zeros(2, 3, dtype=torch.int64), "missing": torch.tensor([0, 0])}, tmp_path / FILE)
    with pytest.raises(CheckpointError, match=r"has format 1, but this version of Diptych reads 2; .*: rm .*seen"):
        SeenImages.load(tmp_path)
    (tmp_path / FILE).write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"is damaged .*; copy the model folder again"):
        SeenImages.load(tmp_path)


def test_a_store_of_before_takes_fingerprints_from_files_that_are_there(tmp_path: Path) -> None:
    noise(0).save(tmp_path / "0.png")
    (tmp_path / "1.png").write_text("no image")
    with StoreWriter(tmp_path / "store", CONTRACT) as writer:
        for number in range(3):
            writer.add(replace(stored_record(number), image=tmp_path / f"{number}.png"))
    store = Store(tmp_path / "store")
    assert store.words(0).fingerprint is None
    prints = prints_of(store, range(3))
    assert (prints.content.tolist(), prints.missing) == ([image_fingerprint(np.asarray(noise(0)))[0]], 2)
    assert leakage(seen(noise(0)), store, [0]).exact == 1
    assert leakage(seen(noise(0)), store, [1, 2]).text == "2 of the test images could not be compared"


def test_a_model_whose_training_images_have_no_fingerprint_cannot_say() -> None:
    blind = SeenImages.of(Fingerprints.of([], 7), None, begun=False)
    assert blind.leakage(Fingerprints.of([(1, 2)], 0)).text == (
        "the training images of this model are unknown; 7 of the training images have no fingerprint"
    )


@pytest.mark.parametrize("print_", [[1, 2**256], [2**64, 1], [-1, 0], [1], [1, 2, 3], ["1", "2"]])
def test_a_store_refuses_a_fingerprint_that_is_none(print_: list[object]) -> None:
    good = {**record_to_json(stored_record(0)), "fingerprint": [2**64 - 1, 2**256 - 1]}
    assert record_from_json(json.dumps(good).encode()).fingerprint == (2**64 - 1, 2**256 - 1)
    with pytest.raises(ValueError, match="fingerprint"):
        record_from_json(json.dumps(good | {"fingerprint": print_}).encode())


def test_check_names_near_copies_in_two_splits(tmp_path: Path) -> None:
    noise(0).save(tmp_path / "a.png")
    noise(0).save(tmp_path / "b.jpg", quality=90)
    noise(0).save(tmp_path / "c.bmp")
    noise(1).save(tmp_path / "d.png")
    names = {"a.png": "train", "b.jpg": "test", "c.bmp": "train", "d.png": "test"}
    found = [Record(name, split, tmp_path / name, captions=("a",)) for name, split in names.items()]
    report = check(found)
    (near,) = [one for one in report.findings if one.kind == "near copy in two splits"]
    assert (near.severity, near.examples) == ("warning", ["b.jpg (test) is like a.png (train)"])
    assert report.ok
    same = check([replace(found[0]), replace(found[0], key="e", split="test")])
    assert "near copy in two splits" not in [one.kind for one in same.findings], "equal files are named by themselves"


def test_samples_have_the_content_of_their_image(make_store: MakeStore, tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "prints", CONTRACT) as writer:
        for number in range(4):
            writer.add(replace(stored_record(number), fingerprint=(number // 2, 5)))
    task, update = (
        CaptionTask(Tokens.train(["dog", "a cat"], 50)),
        Schedule(((OneForward((ImageTextMatching(),)), 1.0),)),
    )
    for store, named in ((Store(tmp_path / "prints"), True), (make_store(4), False)):
        batch = Loader(store, range(4), task.samples, update, 8, seed=0).at(0, 0, 1)
        wanted = {f"{0:016x}", f"{1:016x}"} if named else {f"r{number}" for number in range(4)}
        assert set(batch.images) == wanted
