"""What is made ahead of time, in threads or processes, and on its way to a device."""

import pickle
from dataclasses import replace

import pytest
import torch

from diptych.runtime.errors import DataError
from diptych.training.feeding import BatchPart, Maker, Sender, by_step, from_processes, loading_processes
from tests.support.toy_trainer import Always, ToyBatches, ToyUpdate, lines, toy_train, weights_hash


class Damaged(ToyBatches):
    """Step 3 cannot be read."""

    corrupt = {"toy/1": "its bytes are not what was written"}  # noqa: RUF012

    def at(self, step, part, parts):
        if step == 3:
            raise DataError("cannot be read", key="toy/6")
        return super().at(step, part, parts)


@pytest.mark.slow
def test_processes_make_what_threads_make_and_hand_back_errors():
    make = Maker(Always(ToyUpdate()), Damaged(4), parts=2)
    places = [(step, part) for step in range(4) for part in range(2)]
    with from_processes(make, iter(places), processes=2, waiting=4, pinned=False) as parts:
        for place in places[:6]:
            made, wanted = next(parts), make(place)
            assert made.keys == wanted.keys
            assert made.counts == wanted.counts
            assert torch.equal(made.batch.words, wanted.batch.words)
            assert made.left_out == Damaged.corrupt
        with pytest.raises(DataError, match="cannot be read") as raised:
            next(parts)
        assert raised.value.key == "toy/6"


@pytest.mark.slow
def test_a_run_fed_by_processes_is_the_same(tmp_path):
    toy_train(tmp_path / "threads", micro_batch=2)
    toy_train(tmp_path / "processes", micro_batch=2, loading_processes=1)
    assert weights_hash(tmp_path / "processes") == weights_hash(tmp_path / "threads")
    assert [line["losses"] for line in lines(tmp_path / "processes")] == [
        line["losses"] for line in lines(tmp_path / "threads")
    ]


def test_a_step_has_its_parts_and_perhaps_the_next_ones_first():
    parts = [BatchPart(number, {}, {}) for number in range(6)]
    ahead = [([p.batch for p in own], after and after.batch) for own, after in by_step(iter(parts), 2, ahead=True)]
    assert ahead == [([0, 1], 2), ([2, 3], 4), ([4, 5], None)]
    waiting = iter(parts)
    own, after = next(by_step(waiting, 2, ahead=False))
    assert ([p.batch for p in own], after, next(waiting).batch) == ([0, 1], None, 2)


def test_how_many_processes_make_batches():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert [loading_processes(None, device, 16, 1) for device in (gpu, cpu)] == [8, 0]
    assert [loading_processes(None, gpu, cores, world) for cores, world in [(192, 8), (16, 4), (1, 1)]] == [8, 2, 0]
    assert loading_processes(3, cpu, 16, 1) == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU")
def test_what_is_sent_ahead_has_arrived():
    make = Maker(Always(ToyUpdate()), ToyBatches(4), parts=1, pinned=True)
    sender, parts = Sender(torch.device("cuda")), [replace(make((step, 0))) for step in range(3)]
    assert parts[0].batch.words.is_pinned() or not hasattr(parts[0].batch, "pin_memory")
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        sender.send(part)
        sender.send(after)
        assert torch.equal(sender.arrived(part).words.cpu(), part.batch.words)


def test_a_maker_goes_to_another_process():
    make = Maker(Always(ToyUpdate()), ToyBatches(4), parts=2)
    assert pickle.loads(pickle.dumps(make))((1, 0)).keys == make((1, 0)).keys
