"""Contexts for downloads by other libraries. Without a network they do not retry, and raise one clear error."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pickle import UnpicklingError
from urllib.parse import urlsplit

from diptych.runtime.errors import CheckpointError, explained

PATIENCE = 3.0  # the hub counts as unreachable if it does not answer within this number of seconds
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@contextmanager
def downloading(what: str, way_out: str) -> Iterator[None]:
    """Convert errors of a library to a CheckpointError. `what`: the thing that is downloaded.

    `way_out`: the command or step that mends the error.
    """
    causes = (RuntimeError, ImportError, UnpicklingError)
    with explained(CheckpointError, f"cannot get {what}", way_out, *causes), without_retries():
        yield


@contextmanager
def without_retries() -> Iterator[None]:
    """Use only the local cache of the hub if the hub cannot be reached.

    The hub's library would otherwise retry for a minute.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "transformers", "timm", "root")]
    levels = [logger.level for logger in loggers]
    constants.HF_HUB_OFFLINE = before or not _reachable(constants.ENDPOINT)
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _reachable(address: str) -> bool:
    if any(os.environ.get(name) for name in PROXIES):
        return True  # behind a proxy, only the download itself shows if it works
    split = urlsplit(address)
    with suppress(OSError), socket.create_connection((split.hostname or "", split.port or 443), PATIENCE):
        return True
    return False
