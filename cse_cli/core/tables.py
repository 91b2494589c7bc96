"""A table as plain text, and its writers: terminal, tab-separated lines of a pipe, Markdown, LaTeX and CSV.

Texts are plain: each writer escapes them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table as RichTable
from rich.text import Text

from cse_cli.core.console import printable

EMPHASIS = {
    "measured": "cyan",
    "untrained": "dim",
    "baseline": "dim",
    "reproduction": "magenta",
    "community": "dim",
    "best": "green",
    "worse": "red",
    "main": "bold",
    "spread": "dim",
}
"""Emphasis of a row → style on a terminal."""

_LABEL_WIDTH = 12
"""Smallest width of the labels on a terminal."""


@dataclass(frozen=True)
class Cell:
    """One text of a table.

    Bold is a significant difference. `style` is a Rich style on a terminal, such as "green". Other writers ignore it.
    """

    text: str = ""
    strong: bool = False
    style: str = ""


@dataclass(frozen=True)
class Row:
    """One line of a table.

    `emphasis` is a key of `EMPHASIS`, or has no style. The label of a line `below` another, as standard deviations are,
    is indented.
    """

    label: str
    cells: tuple[Cell, ...]
    emphasis: str = ""
    below: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        caption: Title of the table.
        headings: Headings of the cells.
        rows: Lines of the table.
        notes: Notes below the table, numbered from 1. Labels refer to them as "[1]".
        label: Heading of the labels.
        align: One letter for each column, the labels first, as in LaTeX: "l" for words on one line, "p" for words that
            may wrap, "r" for numbers. Default: "p" for the labels and "r" for all others.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    label: str = ""
    align: str = ""

    @property
    def alignment(self) -> str:
        """One letter for each column, the labels first."""
        return self.align or "p" + "r" * len(self.headings)

    @property
    def numbered_notes(self) -> list[str]:
        """Notes with their numbers, as labels refer to them."""
        return numbered(self.notes)

    @property
    def texts(self) -> list[list[str]]:
        """Texts of the headings and of each row, labels first."""
        lines = ([row.label, *(cell.text for cell in row.cells)] for row in self.rows)
        return [[self.label, *self.headings], *lines]


def numbered(notes: Iterable[str]) -> list[str]:
    """Return notes with their numbers, from 1."""
    return [f"[{number}] {note}" for number, note in enumerate(notes, 1)]


def plain_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, align: str = "", caption: str = "") -> Table:
    """Return a table of plain texts, in `headings` and `rows` the labels first. Default alignment: words may wrap."""
    lines = tuple(Row(label, tuple(map(Cell, cells))) for label, *cells in rows)
    label, *others = headings
    return Table(caption, tuple(others), lines, label=label, align=align or "p" * len(headings))


def as_rich(table: Table, *, ruled: bool = False, gap: int = 2) -> RichTable:
    """Return the table for a terminal, without caption and notes. `gap` is the number of blanks between columns."""
    rich = RichTable(
        box=SIMPLE_HEAD if ruled else None, show_edge=False, pad_edge=False, padding=(0, gap - ruled, 0, 0)
    )
    for place, (heading, kind) in enumerate(zip(table.texts[0], table.alignment, strict=True)):
        if kind == "p":
            longest = max((len(row.label) for row in table.rows), default=0) if place == 0 else 0
            rich.add_column(Text(printable(heading)), overflow="fold", min_width=min(longest, _LABEL_WIDTH) or None)
        else:
            rich.add_column(Text(printable(heading)), justify="right" if kind == "r" else "left", no_wrap=True)
    for row in table.rows:
        label = Text(printable(_indented(row)))
        cells = (
            Text(printable(cell.text), " ".join(filter(None, ("bold" * cell.strong, cell.style)))) for cell in row.cells
        )
        rich.add_row(label, *cells, style=EMPHASIS.get(row.emphasis))
    return rich


def _indented(row: Row) -> str:
    return f"  {row.label}" if row.below else row.label


def as_rich_parts(table: Table, width: int, *, ruled: bool = False, gap: int = 2) -> list[RichTable]:
    """Return the table for a terminal, in several parts with the labels if its columns are too wide.

    Words wrap first. Numbers are never cut.
    """
    labels = [table.label, *map(_indented, table.rows)]
    columns = [labels, *([line[place] for line in table.texts] for place in range(1, len(table.headings) + 1))]
    longest = [max(map(cell_len, texts), default=0) for texts in columns]
    first, *others = (
        min(width, _LABEL_WIDTH) if kind == "p" else width for width, kind in zip(longest, table.alignment, strict=True)
    )
    parts: list[list[int]] = [[]]
    used = first
    for place, needed in enumerate(others):
        if parts[-1] and used + gap + needed > width:
            parts.append([])
            used = first
        parts[-1].append(place)
        used += gap + needed
    shown = []
    for places in parts:
        kinds = [(table.alignment[at], max(map(cell_len, columns[at]))) for at in (0, *(place + 1 for place in places))]
        rest = width - gap * len(places) - sum(needed for kind, needed in kinds if kind != "p")
        words = sorted(needed for kind, needed in kinds if kind == "p")
        while words and words[0] <= rest // len(words):  # columns whose words need not wrap
            rest -= words.pop(0)
        most = max(_LABEL_WIDTH, rest // len(words)) if words else width
        rows = tuple(
            replace(
                row,
                label=_broken(row.label, most),
                cells=tuple(
                    replace(cell, text=_broken(cell.text, most)) for cell in map(row.cells.__getitem__, places)
                ),
            )
            for row in table.rows
        )
        align = table.alignment[0] + "".join(table.alignment[place + 1] for place in places)
        part = replace(table, headings=tuple(table.headings[place] for place in places), rows=rows, align=align)
        shown.append(as_rich(part, ruled=ruled, gap=gap))
    return shown


def _broken(text: str, most: int) -> str:
    """Return a text with line breaks in words that are longer than `most`, after signs between their parts."""

    def broken(word: re.Match[str]) -> str:
        lines = [""]
        for piece in re.findall(r"[^/_.-]*[/_.-]?", word[0]):
            if lines[-1] and cell_len(lines[-1] + piece) > most:
                lines.append("")
            lines[-1] += piece
        return "\n".join(lines)

    return re.sub(rf"\S{{{most + 1},}}", broken, text)


def as_markdown(table: Table) -> str:
    """Return a GitHub table with the notes below, without caption and final line break."""
    rule = ["---:" if kind == "r" else "---" for kind in table.alignment]
    rows = [list(map(escape_markdown, table.texts[0])), rule]
    for row in table.rows:
        cells = [
            f"**{escape_markdown(c.text)}**" if c.strong and c.text else escape_markdown(c.text) for c in row.cells
        ]
        rows.append([("&emsp;" if row.below else "") + escape_markdown(row.label), *cells])
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    notes = "  \n".join(map(escape_markdown, table.numbered_notes))
    return "\n".join([*lines, "", notes] if notes else lines)


def escape_markdown(text: str) -> str:
    """Return plain text for Markdown on one line. It must not be at the beginning of a line."""
    line = printable(" ".join(text.split()))
    line = re.sub(r"([\\`*\[\]|~$])", r"\\\1", line)
    line = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)  # no markup inside a word
    return re.sub(r"&(?=#?\w+;)", "&amp;", line).replace("<", "&lt;")


def as_csv(rows: Iterable[Iterable[object]]) -> str:
    """Return comma-separated values. A text that a spreadsheet would compute gets an apostrophe."""
    text = io.StringIO()
    lines = ([f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell for cell in row] for row in rows)
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


_FORMULA = re.compile(r"\s*[=@]|\s*[+-](?![\d\s.,:;%()<…±−+-]*$)(?!(\d*\.?\d+(e[+-]?\d+)?|inf|nan)$)|[\t\r\n]")
"""Beginning of a text that spreadsheets compute. A sign begins a formula unless numbers or ranges follow."""


def as_tsv(table: Table) -> str:
    """Return tab-separated lines for a pipe, one line for each row."""
    lines = ([re.sub(r"[\t\r\n]+", " ", printable(text)) for text in line] for line in table.texts)
    return "".join("\t".join(line) + "\n" for line in lines)


def as_latex(table: Table, remarks: Sequence[str] = ()) -> str:
    """Return a `table` environment for booktabs, with remarks below the notes, without a final line break."""
    columns = "".join("r" if kind == "r" else "l" for kind in table.alignment)
    heading = Row(table.label, tuple(map(Cell, table.headings)))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{escape_latex(table.caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _latex_row(heading),
            r"\midrule",
            *map(_latex_row, table.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\medskip\footnotesize\raggedright",
            *(rf"\par {escape_latex(text)}" for text in (*table.numbered_notes, *remarks)),
            r"\end{table}",
        ]
    )


def _latex_row(row: Row) -> str:
    cells = [rf"\textbf{{{escape_latex(cell.text)}}}" if cell.strong else escape_latex(cell.text) for cell in row.cells]
    # After the end of a line, an opening bracket would begin its optional argument.
    return (r"\quad" if row.below else "") + f"{{}}{' & '.join([escape_latex(row.label), *cells])} \\\\"


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "→": r"$\to$", "≈": r"$\approx$", "≤": r"$\leq$",
    "≥": r"$\geq$", "√": r"$\surd$", "∞": r"$\infty$", "–": "--", "—": "---", "…": r"\dots{}", "’": "'", "‘": "`",
    "“": "``", "”": "''", "§": r"\S{}", "¹": "$^1$", "†": r"$^\dagger$", "‡": r"$^\ddagger$",
    "▲": r"$^\uparrow$", "▼": r"$^\downarrow$",
    "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\varepsilon$", "η": r"$\eta$",
    "θ": r"$\theta$", "λ": r"$\lambda$", "μ": r"$\mu$", "ρ": r"$\rho$", "σ": r"$\sigma$", "τ": r"$\tau$",
    "φ": r"$\varphi$", "ω": r"$\omega$", "♦": r"$\diamond$", "♢": r"$\diamond$", "•": r"$\bullet$",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Return plain text for LaTeX. Letters that its default fonts lack are written as their code point."""
    line = printable(re.sub(r"[\t\r\n\f\v]+", " ", text))  # an empty line would end a caption
    known = "".join(_LATEX.get(letter, letter) for letter in line)
    return re.sub(r"[^\x00-\x7f\u00c0-\u00ff]", lambda match: rf"\texttt{{U+{ord(match.group()):04X}}}", known)
