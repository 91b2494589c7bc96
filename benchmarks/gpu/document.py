"""Output of the results of a part."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write(file: Path | None, found: dict[str, Any], lines: Sequence[str]) -> None:
    """Print lines of Markdown and write them with the measurements as JSON."""
    text = "\n".join(lines)
    print(text, flush=True)
    if file is not None:
        file.write_text(json.dumps({**found, "markdown": text}, indent=1) + "\n", encoding="utf-8")
