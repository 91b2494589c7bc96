"""Garbage collection: rarely while a process of `cse` starts, as usual in training, completely between runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import CDLL

RARELY = 100_000
"""New objects between two collections. Python's default of 700 adds a quarter to the time of imports."""
_DEFAULT = gc.get_threshold()


def collect_rarely() -> None:
    """Collect garbage rarely in this process, which belongs to `cse`, because imports create objects that stay."""
    gc.set_threshold(RARELY)


@contextmanager
def usual_collection() -> Iterator[None]:
    """Undo `collect_rarely` inside the block: in training, few objects in a cycle can hold large tensors."""
    before = gc.get_threshold()
    gc.set_threshold(*_DEFAULT)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def free_memory() -> None:
    """Free the memory of the last run, as far as the allocators return it."""
    from registry.accelerators import empty_cache

    gc.collect()  # models are in reference cycles, and errors hold models
    if gc.get_threshold()[0] == RARELY:
        gc.freeze()  # the next collection takes 0.02 s instead of 0.4 s
    empty_cache()
    with suppress(OSError, AttributeError):  # only in glibc, which kept 2.2 GB of ten runs instead of 0.5 GB
        CDLL("libc.so.6").malloc_trim(0)
