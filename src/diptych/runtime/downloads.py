"""Contexts for downloads by other libraries: no retries without a network, and one error message."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pickle import UnpicklingError
from urllib.parse import urlsplit

from diptych.runtime.errors import CheckpointError

PATIENCE = 3.0  # seconds for the hub to answer
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@contextmanager
def downloading(what: str, way_out: str) -> Iterator[None]:
    """Turn the errors of a library into one CheckpointError; `way_out` is the command or step that mends it."""
    try:
        with without_retries():
            yield
    except (OSError, RuntimeError, ValueError, KeyError, ImportError, UnpicklingError) as error:
        raise CheckpointError(f"cannot get {what} ({first_line(error)}); {way_out}") from error


@contextmanager
def without_retries() -> Iterator[None]:
    """Use only the hub's cache if the hub cannot be reached: its library would retry for a minute."""
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
    """The first line of an error's message, at most 200 characters, or the name of its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _reachable(address: str) -> bool:
    if any(os.environ.get(name) for name in PROXIES):
        return True  # the proxy will report it
    split = urlsplit(address)
    with suppress(OSError), socket.create_connection((split.hostname or "", split.port or 443), PATIENCE):
        return True
    return False
