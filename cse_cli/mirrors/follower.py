"""Sends a running run to its mirrors, each from a thread of the run's process.

Signals are handled in the main thread, so none interrupts a call to a tracker; and training does not wait for one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from cse_cli.core.paths import home
from cse_cli.mirrors.mirror import GoneError, Mirror, configured, load
from cse_cli.mirrors.send import STEP_SECONDS, UPLOAD_SECONDS, Sender, reason, warn
from cse_cli.mirrors.sync import Scope, Sent, sync
from cse_cli.runs.record import About

SEND_SECONDS = 2.0
"""Time between two looks at the events of the run."""
RETRY_SECONDS = 30.0
"""Longest time between two attempts to reach a tracker."""

_complete: set[tuple[Path, str]] = set()
"""State directories and mirrors that have everything of earlier runs, as far as this process knows."""


class Follower:
    """Sends a running run to its mirrors until `close`.

    Args:
        about: What the run is.
        names: Names of the mirrors.
    """

    def __init__(self, about: About, names: list[str]) -> None:
        self._threads = [_MirrorThread(about, name) for name in names]

    def close(self, seconds: float = STEP_SECONDS) -> None:
        """Send what is left, after the record's end. Returns once a tracker makes no progress for these seconds."""
        for thread in self._threads:
            thread.closing.set()
        for thread in self._threads:
            thread.finish(seconds)

    def leave(self) -> None:
        """Send what is left as long as this process runs, without waiting. Another process sends the rest."""
        for thread in self._threads:
            thread.closing.set()


def follow(about: About) -> Follower:
    """Send a run to the mirrors in `CSE_MIRRORS` while it runs.

    Raises:
        UnknownNameError: If there is no mirror of a name.
    """
    return Follower(about, configured())


class _MirrorThread(Thread):
    """Sends one run to one mirror; between its own events also what earlier runs left."""

    def __init__(self, about: About, mirror: str) -> None:
        super().__init__(name=f"mirror-{mirror}", daemon=True)
        self._about, self._mirror = about, mirror
        self.closing = Flag()
        self._until = float("inf")
        self._failed: Exception | None = None
        self._wait = SEND_SECONDS
        self.start()

    def run(self) -> None:
        """Send until the run is closed and everything is sent, or it cannot be."""
        try:
            kind = load(self._mirror)
            sender = Sender(self._about, kind, self._allow)
            while not sender.begin(SEND_SECONDS):
                if self.closing.is_set():
                    return  # another process sends the run
            try:
                self._follow(sender, kind)
            finally:
                sender.end()
        except GoneError:
            return
        except Exception as error:
            self._failed = error

    def finish(self, seconds: float) -> None:
        """Wait until everything is sent, or a step takes too long."""
        latest = time.monotonic() + seconds
        self._until = min(self._until, time.monotonic() + UPLOAD_SECONDS)
        while self.is_alive() and time.monotonic() < max(latest, self._until):
            self.join(0.05)
        if self.is_alive() or self._failed is not None:
            _complete.discard((home(), self._mirror))
            why = "no answer" if self._failed is None else reason(self._failed)
            warn(
                f"{self._mirror} does not have all of run {self._about.short} ({why}). "
                "The record is complete; `cse runs sync` sends the rest"
            )

    def _follow(self, sender: Sender, kind: type[Mirror]) -> None:
        others: Iterator[Sent] | None = None
        while True:
            closing = self.closing.is_set()
            self._send(sender)
            if closing:
                return
            if self._failed is None and (home(), self._mirror) not in _complete:
                _complete.add((home(), self._mirror))
                others = sync(kind, Scope(unsent=False), self._allow)
            if self._failed is None and others is not None:
                others = self._send_next(others)
            else:
                self.closing.wait(self._wait)

    def _send(self, sender: Sender) -> None:
        try:
            sender.send()
            self._failed, self._wait = None, SEND_SECONDS
        except GoneError:
            raise
        except Exception as error:
            if self._failed is None and not self.closing.is_set():
                warn(f"{self._mirror} does not answer ({reason(error)}). The run continues and sends its events later")
            self._failed, self._wait = error, min(2 * self._wait, RETRY_SECONDS)

    def _send_next(self, others: Iterator[Sent]) -> Iterator[Sent] | None:
        """Send one of the earlier runs and wait, to leave most of the processor to training; None after the last."""
        began = time.monotonic()
        with suppress(Exception):
            if next(others, None) is not None:
                self.closing.wait(3 * (time.monotonic() - began))
                return others
        return None

    def _allow(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
