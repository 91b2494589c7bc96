"""The field's public hand-kept list with our runs among its rows, by encoder, and what answers each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cse_cli.analysis.encoder_table import EncoderTable
from cse_cli.analysis.experiments import Configuration
from cse_cli.analysis.paper_tables import our_row
from cse_cli.analysis.papers import Layout, ScoreRow, ScoreTable, compare_with_printed, encoder_of, layouts, model_name
from cse_cli.analysis.runs_here import RunsHere
from cse_cli.core.multiple import correct_row
from cse_cli.core.results import STS_TASKS
from cse_cli.core.stats import Mark, Score
from registry import papers
from registry.papers import AVERAGE, FieldRow

LANGUAGE = "en"
"""Of the list."""
ROUNDED = 0.015
"""A listed average that is further from the mean of its cells is doubtful, and its note says so."""


def field_tables(
    ran: Sequence[Configuration], here: RunsHere, encoder: str | None = None, *, every: bool = False
) -> list[ScoreTable]:
    """Return the list's rows with our runs among them, one table an encoder, in the list's order of encoders.

    Args:
        ran: Our runs; those on other encoders are left out.
        here: Who ran a row.
        encoder: Only this one.
        every: All configurations of a recipe, not only the best by its dev mean, and only encoders that have runs.
    """
    layout = next(one for one in layouts(LANGUAGE) if set(one.evaluators) == set(STS_TASKS))
    listed: dict[str, list[FieldRow]] = {}
    for row in papers.field_rows():
        listed.setdefault(row.encoder, []).append(row)
    found = []
    for name, rows in listed.items():
        members = tuple(one for one in ran if field_encoder(one) == model_name(name) and layout.scored(one))
        if encoder in (None, model_name(name)) and (members or not every):
            found.append(_FieldTable(name, layout, tuple(rows), members, here).table(every=every))
    return found


def field_encoder(configuration: Configuration) -> str:
    """Return the encoder under which the list has our runs, or would have them: GloVe stands with BERT base."""
    if configuration.status != "other_model":
        for row in papers.field_rows():
            if row.recipe in configuration.names:
                return model_name(row.encoder)
    return encoder_of(configuration) if configuration.latest.language == LANGUAGE else ""


@dataclass(frozen=True)
class _FieldTable:
    """The list's rows of one encoder, with our runs."""

    encoder: str
    layout: Layout
    listed: tuple[FieldRow, ...]
    members: tuple[Configuration, ...]
    here: RunsHere

    def table(self, *, every: bool) -> ScoreTable:
        """Return the rows by their averages, the best first; ours below the row that its recipe answers."""
        chosen = [(one, 1) for one in self.members] if every else self._best()
        blocks = [self._block(row, chosen) for row in self.listed]
        answered = {row.recipe for row in self.listed if row.recipe}
        blocks += [[self._ours(*one, None)] for one in chosen if answered.isdisjoint(one[0].names) or _other(one[0])]
        return ScoreTable(
            kind="field",
            heading=f"{self.encoder}: the field's list{f' [{self.layout.unit}]' if self.layout.unit else ''}",
            encoder=model_name(self.encoder),
            language=LANGUAGE,
            columns=tuple(column.heading for column in self.layout.columns),
            rows=tuple(row for block in sorted(blocks, key=self._rank) for row in block),
        )

    def _best(self) -> list[tuple[Configuration, int]]:
        return EncoderTable(model_name(self.encoder), LANGUAGE, self.layout, self.members).best()

    def _rank(self, block: Sequence[ScoreRow]) -> tuple[bool, float]:
        score = block[0].scores.get(self.layout.ranking)
        return score is None, -score.mean if score else 0.0

    def _block(self, listed: FieldRow, chosen: Sequence[tuple[Configuration, int]]) -> list[ScoreRow]:
        """Return a row and our runs of the recipe that answers it."""
        row = self._row(listed)
        own = [one for one in chosen if listed.recipe in one[0].names and not _other(one[0])]
        return [row, *(self._ours(*one, (listed, row)) for one in own)]

    def _row(self, listed: FieldRow) -> ScoreRow:
        cells = listed.cells | {AVERAGE: listed.avg}
        marks: tuple[Mark, ...] = ("doubtful",) if abs(listed.avg - listed.avg_recomputed) > ROUNDED else ()
        return ScoreRow(
            source="field",
            name=listed.method,
            printed=("the field's list",),
            recipe=listed.recipe or None,
            model=model_name(listed.encoder),
            language=LANGUAGE,
            scores={
                column.heading: Score(
                    mean=cells[column.evaluator],
                    std=listed.spreads.get(column.evaluator),
                    marks=marks if column.evaluator == AVERAGE else (),
                )
                for column in self.layout.columns
            },
            notes=(listed.note,) if listed.note else (),
            here=(self.here.listed(listed),),
        )

    def _ours(self, configuration: Configuration, best_of: int, beside: tuple[FieldRow, ScoreRow] | None) -> ScoreRow:
        """Return a row of our seeds, compared with the listed row that they answer."""
        scores = dict(self._scores(configuration, beside))
        made = our_row(configuration, correct_row(scores, self.layout.ranking), None, best_of)
        return made.model_copy(update={"answers": beside[0].method if beside else None})

    def _scores(
        self, configuration: Configuration, beside: tuple[FieldRow, ScoreRow] | None
    ) -> Iterator[tuple[str, Score]]:
        for column in self.layout.columns:
            asked = replace(column, metric=beside[0].score) if beside else column
            if values := self.layout.values(configuration, asked):
                printed = beside[1].scores[column.heading] if beside else None
                yield column.heading, compare_with_printed(values, printed, configuration.plan.mode)


def _other(configuration: Configuration) -> bool:
    """Return whether runs are of another model than their recipe's: they answer no row of it."""
    return configuration.status == "other_model"
