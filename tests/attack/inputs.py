"""Bad inputs through the command line: a command that is right but for one word of it, or for what a file holds.

Each must end with a sentence and a code that says so: no traceback, no fault of Diptych, and nothing half written.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from random import Random

from tests.attack.forks import HUNG, attempt
from tests.attack.fuzz import WORDS, damaged
from tests.attack.kills import Broken, copied
from tests.attack.verbs import TINY

PICTURED = ("--model", "captioner")
# OUT is what a command writes; a word with a dot or a name of the world's is a path.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check", "mine.jsonl"),
    ("check", "store", "--json"),
    ("check", "captioner"),
    ("check", "mine.jsonl", "--images", "world"),
    ("extract", "mine.jsonl", "--out", "OUT", "--detector", "detector", "--processes", "1"),
    ("extract", "world", "--out", "OUT", "--detector", "ground-truth", "--processes", "1", "--image-feature", "0.png"),
    ("extract", "mine.jsonl", "--out", "OUT", "--detector", "given", "--features", "features"),
    ("tokenizer", "train", "--data", "store", "--out", "OUT", "--size", "200"),
    ("tokenizer", "train", "--text", "words.txt", "--out", "OUT", "--size", "60", "--kind", "bpe"),
    ("pretrain", "unified-vlp/small/pretrain", "--data", "store", "--out", "OUT", *TINY),
    ("pretrain", "xgpt/small/pretrain", "--data", "store", "--out", "OUT", "--seed", "3", *TINY),
    ("finetune", "caption", "--data", "store", "--model", "start", "--out", "OUT", *TINY),
    ("finetune", "vqa", "--data", "store", "--model", "start", "--out", "OUT", *TINY),
    ("evaluate", *PICTURED, "--data", "store", "--split", "val", "--out", "OUT"),
    ("score", "results.json", "--references", "references.json", "--allow-missing"),
    ("submit", "--format", "coco", "--model", "captioner", "--data", "store", "--out", "OUT"),
    ("augment", "store", "--out", "OUT", *PICTURED, "--num-captions", "1", "--max-words", "4"),
    ("caption", "0.png", "1.png", *PICTURED, "--out", "OUT"),
    ("caption", "0.png", *PICTURED, "--beams", "2", "--num-captions", "2", "--json"),
    ("ask", "0.png", "what is it", *PICTURED),
    ("ground", "0.png", "the dog", *PICTURED, "--out", "OUT"),
    ("search", "a dog", "--images", "web", *PICTURED, "--out", "OUT"),
    ("import", "unified-vlp", "words.txt", "--out", "OUT", "--vocab", "words.txt"),
    ("import", "vl-bert", "captioner/model/model.safetensors", "--out", "OUT", "--vocab", "words.txt"),
    ("import", "detector", "detector/detector.safetensors", "--out", "OUT"),
    ("plot", "start", "--out", "OUT.html"),
    ("recipes", "unified-vlp/small/caption"),
    ("recipes", "--system", "tden", "--table", "2"),
    ("push", "captioner", "me/kites", "--dry-run"),
    ("export", "captioner", "--out", "OUT", "--format", "torch"),
    ("storybook", "write", "--out", "OUT", "--web", "1", "--train", "1", "--val", "0", "--test", "0",
     "--test-rare", "0",
     "--processes", "1"),
    ("storybook", "web", "--out", "OUT", "--pages", "2", "--processes", "1"),
    ("storybook", "show", "--out", "OUT.png", "--detector", "detector"),
    ("mine", "run", "web/warc", "--out", "OUT", "--offline", "--skip-nsfw-check", "--processes", "1"),
    ("mine", "run", "list.tsv", "--out", "OUT", "--offline", "--skip-nsfw-check", "--processes", "1",
     "--refuse", "words.txt"),
    ("mine", "forget", "world", "--hosts", "words.txt"),
    ("mine", "scorer", "mine.jsonl", "--out", "OUT"),
    ("mine", "judge", "mine.jsonl", "--out", "OUT"),
    ("data", "coco", "world", "--out", "OUT.json"),
)  # fmt: skip
KEYS = (
    "training.batch", "training.steps", "training.micro_batch", "training.precision", "training.device", "optimizer.lr",
    "optimizer.betas", "model.width", "model.heads", "model.max_regions", "model.dropout", "data.split",
    "data.max_words", "data.text", "objectives", "objectives.seq2seq", "decoding.beams", "init", "training.seed", "x.y",
    "training.validate_every", "optimizer.warmup", "data.vocabulary", "model.region_embedding", "training",
)  # fmt: skip
NUMBERS = ("-1", "0", "0.5", "1e999", "nan", "NaN", "x", "", " ", "-0", "1e3", "\u0665", "0x10", "True", "2**9")
TEXTS = ("", " ", "\udcff", "a\nb\u2028c", "-", "--", "[red]x", "a" * 5000, "../..", "\x1b[31m", "unified-vlp", "none")
PATHS = (
    "nothing", "", ".", "..", "empty", "folder", "0.png", "garbage", "deep.json", "null.json", "words.txt", "fifo",
    "loop", "/dev/null", "/dev/full", "/proc/self/mem", "a" * 300, "\udcff.jsonl", "mine.jsonl/x", "store", "start",
    "captioner", "detector", "world", "mine.jsonl", "cut.zip", "store/store.json", "line.jsonl",
)  # fmt: skip
FILES = ("mine.jsonl", "store/store.json", "start/recipe.json", "captioner/model/config.json", "results.json",
         "captioner/model/recipe.json", "references.json", "detector/detector.json", "features/0.npz", "list.tsv",
         "captioner/model/tokenizer.json", "captioner/model/features.json", "0.png", "words.txt",
         "start/metrics.jsonl", "world/storybook.json", "captioner/model/weights.json")  # fmt: skip


def refused(seed: str, world: Path, place: Path) -> Broken | str | None:
    """One attempt, drawn by its seed."""
    rng, folder = Random(seed), copied(world, place)
    _make_bad(folder)
    words = list(rng.choice(COMMANDS))
    number = False
    if rng.random() < 0.25:
        fits = [name for name in FILES if name.split("/")[0] in " ".join(words)] or list(FILES)
        name = rng.choice(fits)
        (folder / name).write_bytes(damaged(folder / name, rng))
        what = f"{name} damaged"
    else:
        what, number = _worsened(words, rng)
    before = _listed(folder)
    arguments = tuple(word.replace("OUT", "out") for word in words)
    ended = attempt(folder, arguments, _patient)
    shown = ascii(" ".join(arguments))[1:300]
    if ended.code == HUNG:
        return None if number else Broken("bad inputs", seed, f"{shown} ({what}): hung")
    if not ended.clean or ended.code == 75:
        return Broken("bad inputs", seed, f"{shown} ({what}): code {ended.code}, {ended.last}")
    left = sorted(_listed(folder) - before) if ended.code else []
    if left:
        return Broken("bad inputs", seed, f"{shown} ({what}): code {ended.code}, {ended.last[:80]}; left {left[:4]}")
    return "refused" if ended.code else "harmless"


def _patient() -> None:
    """As a shell starts it: pipes that nobody reads end it."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _worsened(words: list[str], rng: Random) -> tuple[str, bool]:
    """One word of the command changed; and whether it was a number, which may be asked for in earnest."""
    at, change = rng.randrange(1, len(words)), rng.random()
    if change < 0.08:
        return f"without {words.pop(at)}", False
    if change < 0.13:
        words.insert(at, words[at])
        return f"twice {words[at]}", False
    if change < 0.18:
        words.append(rng.choice(("--no-such", "-x", "--seed", "extra", "--help", "--json", "--debug=1", "--out")))
        return words[-1], False
    if change < 0.45 and words[0] in ("pretrain", "finetune"):
        value = rng.choice((*NUMBERS, *PATHS[:8], *map(_json, WORDS)))
        words += ["--set", f"{rng.choice(KEYS)}={value}"]
        return words[-1][:60], True
    old = words[at]
    is_number = old.lstrip("-").isdigit()
    looks_like_path = old == "OUT" or "." in old or old in PATHS or old in ("web/warc", "features")
    words[at] = rng.choice(NUMBERS if is_number else PATHS if looks_like_path else (*TEXTS, *PATHS[:4], *NUMBERS[:5]))
    return f"{old} became {ascii(words[at])[:40]}", is_number


def _json(value: object) -> str:
    return json.dumps(value)[:200]


def _make_bad(folder: Path) -> None:
    import numpy as np

    (folder / "empty").write_bytes(b"")
    (folder / "folder").mkdir()
    (folder / "garbage").write_bytes(bytes(range(256)) * 40)
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "null.json").write_text("null")
    (folder / "line.jsonl").write_text('{"image": "0.png"}\n{"image": 3}\n')
    (folder / "words.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "cat"]))
    (folder / "list.tsv").write_text("a red kite\thttp://a.test/k.jpg\n")
    (folder / "cut.zip").write_bytes(b"PK\x03\x04" + bytes(50))
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "results.json").write_text(json.dumps([{"image_id": 1, "caption": "a dog"}]))
    (folder / "references.json").write_text(
        json.dumps({"annotations": [{"image_id": 1, "caption": "a dog"}], "images": [{"id": 1}]})
    )
    (folder / "features").mkdir()
    for number in range(4):
        boxes = np.array([[0, 0, 2, 2]] * 3, np.float32)
        np.savez(folder / "features" / f"{number}.npz", features=np.ones((3, 4), np.float32), boxes=boxes)


def _listed(folder: Path) -> set[str]:
    names = {os.fsencode(path.relative_to(folder)).decode("ascii", "backslashreplace") for path in folder.rglob("*")}
    return {name for name in names if not name.startswith(".attack")}
