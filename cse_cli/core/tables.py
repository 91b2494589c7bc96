"""One model of a table for every view, and its writers: terminal, Markdown, LaTeX, CSV, tab-separated lines.

Texts are plain: escaping is the writers' work. HTML is written by the page templates of `cse_cli.analysis`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from cse_cli.core.terminal import printable

EMPHASIS = {
    "ours": "cyan",
    "untrained": "dim",
    "reproduction": "magenta",
    "field": "dim",
    "best": "green",
    "worse": "red",
    "main": "bold",
    "spread": "dim",
}
"""What a row can stand out as, with its style on a terminal; in HTML it is the row's class."""

_LABEL_WIDTH = 12
"""Columns of a terminal that are left to the labels, however many numbers there are."""


@dataclass(frozen=True)
class Cell:
    """One text of a table.

    Args:
        text: As it is read.
        strong: Whether it is shown in bold: a significant difference.
        style: Rich style on a terminal, such as "green"; other writers ignore it.
    """

    text: str = ""
    strong: bool = False
    style: str = ""


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Args:
        label: Before its cells.
        cells: One a heading.
        emphasis: A key of `EMPHASIS`; other values have no style on a terminal.
        below: Whether it belongs to the line above, as a spread does: its label is indented.
    """

    label: str
    cells: tuple[Cell, ...]
    emphasis: str = ""
    below: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        caption: What it shows.
        headings: Over the cells.
        rows: In order.
        notes: Below the table, numbered from 1; labels refer to them as "[1]".
        label: Heading over the labels.
        align: A letter a column, the labels' first, in the manner of LaTeX: "l" words on one line, "p" words that may
            be wrapped, "r" numbers. By default "p" for the labels and "r" for all others.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    label: str = ""
    align: str = ""

    @property
    def alignment(self) -> str:
        """A letter a column, the labels' first."""
        return self.align or "p" + "r" * len(self.headings)

    @property
    def numbered_notes(self) -> list[str]:
        """The notes with their numbers, as labels refer to them."""
        return [f"[{number}] {note}" for number, note in enumerate(self.notes, 1)]

    @property
    def texts(self) -> list[list[str]]:
        """Headings, then a list of texts a row, labels first."""
        lines = ([row.label, *(cell.text for cell in row.cells)] for row in self.rows)
        return [[self.label, *self.headings], *lines]


def plain_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, align: str = "", caption: str = "") -> Table:
    """Return a table of plain texts.

    Args:
        headings: The first is the labels'.
        rows: One text a heading each.
        align: As in `Table`; by default words that may be wrapped.
        caption: What it shows.
    """
    lines = tuple(Row(label, tuple(map(Cell, cells))) for label, *cells in rows)
    label, *others = headings
    return Table(caption, tuple(others), lines, label=label, align=align or "p" * len(headings))


def as_rich(table: Table, *, ruled: bool = False, gap: int = 2) -> RichTable:
    """Return the table for a terminal, without caption and notes.

    Args:
        table: What to show.
        ruled: Draw a line below the headings.
        gap: Blanks between columns, at least one.
    """
    rich = RichTable(
        box=SIMPLE_HEAD if ruled else None, show_edge=False, pad_edge=False, padding=(0, gap - ruled, 0, 0)
    )
    for place, (heading, kind) in enumerate(zip([table.label, *table.headings], table.alignment, strict=True)):
        if kind == "p":
            longest = max((len(row.label) for row in table.rows), default=0) if place == 0 else 0
            rich.add_column(Text(printable(heading)), overflow="fold", min_width=min(longest, _LABEL_WIDTH) or None)
        else:
            rich.add_column(Text(printable(heading)), justify="right" if kind == "r" else "left", no_wrap=True)
    for row in table.rows:
        label = Text(f"{'  ' if row.below else ''}{printable(row.label)}")
        cells = (
            Text(printable(cell.text), " ".join(filter(None, ("bold" * cell.strong, cell.style)))) for cell in row.cells
        )
        rich.add_row(label, *cells, style=EMPHASIS.get(row.emphasis))
    return rich


def as_rich_parts(table: Table, width: int, *, ruled: bool = False, gap: int = 2) -> list[RichTable]:
    """Return the table for a terminal; as several, each with the labels, where its columns have no room side by side.

    Args:
        table: What to show.
        width: Columns of the terminal. Words are wrapped first; no number is cut.
        ruled: Draw a line below the headings.
        gap: Blanks between columns, at least one.
    """
    labels, *others = (_narrowest(texts, kind) for texts, kind in zip(_by_column(table), table.alignment, strict=True))
    parts: list[list[int]] = [[]]
    used = labels
    for place, needed in enumerate(others):
        if parts[-1] and used + gap + needed > width:
            parts.append([])
            used = labels
        parts[-1].append(place)
        used += gap + needed
    return [as_rich(_with_columns(table, places), ruled=ruled, gap=gap) for places in parts]


def _by_column(table: Table) -> Iterable[Sequence[str]]:
    """Yield heading and texts of each column, the labels' first, as a terminal shows them."""
    labels = [table.label, *(f"{'  ' if row.below else ''}{row.label}" for row in table.rows)]
    cells = ([heading, *(row.cells[place].text for row in table.rows)] for place, heading in enumerate(table.headings))
    return [labels, *cells]


def _narrowest(texts: Iterable[str], kind: str) -> int:
    """Return how many columns of a terminal these need at least: words may be wrapped."""
    longest = max(map(cell_len, texts), default=0)
    return min(longest, _LABEL_WIDTH) if kind == "p" else longest


def _with_columns(table: Table, places: Sequence[int]) -> Table:
    """Return the table with only some of its columns beside the labels."""
    rows = tuple(replace(row, cells=tuple(row.cells[place] for place in places)) for row in table.rows)
    align = table.alignment[0] + "".join(table.alignment[place + 1] for place in places)
    return replace(table, headings=tuple(table.headings[place] for place in places), rows=rows, align=align)


def fits(table: RichTable, width: int) -> bool:
    """Tell whether a table has room in `width` columns with nothing wrapped or cut."""
    return Console(width=10_000).measure(table).maximum <= width


def as_markdown(table: Table) -> str:
    """Return the table as GitHub reads it, notes below and without a last line break; the caption is not in it."""
    rule = ["---:" if kind == "r" else "---" for kind in table.alignment]
    header = [escape_markdown(heading) for heading in (table.label, *table.headings)]
    lines = [f"| {' | '.join(cells)} |" for cells in (header, rule, *map(_markdown_row, table.rows))]
    notes = "  \n".join(map(escape_markdown, table.numbered_notes))
    return "\n".join([*lines, "", notes] if notes else lines)


def _markdown_row(row: Row) -> list[str]:
    label = f"{'&emsp;' if row.below else ''}{escape_markdown(row.label)}"
    texts = [(escape_markdown(cell.text), cell.strong and cell.text) for cell in row.cells]
    return [label, *(f"**{text}**" if strong else text for text, strong in texts)]


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line; for where a line does not begin with it."""
    line = printable(" ".join(text.split()))
    line = re.sub(r"([\\`*\[\]|~$])", r"\\\1", line)
    line = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)  # inside a word it is only a letter
    return re.sub(r"&(?=#?\w+;)", "&amp;", line).replace("<", "&lt;")


def as_csv(table: Table) -> str:
    """Return headings and rows as comma-separated values."""
    return csv_lines(table.texts)


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """Return comma-separated values that a spreadsheet takes for what they are: no text of them for a formula."""
    text = io.StringIO()
    lines = ([_no_formula(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


_FORMULA = re.compile(r"\s*[=@]|\s*[+-](?![\d\s.,:;%()<…±−+-]*$)|[\t\r\n]")
"""How a text begins that spreadsheets compute; with a sign, unless it is a number or a range of numbers."""


def _no_formula(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_tsv(table: Table) -> str:
    """Return headings and rows as tab-separated lines, as a pipe gets them: one line a row whatever its texts are."""
    return "".join(
        "\t".join(re.sub(r"[\t\r\n]+", " ", printable(text)) for text in line) + "\n" for line in table.texts
    )


def as_latex(table: Table, remarks: Sequence[str] = ()) -> str:
    """Return a `table` environment for booktabs, without a last line break.

    Args:
        table: What to show.
        remarks: Plain texts below the notes.
    """
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
    # An opening bracket after the end of a line would be its optional argument.
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
    """Return text that LaTeX prints as it is; letters that its plain fonts lack are named by their code."""
    line = printable(re.sub(r"[\t\r\n\f\v]+", " ", text))  # an empty line would end a caption
    known = "".join(_LATEX.get(letter, letter) for letter in line)
    return re.sub(r"[^\x00-\x7f\u00c0-\u00ff]", lambda match: rf"\texttt{{U+{ord(match.group()):04X}}}", known)
