"""Measure how many unlike images are dropped as copies and how many copies are recognised, by this and the former hash.

    uv run python -m benchmarks.near_copies FOLDER

FOLDER has photographs. The other images are objects drawn on white ground (seed 0), like those of shops, and scenes of
the drawn world. The former hash is a 64-bit difference hash: images within 4 bits were connected, in chains too. Takes
a few minutes. Writes benchmarks/results/near_copies.json.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from benchmarks.machine import save_result
from diptych.vision.fingerprints import NEAR, U64, matrix, near_pairs, perceptual_hash
from diptych_mine.keep.keep import kept_images
from diptych_mine.lists import Hashes
from diptych_world.layout import scene
from diptych_world.render import render

DRAWN, COPIED, LONGEST, FORMER = 2_000, 400, 640, 4
Hash = Callable[[Image.Image], bytes]


def on_white(number: int) -> Image.Image:
    """Return 1 to 4 shapes on white ground, 600 x 600."""
    rng, image = Random(number), Image.new("RGB", (600, 600), "white")
    draw = ImageDraw.Draw(image)
    for _ in range(rng.randint(1, 4)):
        colour = (rng.randint(0, 200), rng.randint(0, 200), rng.randint(0, 200))
        x, y, w, h = rng.randint(180, 300), rng.randint(150, 330), rng.randint(40, 240), rng.randint(40, 260)
        kind = rng.random()
        if kind < 0.35:
            draw.ellipse((x, y, x + w, y + h), fill=colour)
        elif kind < 0.7:
            draw.rectangle((x, y, x + w, y + h), fill=colour)
        else:
            draw.polygon([(x + rng.randint(0, w), y + rng.randint(0, h)) for _ in range(5)], fill=colour)
    return image.filter(ImageFilter.GaussianBlur(1.5))


def photographs(folder: Path) -> Iterator[Image.Image]:
    for path in sorted(folder.rglob("*.jpg")):
        image = Image.open(path).convert("RGB")
        image.thumbnail((LONGEST, LONGEST))
        yield image


def copies(image: Image.Image) -> Iterator[tuple[str, Image.Image]]:
    width, height = image.size
    content = io.BytesIO()
    image.resize((width * 72 // 100, height * 72 // 100)).save(content, "JPEG", quality=40)
    yield "newly compressed", Image.open(content)
    yield "half the size", image.resize((width // 2, height // 2), Image.Resampling.BICUBIC)
    x, y = width * 3 // 200, height * 3 // 200
    yield "cropped by 3%", image.crop((x, y, width - x, height - y)).resize(image.size)


def difference_hash(image: Image.Image) -> bytes:
    """The former hash: 1 if one of 9 x 8 grey cells is brighter than its left neighbour. 8 bytes."""
    cells = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.LANCZOS), np.int16)
    return np.packbits(cells[:, 1:] > cells[:, :-1]).tobytes()


def padded(hashes: list[bytes]) -> U64:
    return matrix(one.ljust(32, b"\0") for one in hashes)


def in_chains(hashes: U64) -> int:
    """Return the number of images that the former rule drops: all but one of each connected group."""
    label = np.arange(len(hashes))
    pairs = near_pairs(hashes, hashes, FORMER)
    for a, b in zip(*pairs, strict=True):
        label[label == label[b]] = label[a]
    return len(label) - len(np.unique(label))


def measured(images: list[Image.Image]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the figures of the present hash, and those of the former one."""
    former, own = (padded([of(one) for one in images]) for of in (difference_hash, perceptual_hash))
    unique = np.unique(own, axis=0)
    dropped = len(own) - len(unique) + int((kept_images(unique, NEAR) != np.arange(len(unique))).sum())
    step = len(images) // COPIED
    found: dict[str, list[tuple[bool, bool]]] = {}
    for number in range(0, COPIED * step, step):
        for kind, copy in copies(images[number]):
            near = [
                np.bitwise_count(padded([of(copy)])[0] ^ known[number]).sum() <= bits
                for of, known, bits in ((perceptual_hash, own, NEAR), (difference_hash, former, FORMER))
            ]
            found.setdefault(kind, []).append((bool(near[0]), bool(near[1])))
    shares = {kind: np.mean(both, axis=0) * 100 for kind, both in found.items()}
    counts = ({"images": len(images), "dropped": number} for number in (dropped, in_chains(former)))
    present, before = (
        one | {kind: round(share[at], 1) for kind, share in shares.items()} for at, one in enumerate(counts)
    )
    return present, before


def speed() -> dict[str, float]:
    drawn = np.random.default_rng(0)
    excluded, tested = (drawn.integers(0, 2**64, (count, 4), dtype=np.uint64) for count in (40_000, 1_000))
    listed = Hashes(phashes=frozenset(one.tobytes() for one in excluded))
    rows = [{"sha256": "", "phash": one.tobytes()} for one in tested]
    begun = time.process_time()
    listed.hold(rows)
    held = time.process_time()
    kept_images(drawn.integers(0, 2**64, (100_000, 4), dtype=np.uint64), NEAR)
    return {"exclude_ms": round(held - begun, 3),
            "of_100000_images_s": round(time.process_time() - held, 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    photos = [*photographs(parser.parse_args().folder)]
    scenes = [Image.fromarray(render(scene(0, "test", number), 2)) for number in range(DRAWN)]
    kinds = {
        "on white": measured([on_white(number) for number in range(DRAWN)]),
        "photographs": measured(photos),
        "drawn scenes": measured(scenes),
    }
    command = "uv run python -m benchmarks.near_copies FOLDER"
    present, former = ({kind: both[at] for kind, both in kinds.items()} for at in (0, 1))
    save_result("near_copies", command, {"present": present, "former": former, "CPU time": speed()})


if __name__ == "__main__":
    main()
