"""However many pairs there are, all that pass are kept, and each number of processes keeps the same bytes."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from random import Random

import pytest
from PIL import Image

from .conftest import digest, run

THINGS = ("kite", "dog", "boat", "house", "tree", "bench", "child", "train", "river", "bridge", "garden", "horse")
COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown", "orange")


def write_pairs(path: Path, count: int) -> None:
    """Write a tar of `count` images, no two alike, each with a caption."""
    with tarfile.open(path, "w") as tar:
        for number in range(count):
            rng, content = Random(number), io.BytesIO()
            cells = Image.frombytes("RGB", (10, 9), rng.randbytes(270))
            cells.resize((310, 310), Image.Resampling.BILINEAR).save(content, "JPEG")
            first, second = (f"{rng.choice(COLOURS)} {rng.choice(THINGS)}" for _ in range(2))
            text = f"a {first} stands near a {second} by the {rng.choice(THINGS)}".encode()
            for name, body in ((f"{number:06d}.jpg", content.getvalue()), (f"{number:06d}.txt", text)):
                member = tarfile.TarInfo(name)
                member.size = len(body)
                tar.addfile(member, io.BytesIO(body))


@pytest.mark.parametrize("count", [0, 1, 50, 105, pytest.param(12_000, marks=pytest.mark.thorough)])
def test_all_are_kept_by_any_number_of_processes(tmp_path: Path, count: int) -> None:
    """An engine of before kept none of 104 and fewer, and none of 12,000 and more."""
    halves = [tmp_path / "a.tar", tmp_path / "b.tar"]
    write_pairs(halves[0], count)
    write_pairs(halves[1], 0)
    assert run(tmp_path / "one", *halves)["kept"] == count
    for workers in (2, 3) if count == 105 else (3,):
        assert run(tmp_path / str(workers), *halves, workers=workers)["kept"] == count
        assert digest(tmp_path / str(workers)) == digest(tmp_path / "one")


BY_RAY = """
import sys
from pathlib import Path
from tests.mine.conftest import run

if __name__ == "__main__":
    for count in sys.argv[2:]:
        run(Path(sys.argv[1], f"ray {count}"), Path(sys.argv[1], f"{count}.tar"), engine="ray", workers=2)
"""


@pytest.mark.thorough
def test_ray_keeps_the_same(tmp_path: Path) -> None:
    counts = (0, 1, 50, 105)
    for count in counts:
        write_pairs(tmp_path / f"{count}.tar", count)
        run(tmp_path / f"one {count}", tmp_path / f"{count}.tar")
    (tmp_path / "by_ray.py").write_text(BY_RAY)
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}  # of `tests`, for Ray's workers too
    script = tmp_path / "by_ray.py"
    command = [sys.executable, script, tmp_path, *map(str, counts)]  # an interpreter: Ray starts others like it
    subprocess.run(command, check=True, timeout=800, env=here)
    for count in counts:
        assert digest(tmp_path / f"ray {count}") == digest(tmp_path / f"one {count}")
