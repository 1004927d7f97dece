"""LMDBs that tests write."""

import gc
from pathlib import Path
from typing import Any

import lmdb


def opened(folder: Path, **options: Any) -> Any:
    """An open LMDB. py-lmdb knows open ones by their inodes: a new file may have that of one that waits for `gc`."""
    gc.collect()
    return lmdb.open(str(folder), **options)
