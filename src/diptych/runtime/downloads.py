"""Around what libraries download themselves: no retries without a network, and one sentence for what goes wrong."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pickle import UnpicklingError
from urllib.parse import urlsplit

from diptych.runtime.errors import CheckpointError

PATIENCE = 3.0  # seconds for the hub to be there
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@contextmanager
def downloading(what: str, way_out: str) -> Iterator[None]:
    """What a library raises is one CheckpointError with the way out."""
    try:
        with without_retries():
            yield
    except (OSError, RuntimeError, ValueError, KeyError, ImportError, UnpicklingError) as error:
        raise CheckpointError(f"cannot get {what} ({first_line(error)}); {way_out}") from error


@contextmanager
def without_retries() -> Iterator[None]:
    """The hub's cache alone is asked where the hub cannot be reached: its library would try for a minute."""
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


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _reachable(address: str) -> bool:
    if any(os.environ.get(name) for name in PROXIES):
        return True  # the proxy will say
    split = urlsplit(address)
    with suppress(OSError), socket.create_connection((split.hostname or "", split.port or 443), PATIENCE):
        return True
    return False
