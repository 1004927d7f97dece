"""A pipe or a device in place of each path that the command line takes: read, it is refused; written, it gets what is
written, and stays what it was. No command waits."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from tests.attack.forks import attempt
from tests.attack.kills import Broken, copied
from tests.attack.verbs import TINY

GIVEN = ("/dev/zero", "pipe")  # PIPE stands for one of these
MODEL = ("--model", "captioner")
PRETRAIN = ("pretrain", "unified-vlp/small/pretrain", "--out", "out")
MINE = ("mine", "run", "web/warc", "--offline", "--skip-nsfw-check", "--processes", "1")
SUBMIT = ("submit", "--format", "coco", *MODEL)
RESULTS = ("score", "results.json")
IMPORT = ("import", "unified-vlp", "start/model/model.safetensors")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check", "PIPE"),
    ("check", "mine.jsonl", "--images", "PIPE"),
    ("check", "mine.jsonl", "--model", "PIPE"),
    ("extract", "PIPE", "--out", "out", "--detector", "detector"),
    ("extract", "mine.jsonl", "--out", "PIPE", "--detector", "detector"),
    ("extract", "mine.jsonl", "--out", "out", "--detector", "PIPE"),
    ("extract", "mine.jsonl", "--out", "out", "--detector", "onnx:PIPE"),
    ("extract", "mine.jsonl", "--out", "out", "--detector", "detector", "--images", "PIPE"),
    ("extract", "mine.jsonl", "--out", "out", "--detector", "given", "--features", "PIPE"),
    ("extract", "mine.jsonl", "--out", "out", "--detector", "grid:resnet18", "--weights", "PIPE"),
    ("tokenizer", "train", "--text", "PIPE", "--out", "out"),
    ("tokenizer", "train", "--data", "PIPE", "--out", "out"),
    ("tokenizer", "train", "--text", "words.txt", "--out", "PIPE"),
    (*PRETRAIN, "--data", "PIPE", *TINY),
    ("pretrain", "unified-vlp/small/pretrain", "--data", "store", "--out", "PIPE", *TINY),
    *((*PRETRAIN, "--data", "store", option, "PIPE", *TINY) for option in ("--model", "--init", "--vocab")),
    *((*PRETRAIN, "--data", "mine.jsonl", option, "PIPE", *TINY) for option in ("--detector", "--features")),
    (*PRETRAIN, "--data", "store", *TINY, "--set", "data.text=PIPE"),
    ("finetune", "caption", "--data", "PIPE", "--model", "start", "--out", "out", *TINY),
    ("finetune", "caption", "--data", "store", "--model", "PIPE", "--out", "out", *TINY),
    ("finetune", "caption", "--data", "store", "--model", "start", "--out", "PIPE", *TINY),
    ("finetune", "caption", "--data", "mine.jsonl", "--model", "start", "--out", "out", "--features", "PIPE", *TINY),
    ("evaluate", "--model", "PIPE", "--data", "store"),
    ("evaluate", *MODEL, "--data", "PIPE"),
    ("evaluate", *MODEL, "--data", "mine.jsonl", "--features", "PIPE"),
    ("evaluate", *MODEL, "--data", "store", "--out", "PIPE"),
    (*SUBMIT, "--data", "PIPE", "--out", "out"),
    (*SUBMIT, "--data", "mine.jsonl", "--out", "out", "--features", "PIPE"),
    (*SUBMIT, "--data", "store", "--out", "PIPE"),
    ("compare", "captioner", "captioner", "--data", "PIPE"),
    ("compare", "captioner", "unified-vlp/table-2/unified-vlp/coco", "--data", "store", "--out", "PIPE"),
    ("rank", "--model", "retriever", "--data", "PIPE"),
    *(("rank", "--model", "retriever", "--data", "mine.jsonl", option, "PIPE")
      for option in ("--features", "--out", "--pairs")),
    ("encode", "0.png", "--model", "retriever", "--out", "PIPE"),
    ("encode", "0.png", "--model", "retriever", "--out", "o.npy", "--features", "PIPE"),
    ("match", "0.png", "a dog", "--model", "retriever", "--features", "PIPE"),
    ("score", "PIPE", "--references", "references.json"),
    (*RESULTS, "--references", "PIPE"),
    (*RESULTS, "--references", "references.json", "--training", "PIPE"),
    (*RESULTS, "--questions", "PIPE", "--annotations", "references.json"),
    (*RESULTS, "--questions", "references.json", "--annotations", "PIPE"),
    ("augment", "PIPE", "--out", "out", *MODEL),
    ("augment", "store", "--out", "PIPE", *MODEL),
    ("caption", "PIPE", *MODEL),
    *(("caption", "0.png", *MODEL, option, "PIPE") for option in ("--out", "--show", "--features")),
    *(("ask", "0.png", "what is it", *MODEL, option, "PIPE") for option in ("--show", "--features")),
    ("ask", "PIPE", "what is it", *MODEL),
    ("ground", "PIPE", "the dog", *MODEL),
    *(("ground", "0.png", "the dog", *MODEL, option, "PIPE") for option in ("--out", "--features", "--show")),
    ("choose", "PIPE", "what is it", "a", "b", *MODEL),
    ("choose", "0.png", "what is it", "a", "b", *MODEL, "--features", "PIPE"),
    ("verify", "PIPE", "a dog", *MODEL),
    ("verify", "0.png", "a dog", *MODEL, "--features", "PIPE"),
    ("search", "a dog", "--images", "PIPE", "--model", "retriever"),
    *(("search", "a dog", "--images", "pictures", "--model", "retriever", option, "PIPE")
      for option in ("--out", "--cache", "--features", "--shortlist-by")),
    ("import", "unified-vlp", "PIPE", "--out", "out", "--vocab", "words.txt"),
    (*IMPORT, "--out", "out", "--vocab", "PIPE"),
    (*IMPORT, "--out", "PIPE", "--vocab", "words.txt"),
    (*IMPORT, "--out", "out", "--vocab", "words.txt", "--answers", "PIPE"),
    ("import", "detector", "PIPE", "--out", "out"),
    ("import", "detector", "detector/detector.safetensors", "--out", "PIPE"),
    ("import", "detector", "detector/detector.safetensors", "--out", "out", "--class-names", "PIPE"),
    ("import", "detector", "grid:resnet18", "--out", "out", "--weights", "PIPE"),
    ("import", "detector", "detector/detector.safetensors", "--out", "out", "--images", "PIPE"),
    ("plot", "PIPE"),
    ("plot", "start", "--out", "PIPE"),
    ("push", "captioner", "me/kites", "--dry-run", "--out", "PIPE"),
    ("push", "captioner", "me/kites", "--dry-run", "--scores", "PIPE"),
    ("export", "captioner", "--out", "PIPE", "--format", "torch"),
    *(("serve", "captioner", option, "PIPE") for option in ("--images", "--token-file", "--features")),
    ("storybook", "write", "--out", "PIPE"),
    ("storybook", "show", "--out", "PIPE"),
    ("storybook", "detector", "--out", "PIPE", "--steps", "1"),
    ("storybook", "web", "--out", "PIPE", "--pages", "2"),
    ("mine", "run", "PIPE", "--out", "out", "--offline", "--skip-nsfw-check"),
    (*MINE, "--out", "PIPE"),
    *((*MINE, "--out", "out", option, "PIPE")
      for option in ("--refuse", "--exclude", "--words", "--vocab", "--tars", "--scorer", "--realism")),
    ("mine", "report", "PIPE"),
    ("mine", "label", "PIPE"),
    ("mine", "label", "start", "--out", "PIPE"),
    ("mine", "scorer", "PIPE", "--out", "out"),
    ("mine", "scorer", "mine.jsonl", "--out", "PIPE"),
    ("mine", "judge", "PIPE", "--out", "out"),
    ("mine", "judge", "classes", "--out", "PIPE"),
    ("mine", "judge", "classes", "--out", "out", "--backbone", "resnet18", "--weights", "PIPE"),
    ("mine", "forget", "PIPE", "--hosts", "words.txt"),
    *(("mine", "forget", "start", option, "PIPE") for option in ("--hosts", "--addresses", "--images")),
    ("mine", "forget", "start", "--hosts", "words.txt", "--tars", "PIPE"),
    ("data", "coco", "PIPE"),
    ("data", "coco", "world", "--out", "PIPE"),
    ("demo", "--fast", "--out", "PIPE"),
)  # fmt: skip


def not_waited_for(number: int, world: Path, place: Path) -> Broken | str | None:
    """One of COMMANDS, with a pipe that somebody may be reading, or a device."""
    what, words = GIVEN[number % len(GIVEN)], COMMANDS[number // len(GIVEN) % len(COMMANDS)]
    folder = copied(world, place)
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # who writes is not kept waiting; who reads, is
    emptied = subprocess.Popen(["cat", pipe], stdout=subprocess.DEVNULL)  # nor by what a pipe holds at most
    try:
        arguments = tuple(word.replace("PIPE", what) for word in words)
        ended = attempt(folder, arguments, seconds=30.0)
    finally:
        os.close(reader)
        emptied.kill()
        emptied.wait()
    shown = " ".join(arguments)[:200]
    if not ended.clean or not stat.S_ISFIFO(pipe.lstat().st_mode) or not Path("/dev/zero").is_char_device():
        return Broken("pipes", str(number), f"{shown}: code {ended.code}, {ended.last}")
    return "refused" if ended.code else "harmless"
