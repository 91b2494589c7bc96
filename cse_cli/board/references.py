"""What our runs of an encoder stand beside: papers' rows, what others measured, the field's public leaderboard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cse_cli.board import printed as printed_rows
from cse_cli.board.layouts import Layout
from cse_cli.board.shape import Row
from cse_cli.spread import Score
from registry import papers
from registry.papers import AVERAGE

FIELD = "the field's list"


def printed(encoder: str, language: str, layout: Layout) -> list[Row]:
    """Return the rows that papers print of an encoder, from tables that have all columns."""
    return [
        row.line().model_copy(update={"scores": layout.of_printed(row)})
        for row in printed_rows.rows()
        if (row.encoder, row.language) == (encoder, language) and layout.covered_by(row.table)
    ]


def merged(rows: Iterable[Row]) -> list[Row]:
    """Return rows that say the same as one: papers copy their baselines from each other."""
    found: dict[tuple[tuple[str, float, float | None], ...], Row] = {}
    for row in rows:
        key = tuple((heading, score.mean, score.std) for heading, score in row.scores.items())
        first = found.setdefault(key, row)
        if first is not row:
            found[key] = first.model_copy(
                update={
                    "printed": tuple(dict.fromkeys([*first.printed, *row.printed])),
                    "notes": tuple(dict.fromkeys([*first.notes, *row.notes])),
                    "recipe": first.recipe or row.recipe,
                }
            )
    return list(found.values())


def reproduced(recipes: Sequence[str | None], layout: Layout) -> list[Row]:
    """Return what others measured when they ran the methods of these recipes again, one row a source."""
    headings = {column.evaluator: column.heading for column in layout.columns}
    found: dict[tuple[str, str], Row] = {}
    for one in papers.reproductions():
        if one.recipe not in recipes or one.score not in headings:
            continue
        score = Score(mean=one.mean, std=one.std, n=one.n, low=one.low, high=one.high)
        row = found.get((one.recipe, one.source)) or Row(
            source="reproduction", name=f"{one.paper}: run again by others", printed=(one.source,), scores={},
            recipe=one.recipe, notes=(_told(one.recipe, one.source),),
        )  # fmt: skip
        found[one.recipe, one.source] = row.model_copy(update={"scores": {**row.scores, headings[one.score]: score}})
    return list(found.values())


def _told(recipe: str, source: str) -> str:
    same = [one for one in papers.reproductions() if (one.recipe, one.source) == (recipe, source)]
    ranges = ", ".join(f"{one.score} {one.low:.2f} to {one.high:.2f}" for one in same)
    runs = "one run" if same[0].n == 1 else f"{same[0].n} runs ({ranges})"
    return "; ".join(dict.fromkeys([f"{runs}, {source}", *(one.note for one in same if one.note)]))


def field(encoder: str, layout: Layout) -> list[Row]:
    """Return the field's rows of an encoder, where its columns are these."""
    headings = {column.evaluator: column.heading for column in layout.columns}
    found: list[Row] = []
    for one in papers.field():
        if one.encoder.lower() != encoder or set(layout.evaluators) != set(one.cells):
            continue
        scores = {headings[name]: Score(mean=value, std=one.spreads.get(name)) for name, value in one.cells.items()}
        doubtful = one.avg != one.avg_recomputed
        if AVERAGE in headings:
            scores[headings[AVERAGE]] = Score(
                mean=one.avg, std=one.spreads.get(AVERAGE), marks=("doubtful",) if doubtful else ()
            )
        wrong = f"the listed average is {one.avg:.2f}, that of its cells {one.avg_recomputed:.2f}" if doubtful else ""
        notes = tuple(filter(None, (one.note or wrong,)))
        found.append(Row(source="field", name=one.method, printed=(FIELD,), model=encoder, scores=scores, notes=notes))
    return found
