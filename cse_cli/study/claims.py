"""Who computes what: a claim a run, held by an open file's lock, so that it ends with its process however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from cse_cli.home import home


@contextmanager
def claim(recipe_hash: str, seed: int) -> Iterator[bool]:
    """Claim a run while the block lasts; yield whether it is ours, or another living process has it.

    Reaches as far as the state directory does: processes of one machine.
    """
    folder = home() / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    # The file stays: a lock on a file that somebody deletes meanwhile is a lock on nothing.
    lock = FileLock(folder / f"{recipe_hash}-{seed}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
