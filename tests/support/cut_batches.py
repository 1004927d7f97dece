"""Batches of a training that is cut short."""

from tests.support.toy_trainer import ToyBatches


class Cut(Exception):
    pass


class CutBatches(ToyBatches):
    """A run that dies at step `cut`."""

    cut = 0

    def at(self, step, part, parts):
        if step >= type(self).cut:
            raise Cut
        return super().at(step, part, parts)
