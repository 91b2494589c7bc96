"""Send a running run to its mirrors, each from its own thread.

Python handles signals in the main thread, so no signal interrupts a request, and training never waits for a tracker.
"""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event as Flag
from threading import Thread

from cse_cli.mirrors.mirror import GoneError, Mirror, configured, load
from cse_cli.mirrors.send import STEP_SECONDS, UPLOAD_SECONDS, Sender, reason, sync, warn
from cse_cli.runs.record import About

SEND_SECONDS = 2.0
"""Time between two checks for new events."""
RETRY_SECONDS = 30.0
"""Longest time between two attempts to reach a tracker."""


class Follower:
    """Sends a running run to its mirrors until `close`."""

    def __init__(self, about: About, names: list[str]) -> None:
        self._threads = [_MirrorThread(about, name) for name in names]

    def close(self, seconds: float = STEP_SECONDS) -> None:
        """Send the remaining events. Return when a tracker makes no progress for this time."""
        self.leave()
        for thread in self._threads:
            thread.finish(seconds)

    def leave(self) -> None:
        """Send the remaining events while this process runs, without waiting. Another process sends the rest."""
        for thread in self._threads:
            thread.closing.set()


def follow(about: About) -> Follower:
    """Send a run to the mirrors in `CSE_MIRRORS` while it runs."""
    return Follower(about, configured())


class _MirrorThread(Thread):
    """Sends one run to one mirror, and in between the remaining events of earlier runs."""

    def __init__(self, about: About, mirror: str) -> None:
        super().__init__(name=f"mirror-{mirror}", daemon=True)
        self._about, self._mirror = about, mirror
        self._sender: Sender | None = None
        self._failed: Exception | None = None
        self._wait = SEND_SECONDS
        self.closing = Flag()
        self.start()

    def run(self) -> None:
        """Send until the run is closed and all events are sent, or sending is impossible."""
        try:
            kind = load(self._mirror)
            sender = self._sender = Sender(self._about, kind)
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
        """Wait until all events are sent or a request takes too long. Warn if events are missing."""
        latest = time.monotonic() + seconds
        last = time.monotonic() + UPLOAD_SECONDS
        while self.is_alive() and time.monotonic() < max(latest, min(last, self._deadline)):
            self.join(0.05)
        if self.is_alive() or self._failed is not None:
            why = "no response" if self._failed is None else reason(self._failed)
            warn(
                f"{self._mirror} does not have all events of run {self._about.short}: {why}. "
                "The record is complete. To send the rest: cse runs sync"
            )

    @property
    def _deadline(self) -> float:
        return float("inf") if self._sender is None else self._sender.deadline

    def _follow(self, sender: Sender, kind: type[Mirror]) -> None:
        others = sync(kind, unsent=False)
        while True:
            closing = self.closing.is_set()
            self._send(sender)
            if closing:
                return
            wait = self._wait
            if self._failed is None:
                with suppress(Exception):  # an error of another run must not stop this one
                    began = time.monotonic()
                    if next(others, None) is not None:
                        wait = 3 * (time.monotonic() - began)  # leaves most of the processor to training
            self.closing.wait(wait)

    def _send(self, sender: Sender) -> None:
        try:
            sender.send()
            self._failed, self._wait = None, SEND_SECONDS
        except GoneError:
            raise
        except Exception as error:
            if self._failed is None and not self.closing.is_set():
                warn(f"{self._mirror} does not respond ({reason(error)}). The run continues and sends its events later")
            self._failed, self._wait = error, min(2 * self._wait, RETRY_SECONDS)
