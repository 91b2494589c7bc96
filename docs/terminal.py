"""Draw the output of a terminal: `python docs/terminal.py CAPTURE.ansi PICTURE.svg TITLE`.

CAPTURE is the output of `tmux capture-pane -e -p`, with its colors. The picture loads no font.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH = 84
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def picture(capture: str, title: str) -> str:
    """Return the SVG of a capture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(capture.rstrip()))
    return console.export_svg(title=title, theme=MONOKAI, code_format=_FORMAT, unique_id="terminal") + "\n"


if __name__ == "__main__":
    source, target, heading = sys.argv[1:]
    Path(target).write_text(picture(Path(source).read_text(encoding="utf-8"), heading), encoding="utf-8")
