"""Ports for servers that tests start."""

from __future__ import annotations

import socket


def unused_port() -> int:
    """Return a port of the system's choice: one counted up from a number, tests beside this one would take too."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
