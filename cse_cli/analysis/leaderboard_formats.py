"""A table as headings and lines of short texts: what terminal, Markdown and LaTeX have in common.

The leaderboard as Markdown, LaTeX, CSV and JSON.

The leaderboard as LaTeX tables: needs the package booktabs, compiles with pdflatex, xelatex and lualatex.

What tables of the leaderboard say in words: labels, trends, what is missing, what the marks mean.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cse_cli.analysis.papers import SCHEMA_VERSION, Block, Missing, Row, Source, Trend
from cse_cli.core.stats import LEGEND, SYMBOLS, Mark, Score

BESIDE = 3
"""Most columns of a table whose rows show paper and ours side by side."""


@dataclass(frozen=True)
class Text:
    """One cell; strong only where a difference is significant."""

    text: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Line:
    """One line.

    Args:
        label: Before its cells.
        cells: One a heading.
        source: Of the row it belongs to.
        below: Whether it goes with the line above.
    """

    label: str
    cells: tuple[Text, ...]
    source: Source
    below: bool = False


@dataclass(frozen=True)
class Grid:
    """One table.

    Args:
        headings: Over the cells.
        lines: In order.
        notes: Told below by number.
    """

    headings: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


def grid(block: Block, *, places: bool = True) -> Grid:
    """Return a table's lines: a study's short table has ours beside the paper's column, others have ours below.

    Args:
        block: The table.
        places: Say of each printed row where it is printed.
    """
    notes = tuple(dict.fromkeys(note for row in block.rows for note in row.notes))
    if block.kind == "study" and len(block.columns) <= BESIDE:
        return _beside(block, notes)
    lines = [line for row in block.rows for line in _stacked(row, block, notes, places)]
    return Grid(("n", *block.columns), tuple(lines), notes)


def _stacked(row: Row, block: Block, notes: tuple[str, ...], places: bool) -> Iterator[Line]:
    """Yield the cells of a row, of its spread and of its differences: short ones, so that a table stays narrow."""
    scores = [row.scores.get(column) for column in block.columns]
    label = row_label(row, block, places=places) + _numbers(row, notes)
    yield Line(label, (Text(_n(row)), *(Text(mean(s) if s else "") for s in scores)), row.source)
    if row.source != "untrained" and any(s and s.std is not None for s in scores):
        yield Line("±", (Text(), *(Text(_std(s)) for s in scores)), row.source, below=True)
    if any(s and s.difference is not None for s in scores):
        differences = (Text(difference(s), s.significant) if s else Text() for s in scores)
        yield Line(compared(row), (Text(), *differences), row.source, below=True)


def _n(row: Row) -> str:
    if row.source == "reproduction":
        return str(max((score.n for score in row.scores.values()), default=""))
    return str(len(row.seeds) or "")


def _numbers(row: Row, notes: tuple[str, ...]) -> str:
    return "".join(f" [{notes.index(note) + 1}]" for note in row.notes)


def _std(score: Score | None) -> str:
    return f"{score.std:.{score.digits}f}" if score and score.std is not None else ""


def _beside(block: Block, notes: tuple[str, ...]) -> Grid:
    """Return one line a printed row: the paper's cell, ours, spread, seeds and difference, of each column."""
    own = {row.name: row for row in block.rows if row.source == "ours"}
    printed = [row for row in block.rows if row.source == "paper"]
    headings = [heading for column in block.columns for heading in (column, "ours", "±", "n", "difference")]
    lines: list[Line] = []
    for row in printed:
        ours = own.get(row.name)
        cells = [text for column in block.columns for text in _pair(row, ours, column)]
        both = row.model_copy(update={"notes": (*row.notes, *(ours.notes if ours else ()))})
        lines.append(Line(row.name + _numbers(both, notes), tuple(cells), "ours" if ours else "paper"))
    kept = [place for place in range(len(headings)) if place % 5 == 0 or any(line.cells[place].text for line in lines)]
    short = [Line(line.label, tuple(line.cells[place] for place in kept), line.source) for line in lines]
    return Grid(tuple(headings[place] for place in kept), tuple(short), notes)


def _pair(printed: Row, ours: Row | None, column: str) -> Iterator[Text]:
    theirs = printed.scores.get(column)
    score = ours.scores.get(column) if ours else None
    yield Text(mean(theirs) if theirs else "")
    yield Text(mean(score) if score else "")
    yield Text(_std(score))
    yield Text(str(score.n) if score else "")
    yield Text(difference(score), score.significant) if score else Text()


_CSV = (
    "kind", "encoder", "language", "paper", "table", "study", "source", "name", "printed", "answers", "recipe",
    "recipe_hash", "settings", "model", "column", "n", "mean", "std", "reference", "difference", "significant", "marks",
    "implied", "notes",
)  # fmt: skip


def as_markdown(blocks: Sequence[Block]) -> str:
    """Return GitHub tables."""
    out: list[str] = []
    for block in blocks:
        shown = grid(block)
        header = ["", *shown.headings]
        out += [f"### {block.heading}", "", _md(header), _md(["---", *["---:"] * len(shown.headings)])]
        out += [_md(_md_cells(line)) for line in shown.lines]
        out += ["", *(f"[{number}] {note}  " for number, note in enumerate(shown.notes, 1))]
        out += [*(f"{remark}  " for remark in remarks(block)), ""]
    return "\n".join([*out, *(f"{line}  " for line in legend_lines(blocks, "bold")), ""])


def _md_cells(line: Line) -> list[str]:
    return [line.label, *(f"**{cell.text}**" if cell.strong else cell.text for cell in line.cells)]


def _md(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def as_csv(blocks: Sequence[Block]) -> str:
    """Return one line a cell, full precision, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV)
    for block in blocks:
        for row in block.rows:
            place = (block.kind, block.encoder, row.language or block.language, row.paper or block.paper)
            about = (row.table or block.table, block.study, row.source, row.name, "; ".join(row.printed), row.answers)
            recipe = (row.recipe, row.recipe_hash, "; ".join(row.settings), row.model)
            for column, score in row.scores.items():
                numbers = (score.n, score.mean, score.std, score.reference, score.difference, score.significant)
                marks = ("; ".join(score.marks), score.implied, "; ".join(row.notes))
                writer.writerow([*place, *about, *recipe, column, *numbers, *marks])
    return text.getvalue()


def as_json(blocks: Sequence[Block]) -> str:
    """Return one document."""
    tables = []
    for block in blocks:
        table = block.model_dump(mode="json")
        for row, plain in zip(block.rows, table["rows"], strict=True):
            for column, score in row.scores.items():
                plain["scores"][column]["difference"] = score.difference
        tables.append(table)
    return json.dumps({"schema_version": SCHEMA_VERSION, "tables": tables}, ensure_ascii=False, indent=2) + "\n"


_SPECIAL = {
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


def as_latex(blocks: Sequence[Block]) -> str:
    """Return one `table` environment a table."""
    legend = [escape_latex(line) for line in legend_lines(blocks, "bold")]
    return "\n".join(["% \\usepackage{booktabs}", *(_environment(block, legend) for block in blocks)]) + "\n"


def escape_latex(text: str) -> str:
    """Return text that LaTeX prints as it is; letters that its plain fonts lack are named by their code."""
    found = "".join(_SPECIAL.get(letter, letter) for letter in text)
    return re.sub(r"[^\x00-\x7f\u00c0-\u00ff]", lambda match: rf"\texttt{{U+{ord(match.group()):04X}}}", found)


def _environment(block: Block, legend: Sequence[str]) -> str:
    shown = grid(block)
    told = [f"[{number}] {note}" for number, note in enumerate(shown.notes, 1)] + remarks(block)
    below = [rf"\par {line}" for line in [*map(escape_latex, told), *legend]]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{escape_latex(block.heading)}}}",
            rf"\begin{{tabular}}{{l{'r' * len(shown.headings)}}}",
            r"\toprule",
            _latex_row([Text(), *map(Text, shown.headings)]),
            r"\midrule",
            *_lines(shown),
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\medskip\footnotesize\raggedright",
            *below,
            r"\end{table}",
        ]
    )


def _lines(shown: Grid) -> list[str]:
    return [(r"\quad" if line.below else "") + _latex_row([Text(line.label), *line.cells]) for line in shown.lines]


def _latex_row(cells: Sequence[Text]) -> str:
    # An opening bracket after the end of a line would be its optional argument.
    texts = [rf"\textbf{{{escape_latex(cell.text)}}}" if cell.strong else escape_latex(cell.text) for cell in cells]
    return f"{{}}{' & '.join(texts)} \\\\"


POSITIONS: tuple[Mark, ...] = ("within", "above", "below")
"""Marks of a difference; the others are doubts about the number itself."""
SPREAD = "±: sample standard deviation over the seeds, in a paper's row as printed"
NAMED = 6
"""Missing cells told by name."""


def row_label(row: Row, block: Block, *, places: bool = True) -> str:
    """Return what stands before a row's numbers.

    Args:
        row: The row.
        block: The table it stands in.
        places: Say where it is printed, too.
    """
    if row.source != "ours":
        where = f" · {', '.join(row.printed)}" if block.kind == "encoder" and row.printed and places else ""
        return row.name + (where if row.source in ("paper", "field") else "")
    settings = f" {', '.join(row.settings)}" if row.settings else ""
    best = f" (best of {row.configurations})" if row.configurations > 1 else ""
    if block.kind == "encoder":
        return f"{row.recipe}{settings}{best}"
    return f"ours: {row.recipe}{settings}, {row.model}"


def compared(row: Row) -> str:
    """Return what a row's differences are to."""
    return f"to {row.answers}" if row.answers else "to before training"


def remarks(block: Block) -> list[str]:
    """Return what stands below a table, besides the rows' notes."""
    doubts = block.remarks if block.kind == "encoder" else [f"whole table: {remark}" for remark in block.remarks]
    return [*doubts, *map(trend, block.trends), *missing(block.missing, block.command)]


def trend(one: Trend) -> str:
    """Return one trend as a sentence."""
    if one.rho is None or one.p is None:
        return f"trend, {one.along}: none can be told, one side is constant over {one.n} cells"
    how = "exact" if one.exact else "approximate"
    rho = f"{one.rho:+.2f}".replace("-", "−")
    return f"trend, {one.along}: rank correlation of ours with the paper's {rho} (n = {one.n}, p = {one.p:.2g}, {how})"


def missing(cells: Sequence[Missing], command: str | None) -> list[str]:
    """Return which cells lack runs, and the command that makes them."""
    if command is None:
        return []
    none = [_word_cell(cell) for cell in cells if not cell.seeds]
    few = [f"{_word_cell(cell)} ({cell.seeds} of {cell.wanted} seeds)" for cell in cells if cell.seeds]
    if not none and not few:
        return [f"no runs yet: {command}"]
    told = [f"{_short(none)} without runs"] if none else []
    told += [_short(few)] if few else []
    return [f"missing, {command}: {'; '.join(told)}"]


def _word_cell(cell: Missing) -> str:
    return f"{cell.row} · {', '.join(cell.columns)}" if cell.columns else cell.row


def _short(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def legend_lines(blocks: Iterable[Block], strong: str) -> list[str]:
    """Return a line for each mark that occurs, and for the spread.

    Args:
        blocks: The tables.
        strong: How this format shows that a difference is significant.
    """
    scores = [score for block in blocks for row in block.rows for score in row.scores.values()]
    used = {mark for score in scores for mark in score.marks}
    lines = [f"{SYMBOLS[mark]} {LEGEND[mark]}" for mark in SYMBOLS if mark in used]
    if any(score.std is not None for score in scores):
        lines.insert(0, SPREAD)
    if strong and any(score.significant for score in scores):
        lines.append(f"{strong}: only where above or below the spread")
    return lines


def mean(score: Score) -> str:
    """Return a number with the doubts about it."""
    return f"{score.mean:.{score.digits}f}{symbols(score, doubts=True)}"


def difference(score: Score) -> str:
    """Return a signed difference with its mark; nothing where there is none."""
    if score.difference is None:
        return ""
    return f"{score.difference:+.{score.digits}f}".replace("-", "−") + symbols(score, doubts=False)


def symbols(score: Score, *, doubts: bool) -> str:
    """Return the marks of a number itself, or of its difference."""
    return "".join(SYMBOLS[mark] for mark in score.marks if (mark not in POSITIONS) == doubts)
