"""A page of the documentation as a notebook: its prose as Markdown cells, its Python blocks as code cells.

The first cell installs the checkout that contains the notebook.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(r"^```text\n.*?^```\n", re.MULTILINE | re.DOTALL)
_INSTALL = "%pip install -q -e ../.."
_REFERENCE = re.compile(r"^## Reference\n.*", re.MULTILINE | re.DOTALL)


def notebook(page: Path) -> str:
    """Return a page as a notebook, without what its blocks print (running it prints that) and without its reference."""
    text = _REFERENCE.sub("", _OUTPUT.sub("", page.read_text(encoding="utf-8")))
    pieces = _BLOCK.split(re.sub(r"\[([^\]]*)\]\((?:[\w/.]+\.(?:md|ipynb)(?:#[\w.-]+)?|#[\w.]+)\)", r"\1", text))
    cells = [_cell(-1, _INSTALL)]
    cells += [_cell(number, piece.strip()) for number, piece in enumerate(pieces) if piece.strip()]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def code_blocks(page: Path) -> list[str]:
    """Return the Python blocks of a page."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def _cell(number: int, source: str) -> dict[str, Any]:
    """Return a cell. Odd numbers are code."""
    lines = source.splitlines(keepends=True)
    if number % 2:
        return {"cell_type": "code", "id": f"c{number + 1}", "execution_count": None, "metadata": {}, "outputs": [],
                "source": lines}  # fmt: skip
    return {"cell_type": "markdown", "id": f"c{number + 1}", "metadata": {}, "source": lines}
