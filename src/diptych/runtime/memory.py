"""Settings of this process: what happens with freed memory, and how threads wait."""

import ctypes
import errno
import os

VARIABLE = "DIPTYCH_MALLOC"  # "system": malloc stays as it is
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -2, -3, -4, -8  # from glibc's malloc.h
NEVER = 2**31 - 1
_SPENT = ("allocate memory", "out of memory", "not enough memory", "start new thread")


def is_spent(error: Exception) -> bool:
    """True if an error of Python, the system, torch or a GPU means that memory ran out."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _SPENT)


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next step. Returns True if it does.

    A step allocates and frees gigabytes in blocks of megabytes. glibc returns each to the kernel, which fills the next
    one with zeros, page by page: 142,000 page faults in a step of Unified VLP. With this setting there are none after
    the first steps, and 8% less CPU time. The process stays as large as its largest step. $DIPTYCH_MALLOC=system,
    other allocators (LD_PRELOAD) and other systems switch it off.
    """
    return _set_malloc(((MMAP_MAX, 0), (TRIM_THRESHOLD, NEVER), (TOP_PAD, 64 << 20)))


def keep_some_freed_memory() -> bool:
    """Let glibc keep up to 64 MiB of freed memory, in blocks below 32 MiB. Returns True if it does.

    For a process that decodes images one after another: a JPEG of 640 x 640 takes 1.3 ms instead of 2.1 ms. The
    memory of a large image is returned.
    """
    return _set_malloc(((MMAP_THRESHOLD, 32 << 20), (TRIM_THRESHOLD, 64 << 20)))


def share_one_arena() -> bool:
    """Let all threads allocate from one arena. Returns True if they do. Call it before threads and torch start.

    glibc gives each thread its own arena, which keeps its largest size. oneDNN and torch (LRU_CACHE_CAPACITY) both
    cache code for 1,024 shapes of products: each batch size took 36 MiB more until all lengths had occurred. Here they
    cache 128, unless these variables are set.
    """
    for kept in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(kept, "128")
    return _set_malloc(((ARENA_MAX, 1),))


def wait_briefly() -> None:
    """Let OpenMP threads spin shortly while they wait, then sleep. Call it before torch is imported.

    By default GNU's OpenMP spins 300,000 times, and on shared cores takes the time of the threads that it waits for.
    With four other processes on two cores, twelve steps of detector training took over 90 s, and take 10 s. On idle
    cores they take 1.05 times as long, and captions 0.6 times as long as with threads that sleep at once. A user's
    OMP_WAIT_POLICY or GOMP_SPINCOUNT is kept.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def _set_malloc(settings: tuple[tuple[int, int], ...]) -> bool:
    if os.environ.get(VARIABLE) == "system":
        return False
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - no glibc has no such name
        return all(libc.mallopt(name, value) == 1 for name, value in settings)
    except (AttributeError, OSError, TypeError):
        return False
