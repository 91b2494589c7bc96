"""Output streams: control characters in untrusted text are printed as escapes."""

from __future__ import annotations

import codecs
import os
import re
import sys
from pathlib import Path
from typing import IO, Any

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters except tab, line feed and carriage return."""


def printable(text: str) -> str:
    r"""Return a text with its control characters as escapes, such as "\x1b"."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class PlainStream:
    """Text stream to a terminal that escapes control characters. Rich bypasses it to write its styles."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream
        """Stream that Rich writes to. Rich looks for this name."""

    def write(self, text: str) -> int:
        """Write a text with escaped control characters."""
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def unfiltered(stream: Any) -> IO[str]:
    """Return the stream that Rich writes to."""
    while (inner := getattr(stream, "rich_proxied_file", None)) is not None:
        stream = inner
    found: IO[str] = stream
    return found


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Return characters that an encoding lacks as JSON escapes, such as "\u2192", and their end."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


codecs.register_error("as_in_json", _escaped)


def make_usable() -> None:
    """Replace closed standard streams, and escape what their encoding lacks and control characters."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nothing = Path(os.devnull).open("r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nothing)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if getattr(stream, "errors", None) in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="as_in_json")
        if stream.isatty():
            setattr(sys, name, PlainStream(stream))
