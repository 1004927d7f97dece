import builtins
import errno
import re
import signal
import threading
import time
from contextlib import suppress
from io import StringIO
from types import SimpleNamespace

import pytest
import torch
from pydantic import ValidationError
from rich.console import Console

from diptych.runtime.errors import RecipeError, Stopped, TrainingError
from diptych.training import OptimizerConfig, TrainingConfig
from diptych.training.feeding import prefetched
from diptych.training.log import SMOOTHED, Log, LogLine
from diptych.training.ranks import Ranks
from diptych.training.stopping import StopRequest
from diptych.training.trainer import TrainerRun
from tests.support.cut_batches import Cut, CutBatches
from tests.support.toy_trainer import ToyBatches, ToyModel, ToySchedule, lines, toy_train


def line(step: int) -> LogLine:
    return LogLine(step, {"word": 1.0}, 1.0, 0.1, 2.0, 30.0)


def test_lines_after_the_resumed_step_and_half_lines_go(tmp_path):
    with Log(tmp_path, 0, 9, Console(quiet=True)) as log:
        for step in (1, 2, 3):
            log.write(line(step))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "los')
    with Log(tmp_path, 2, 9, Console(quiet=True)) as log:
        log.write(line(3))
    assert [found["step"] for found in lines(tmp_path)] == [1, 2, 3]
    assert not list(tmp_path.glob("*.aside"))


@pytest.mark.parametrize("losses", ['"low"', '{"word": "low"}', '{"word": 1' + "0" * 400 + "}", "[1]"])
def test_damaged_losses_are_not_averaged(tmp_path, losses):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1, "losses": {losses}}}\n[1]\n')
    with Log(tmp_path, 2, 9, Console(quiet=True)) as log:
        assert list(log.recent) == [{}]
        log.write(line(3))
    assert [found["step"] for found in lines(tmp_path)] == [1, 3]


def told(tmp_path, terminal: bool, **options) -> str:
    out = StringIO()
    console = Console(file=out, force_terminal=terminal, width=1000)
    toy_train(tmp_path, console=console, **options)
    return out.getvalue()


def test_sparse_lines_without_a_terminal(tmp_path):
    said = told(tmp_path, False, optimizer={"lr": 0.001, "lr_times_batch": True}).splitlines()
    assert said[0] == "adamw, learning rate 0.004 = 0.001 x batch 4, linear; 6 steps of 4 samples, fp32 on cpu"
    assert [text.split("  ")[0] for text in said[1:]] == ["step 1/6", "step 6/6"]
    assert "samples/s" in said[1]


def test_lines_show_means_of_the_last_steps_and_the_time_left(tmp_path, monkeypatch):
    """A step that predicts another thing keeps the last means of the others; a resumed run those from before."""
    clock = [0.0]
    monkeypatch.setattr("diptych.training.log.time.monotonic", lambda: clock[0])

    def written(after: int, *found: tuple[int, dict[str, float]]) -> list[str]:
        out = StringIO()
        with Log(tmp_path, after, 50, Console(file=out, width=1000)) as log:
            for step, losses in found:
                clock[0] += 60
                log.write(LogLine(step, losses, 1.0, 0.1, 2.0, 30.0))
        return out.getvalue().splitlines()

    first, second = written(0, (1, {"word": 3.0}), (2, {"word": 1.0}))
    assert first.startswith("step 1/50  word 3.0000  30 samples/s  49 min left, until ")
    assert second.startswith("step 2/50  word 2.0000  30 samples/s  48 min left")
    (third,) = written(2, (3, {"region": 5.0}))
    assert third.startswith("step 3/50  word 2.0000  region 5.0000  ")
    lasting = written(3, *((3 + n, {"word": 8.0}) for n in range(1, SMOOTHED + 1)))
    assert lasting[-1].startswith("step 23/50  word 8.0000  30 samples/s")
    assert lines(tmp_path)[1]["losses"] == {"word": 1.0}, "the file has each step's own"
    assert written(23, (50, {"word": 8.0}))[-1].endswith("30 samples/s"), "at the end no time is left"


def test_a_line_has_at_most_120_characters(tmp_path):
    """Losses that do not fit are counted; scores, by which weights are chosen, stand before them."""
    losses = {f"masked_region_class/{number}": 0.6926 for number in range(9)}
    out = StringIO()
    with Log(tmp_path, 0, 50, Console(file=out, width=1000)) as log:
        log.write(LogLine(1, losses, 1.0, 0.1, 2.0, 30.0))
        log.write(LogLine(2, losses, 1.0, 0.1, 2.0, 30.0, {f"BLEU-{number}": 58.96 for number in range(5)}))
        log.write(LogLine(50, {}, 1.0, 0.1, 2.0, 30.0, {"a score " * 20: 1.0}))
    plain, scored, last = out.getvalue().splitlines()
    assert max(map(len, (plain, scored))) <= 120
    assert plain.startswith("step 1/50  masked_region_class/0 0.6926  masked_region_class/1 0.6926  and 7 more  30 ")
    assert "  BLEU-0 59.0  BLEU-1 59.0  BLEU-2 59.0  BLEU-3 59.0  BLEU-4 59.0  30 samples/s" in scored
    assert last.startswith("step 50/50  masked_region_class/0 0.6926  ")
    assert "a score" not in last, "it is longer than a line"
    assert last.endswith("  30 samples/s")
    assert lines(tmp_path)[0]["losses"] == losses, "the file has all"


def test_a_bar_on_a_terminal(tmp_path):
    said = told(tmp_path, True)
    assert "6/6" in said
    assert "samples/s" in said
    assert "\x1b[" in said


MANY = {f"text retrieval R@{number}": 16.7 for number in range(20)}


def written(tmp_path, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three lines with many scores, of which the last two are 40 s apart, as slow steps are."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr(console, "get_time", lambda: clock[0])
    with Log(tmp_path, 0, 12_000, console) as log:
        for step, now in ((10, 2.0), (20, 4.0), (30, 44.0)):
            clock[0] = now
            log.write(LogLine(step, {"masked_queries": 1.0}, 1.0, 0.1, 2.0, 30.0, MANY))


@pytest.mark.parametrize("width", [40, 80])
def test_a_bar_with_many_scores_keeps_count_and_time_left(tmp_path, monkeypatch, width):
    out = StringIO()
    written(tmp_path, Console(file=out, force_terminal=True, width=width), monkeypatch)
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue()).strip().splitlines()[-1]
    assert re.match(r"training ━+ +30/12000 [1-9]:\d\d:\d\d .*…$", last), last
    assert len(last) <= width


def test_a_bar_of_a_notebook_has_the_time_left_before_the_scores(tmp_path, monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr(
        "IPython.display.display", lambda one, **_: SimpleNamespace(update=lambda o: shown.append(o.data))
    )
    written(tmp_path, Console(file=StringIO(), force_jupyter=True), monkeypatch)
    assert re.search(r"> 30/12000, [\d.]+ h left, until \d\d:\d\d text retrieval R@0 16\.7", shown[-1])


def test_the_logged_rate_is_the_effective_one(tmp_path):
    toy_train(tmp_path, optimizer={"lr": 0.01, "lr_times_batch": True, "warmup_steps": 2})
    assert [found["lr"] for found in lines(tmp_path)[:2]] == [0.02, 0.04]


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    toy_train(tmp_path, tensorboard=True)
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_tensorboard_missing(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "torch.utils.tensorboard":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RecipeError, match=r"needs torch\.utils\.tensorboard, of the extra `tensorboard`: `uv "):
        toy_train(tmp_path, tensorboard=True)


def test_made_ahead_keeps_order_and_is_bounded():
    made = []

    def make(place: int) -> int:
        made.append(place)
        time.sleep(0.002 * (place % 3))
        return place * 10

    with prefetched(make, range(50), threads=3, waiting=4) as results:
        assert [next(results) for _ in range(5)] == [0, 10, 20, 30, 40]
        time.sleep(0.05)
        assert max(made) <= 9
    with prefetched(make, range(7), threads=2, waiting=3) as results:
        assert list(results) == [n * 10 for n in range(7)]


def test_without_threads_nothing_is_made_before_it_is_asked_for():
    made = []
    with prefetched(lambda n: made.append(n) or n, range(5), threads=0, waiting=4) as results:
        assert not made
        assert [next(results), next(results)] == [0, 1]
        assert made == [0, 1]


def test_an_error_while_making_is_raised_at_its_place():
    with prefetched(lambda n: 1 // (2 - n), range(9), threads=1, waiting=4) as results:
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ZeroDivisionError):
            next(results)


@pytest.fixture
def a_person_s_terminal():
    """A process started in the background of a shell has SIGINT ignored; a person's has Python's own handler."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.mark.usefixtures("a_person_s_terminal")
def test_a_first_signal_is_a_wish_and_a_second_one_is_not():
    before = signal.getsignal(signal.SIGINT)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_sigterm_and_its_repeats_are_one_wish(monkeypatch):
    """As batch systems send it to the group and to each process; long after, it ends the process."""
    ended = []
    before = signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    with StopRequest() as stop:
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        assert stop.requested
        assert not ended
        now = time.monotonic()
        monkeypatch.setattr("diptych.training.stopping.time.monotonic", lambda: now + 6)
        signal.raise_signal(signal.SIGTERM)
        assert ended == [1]
    signal.signal(signal.SIGTERM, before)


def test_in_another_thread_signals_are_left_alone():
    seen = []

    def work():
        with StopRequest() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


@pytest.mark.usefixtures("a_person_s_terminal")
def test_ctrl_c_stops_after_the_step_and_the_run_goes_on(tmp_path):
    def interrupt(module, step):
        if step == 3:
            signal.raise_signal(signal.SIGINT)
        return {"goodness": step}

    options = {"validate_every": 1, "validate": interrupt}
    with pytest.raises(Stopped, match=r"stopped after step 4 of 6; the same command resumes") as stopped:
        toy_train(tmp_path, **options)
    assert stopped.value.exit_code == 75
    assert toy_train(tmp_path, **options).step == 6


def test_a_full_disk_while_logging(tmp_path, monkeypatch):
    real = Log.write

    def full(self, line):
        if line.step == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, line)

    monkeypatch.setattr(Log, "write", full)
    with pytest.raises(
        TrainingError, match=r"the disk of .* is full .* the checkpoint of step 2 is complete: free space"
    ):
        toy_train(tmp_path)
    monkeypatch.undo()
    assert toy_train(tmp_path).step == 6
    assert [found["step"] for found in lines(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_more_processes_than_samples(tmp_path):
    run = TrainerRun(
        module=ToyModel(),
        config=OptimizerConfig(),
        training=TrainingConfig(steps=1, batch=2),
        folder=tmp_path,
        validate=None,
        score="",
        fingerprint="",
        ranks=Ranks(0, 3, torch.device("cpu")),
    )
    with pytest.raises(RecipeError, match="batch=2 is less than 3 micro-batches"):
        run.prepare(ToySchedule(), ToyBatches(2))


def test_accumulation():
    config = TrainingConfig(steps=1, batch=10, micro_batch=4)
    assert [config.accumulation(world) for world in (1, 2, 3)] == [3, 2, 1]
    assert TrainingConfig(steps=1, batch=10).accumulation(4) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validate_every": 0}, "number of epochs such as 1epoch"),
        ({"validate_every": "0epochs"}, "number of epochs such as 1epoch"),
        ({"validate_every": "1.5epoch"}, "number of epochs such as 1epoch"),
        ({"patience": 2}, "need validation: set validate_every"),
        ({"average_best": 2}, "need validation: set validate_every"),
        ({"ema": 1.0}, "less than 1"),
        ({"epoch": 3}, "Extra inputs"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        TrainingConfig(steps=1, batch=1, **options)


def test_validation_wants_all_or_nothing(tmp_path):
    with pytest.raises(RecipeError, match="pass all or none"):
        toy_train(tmp_path, validate_every=1, validate=None)


def test_on_log_gets_the_steps_after_the_last_checkpoint_again(tmp_path, monkeypatch):
    """Each step is in metrics.jsonl once; docs/python.md names both."""
    given = []
    monkeypatch.setattr(CutBatches, "cut", 5)
    for batches in (CutBatches(4), ToyBatches(4)):
        with suppress(Cut):
            toy_train(tmp_path, batches=batches, checkpoint_every=3, on_log=lambda line: given.append(line["step"]))
    assert given == [1, 2, 3, 4, 5, 4, 5, 6]
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4, 5, 6]
