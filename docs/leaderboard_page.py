"""Leaderboard of the site: published results, the community leaderboard, and results of this project."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from markdown_table import cell, table

from cse_cli.analysis.experiments import FinishedRuns
from cse_cli.analysis.leaderboard import LeaderboardQuery, score_tables
from cse_cli.analysis.papers import model_name
from cse_cli.analysis.score_table import ScoreRow, ScoreTable
from cse_cli.recipe.load import load
from registry.papers import LISTS, listed_rows

MEASURED = Path(__file__).parent / "results" / "one_budget.md"
"""Page with the results of this project."""
STUDY = Path(__file__).parents[1] / "recipes" / "studies" / "open" / "methods.toml"
"""Study that made them."""
AVERAGE = "Avg"
USUAL = "STS12"
"""Column of the tables with the seven English STS sets, which have only the encoder in their name."""
REPRODUCTION = "reproduction by others"


def leaderboard() -> str:
    """Return the page."""
    nothing = FinishedRuns([])
    listed = score_tables(nothing, LeaderboardQuery(community=True))
    printed = score_tables(nothing, LeaderboardQuery())
    sections = [_measured(), *(_section(one) for one in [*listed, *printed])]
    names = [name for name, _ in sections]
    return "\n\n".join(
        [
            "---\nhide: [toc]\n---\n\n# Leaderboard",
            "Published results of each encoder from the papers of this project and from the community leaderboard, and "
            "results of this project. A number with **?** is doubtful: see the notes below its table. Click a heading "
            "to sort. `cse leaderboard` adds your runs and tests the differences: "
            "[reading the leaderboard](../leaderboard.md).",
            '<section class="leaderboard" markdown>',
            _form(names),
            *(text for _, text in sections),
            "</section>",
        ]
    )


def _form(names: list[str]) -> str:
    options = "".join(f"<option>{escape(name)}</option>" for name in names)
    return (
        f'<form class="filter"><label>Encoder <select><option value="">all</option>{options}</select></label> '
        '<label>Find <input type="search" placeholder="method, paper or recipe"></label></form>'
    )


def _part(name: str, *paragraphs: str) -> tuple[str, str]:
    text = "\n\n".join(filter(None, paragraphs))
    return name, f'<div data-encoder="{escape(name)}" markdown>\n\n## {name}\n\n{text}\n\n</div>'


def _section(printed: ScoreTable) -> tuple[str, str]:
    """Return an encoder's name and its table."""
    columns = sorted(printed.columns, key=lambda name: name != AVERAGE)
    scored = [name for name in columns if name != AVERAGE]
    rows = [row for row in printed.rows if row.source != "measured"]
    notes = list(dict.fromkeys(note for row in rows for note in row.notes))
    shown = [[_name(row, notes), *(_score(row, name) for name in columns), _source(row), _recipe(row)] for row in rows]
    header = ["method", *columns, "reported in", "recipe"]
    if printed.kind == "community":
        shown = [[*cells[:-2], _answer(row)] for cells, row in zip(shown, rows, strict=True)]
        header = ["method", *columns, "recipe"]
    folded = [f"    {number}. {note}" for number, note in enumerate(notes, 1)]
    name = f"{printed.encoder} ({printed.language})" + ("" if USUAL in columns else f": {', '.join(scored)}")
    return _part(
        f"{name}: {LISTS[str(printed.table)]}" if printed.kind == "community" else name,
        _counts(rows) if printed.kind == "community" else "",
        table(header, shown),
        "\n".join(['??? note "Notes"', "", *folded]) if notes else "",
    )


def _name(row: ScoreRow, notes: list[str]) -> str:
    numbers = ", ".join(str(notes.index(note) + 1) for note in row.notes)
    return cell(row.name) + (f" <sup>{numbers}</sup>" if numbers else "")


def _score(row: ScoreRow, column: str) -> str:
    score = row.scores.get(column)
    if score is None:
        return ""
    spread = f"\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{score.std:.{score.digits}f}" if score.std is not None else ""
    return f"{score.mean:.{score.digits}f}{spread}{'?' if 'doubtful' in score.marks else ''}"


def _source(row: ScoreRow) -> str:
    return (
        f"{REPRODUCTION}: <{row.reported_in[0]}>" if row.source == "reproduction" else cell(", ".join(row.reported_in))
    )


def _recipe(row: ScoreRow) -> str:
    return f"`{row.recipe}`" if row.recipe else ""


def _answer(row: ScoreRow) -> str:
    """Return the recipe of a row of the community leaderboard, or the reason why there is no recipe."""
    return _recipe(row) or cell(_reason(row) or "no recipe yet")


def _reason(row: ScoreRow) -> str:
    """Return the reason why no recipe reproduces a row of the community leaderboard, or an empty string."""
    found = (
        one
        for one in listed_rows()
        if (one.method, model_name(one.encoder), LISTS[one.list]) == (row.name, row.model, row.reported_in[0])
    )
    return f"reason: {reason}" if (reason := next(found).not_reproduced_because) else ""


def _counts(rows: Sequence[ScoreRow]) -> str:
    recipes = sum(row.recipe is not None for row in rows)
    reasons = sum(bool(_reason(row)) for row in rows)
    rest = len(rows) - recipes - reasons
    return f"{len(rows)} rows: {recipes} have a recipe, {reasons} have a reason why not, {rest} have no recipe yet."


def _measured() -> tuple[str, str]:
    """Return the results of this project from the first table of their page."""
    recipes = {row["row"]: row["recipe"] for row in tomllib.loads(STUDY.read_text(encoding="utf-8"))["study"]["rows"]}
    result = MEASURED.read_text(encoding="utf-8").partition("## Result")[2]
    _, *rows = _rows(result)
    _, *chosen = _rows(result[result.index("| row | trials |") :])
    settings = {name: _changed(recipes[name], of.replace("\\", "")) for name, _, of in chosen}
    shown = [
        [name, score, difference, f"`{recipes[name]}`{settings.get(name, '')}" if name in recipes else ""]
        for name, _, score, difference, *_ in rows
    ]
    return _part(
        "mini_en (en), results of this project",
        "The small encoder of the package, average of the seven sets. All rows have the same text. Those with ± "
        "have five seeds. The trained methods have the same budget, and settings that six trials chose: a setting next "
        "to a recipe replaces the recipe's own. "
        "[Protocol, tests and conclusions](one_budget.md).",
        table(["method", AVERAGE, "difference from SimCSE", "recipe"], shown),
    )


def _changed(recipe: str, settings: str) -> str:
    """Return the chosen settings of a row that differ from its recipe."""
    resolved = load(recipe).recipe.hash()
    each = re.split(r", (?=[a-z_]+\.)", settings)
    return "".join(f" `{one}`" for one in each if load(recipe, [one]).recipe.hash() != resolved)


def _rows(page: str) -> Iterator[list[str]]:
    """Yield the rows of a page's first table, without the line of dashes."""
    lines = page.split("\n")
    first = next(place for place, line in enumerate(lines) if line.startswith("|"))
    for line in lines[first:]:
        if not line.startswith("|"):
            return
        cells = [text.strip() for text in line.strip("|").split("|")]
        if not set(line) <= set("|-: "):
            yield cells
