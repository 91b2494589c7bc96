"""Several processes at one study: the same command on each device, sharing through claims."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from cse_cli.processes.threads import environment

Say = Callable[[str, str], None]
"""Is given the name of a worker and a line it wrote."""


@dataclass(frozen=True)
class Ended:
    """What a worker leaves behind.

    Args:
        report: What it wrote on stdout; None where it died before.
    """

    name: str
    code: int
    report: dict[str, Any] | None


def share(arguments: Sequence[str], places: Sequence[str], say: Say) -> list[Ended]:
    """Run `cse run` with these arguments on every device at once, and return when the last has ended."""
    with TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number in range(len(places))]
        started = [_start(arguments, place, file, len(places)) for place, file in zip(places, files, strict=True)]
        names = [f"{number} {place}" for number, place in enumerate(places, 1)]
        readers = [
            Thread(target=_tell, args=(process, name, say), daemon=True)
            for process, name in zip(started, names, strict=True)
        ]
        try:
            for reader in readers:
                reader.start()
            for process in started:
                process.wait()
        except BaseException:
            for process in started:
                process.terminate()  # they record the end of their run, so that it can be taken up again
            raise
        finally:
            for process in started:
                process.wait()
            for reader in filter(Thread.is_alive, readers):
                reader.join()  # also of those that were asked to end: they say how to go on
        return [
            Ended(name, process.returncode, _report(file))
            for name, process, file in zip(names, started, files, strict=True)
        ]


def _start(arguments: Sequence[str], place: str, file: Path, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cse_cli", "run", *arguments, "--device", place, "--worker"]
    with file.open("wb") as out:
        # A session of its own: Ctrl-C reaches the parent alone, which ends each worker once.
        return subprocess.Popen(
            command,
            env=environment(count, place),
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def _tell(process: subprocess.Popen[str], name: str, say: Say) -> None:
    for line in process.stderr or ():
        if line.strip():
            say(name, line.rstrip())


def _report(file: Path) -> dict[str, Any] | None:
    with suppress(ValueError):
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return report
    return None
