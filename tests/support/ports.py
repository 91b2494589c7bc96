"""Ports for servers that tests start."""

import os
import random
import socket

_FIRST, _EACH, _PROCESSES = 20_000, 1_000, 12
"""Of each process of pytest, a thousand; all are below 32,768, from where the system gives ports to whoever asks for
any, as every client does that connects: a server needs seconds to take the port it was told."""
_given: set[int] = set()


def unused_port() -> int:
    """Return a port that is free, and that neither another test nor the system's choice takes meanwhile."""
    first = _FIRST + _EACH * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _PROCESSES)
    for port in random.SystemRandom().sample(range(first, first + _EACH), _EACH):
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise AssertionError(f"no port from {first} to {first + _EACH - 1} is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
