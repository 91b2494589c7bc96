"""One message if the disk fills during a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cse_cli.runs.record import folder_of
from cse_cli.training.checkpoint import FILE, PREVIOUS
from registry.errors import DiskError
from registry.paths import no_room


@contextmanager
def explain_full_disk(run_id: str) -> Iterator[None]:
    """Turn the error of a full disk into one message, and free space to record the end of the run.

    Raises:
        DiskError: If the disk is full.
    """
    try:
        yield
    except Exception as error:
        if (reason := no_room(error)) is None:
            raise
        directory = folder_of(run_id)
        for file in (directory / FILE).with_suffix(".partial"), directory / PREVIOUS:
            with suppress(OSError):
                file.unlink()
        target = getattr(error, "filename", None) or directory
        raise DiskError(
            f"run {run_id[:8]} stopped because {target} could not be written: {reason}",
            f"free space, then resume it: cse run --resume {run_id[:8]}",
            code="training.disk_full",
        ) from error
