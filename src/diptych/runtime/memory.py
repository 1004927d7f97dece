"""What this process does with memory that it has freed, and with threads that wait."""

import ctypes
import errno
import os

VARIABLE = "DIPTYCH_MALLOC"  # "system": malloc stays as it is
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX, ARENA_MAX = -1, -2, -4, -8  # of glibc's malloc.h
NEVER = 2**31 - 1
_SPENT = ("allocate memory", "out of memory", "not enough memory", "start new thread")


def is_spent(error: Exception) -> bool:
    """Whether it is for want of memory, in the words of Python, of the system, of torch or of a GPU."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _SPENT)


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next step, and say whether it does.

    A step allocates and frees gigabytes in blocks of megabytes. glibc hands each back to the kernel, which fills it
    with zeros for the next one, page by page: 142,000 page faults a step of Unified VLP, none with this once it has its
    size, and 8% less CPU time. The process stays as large as its largest step. $DIPTYCH_MALLOC=system leaves malloc
    alone; other allocators (LD_PRELOAD) and other systems are left alone too.
    """
    return _set_malloc(((MMAP_MAX, 0), (TRIM_THRESHOLD, NEVER), (TOP_PAD, 64 << 20)))


def share_one_arena() -> bool:
    """Let all threads allocate from one place, and say whether they do; to be called before there are any, and before
    torch is imported.

    glibc gives each thread an arena of its own, which stays as large as that thread's largest moment. And oneDNN, and
    torch once more (LRU_CACHE_CAPACITY), keep what they made for 1,024 shapes of products: each size of a batch took 36
    MiB more, until all had come in every length. Here they keep 128, unless these variables are set.
    """
    for kept in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(kept, "128")
    return _set_malloc(((ARENA_MAX, 1),))


def sleep_while_waiting() -> None:
    """Threads of a product that wait for the others sleep, unless OMP_WAIT_POLICY is set; to be called before torch is
    imported. Awake, as is GNU OpenMP's way, they take the core that the others need wherever it is shared. Not for
    training: on two idle cores a small pre-training step takes 1.10 times as long (0.98 of the CPU seconds).
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _set_malloc(settings: tuple[tuple[int, int], ...]) -> bool:
    if os.environ.get(VARIABLE) == "system":
        return False
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - no glibc has no such name
        return all(libc.mallopt(name, value) == 1 for name, value in settings)
    except (AttributeError, OSError, TypeError):
        return False
