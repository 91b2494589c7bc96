"""Combine the output of the parts into summary.json and summary.md.

    python -m benchmarks.gpu.summary DIRECTORY

Reads DIRECTORY/parts.tsv (name, exit status, seconds, limit) and DIRECTORY/NAME.json of each part. Needs only Python.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TIMED_OUT = (124, 137)


def read(folder: Path) -> dict[str, Any]:
    """Return every part with its state and its result."""
    parts: dict[str, Any] = {}
    for line in (folder / "parts.tsv").read_text(encoding="utf-8").splitlines():
        name, status, seconds, limit = line.split("\t")
        file = folder / f"{name}.json"
        found = _json(file) if file.is_file() else None
        parts[name] = {
            "state": _state(int(status), found, needs=name != "tests"),
            "exit": int(status),
            "seconds": int(seconds),
            "limit": int(limit),
            "found": found,
        }
    return parts


def _state(status: int, found: Any, needs: bool) -> str:
    if status in TIMED_OUT:
        return "timed out"
    if status == SKIPPED:
        return "skipped: no time left"
    if status:
        return "failed"
    return "ok" if found is not None or not needs else "no output"


SKIPPED = 125
"""Exit status that the script writes if the total time is used up."""


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        return {"unreadable": str(error)}


def page(folder: Path, parts: dict[str, Any]) -> str:
    """Return the Markdown page with the states and the page of each part."""
    rows = [f"| {name} | {one['state']} | {one['seconds']} |" for name, one in parts.items()]
    text = ["| part | state | s |", "| --- | --- | ---: |", *rows]
    for name, one in parts.items():
        text += ["", f"## {name}", "", _of(folder, name, one)]
    return "\n".join(text) + "\n"


def _of(folder: Path, name: str, one: dict[str, Any]) -> str:
    found = one["found"]
    if isinstance(found, dict) and "markdown" in found:
        return str(found["markdown"])
    own, log = folder / f"{name}.md", folder / f"{name}.log"
    if own.is_file():
        return own.read_text(encoding="utf-8").strip()
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-15:] if log.is_file() else []
    return "\n".join(["```", *last, "```"])


def main(folder: Path) -> int:
    """Write both files and return 1 if a part failed."""
    parts = read(folder)
    good = all(one["state"] == "ok" for one in parts.values())
    document = {"schema_version": 1, "ok": good, "parts": parts}
    (folder / "summary.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / "summary.md").write_text(page(folder, parts), encoding="utf-8")
    for name, one in parts.items():
        print(f"{one['state']:<20} {one['seconds']:>4} s  {name}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
