"""All scores of one encoder: reported rows, results of others, and the best configuration of each recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from cse_cli.analysis.experiments import Configuration
from cse_cli.analysis.layouts import LayoutColumn, ScoreLayout, layouts
from cse_cli.analysis.measured_rows import best_configurations, layout_scores, measured_row, selecting_column
from cse_cli.analysis.papers import find_reported_row, merge_equal, reported_for, reproductions_of
from cse_cli.analysis.score import Score, score_alone
from cse_cli.analysis.score_table import ScoreRow, ScoreTable

SELECTED = "{}: {}. It selected the state of each run and, by its mean over seeds, the configuration of each recipe."


@dataclass(frozen=True)
class EncoderTable:
    """All scores of one encoder in one layout."""

    encoder: str
    language: str
    layout: ScoreLayout
    members: tuple[Configuration, ...]

    def table(self, *, every: bool = False) -> ScoreTable:
        """Return the table with untrained encoders first. `every` shows all configurations of a recipe."""
        reported = reported_for(self.encoder, self.language, self.layout)
        known = [*merge_equal(reported), *reproductions_of((row.recipe for row in reported), self.layout)]
        chosen = [(one, 1) for one in self.members] if every else best_configurations(self.members, self.layout)
        measured = [self._measured(configuration, best_of) for configuration, best_of in chosen]
        untrained = self._untrained([configuration for configuration, _ in chosen])
        ranked = sorted([*known, *measured], key=self._rank)
        open_recipes = [] if self.members else list(dict.fromkeys(row.recipe for row in ranked if row.recipe))
        dev = selecting_column(self.members)
        return ScoreTable(
            kind="encoder",
            heading=f"{self.encoder} ({self.language}){self.layout.unit_text}",
            encoder=self.encoder,
            language=self.language,
            columns=tuple(column.heading for column in self._columns),
            rows=(*untrained, *_with_empty(ranked, open_recipes)),
            remarks=() if dev is None else (self._remark(dev),),
            command=f"cse run {' '.join(open_recipes)} --seeds 5" if open_recipes else None,
        )

    def _remark(self, dev: LayoutColumn) -> str:
        headings = (column.heading for column in self.layout.columns if column.evaluator == dev.evaluator)
        return SELECTED.format(next(headings, dev.heading), f"{dev.evaluator}.{dev.metric}")

    def _rank(self, row: ScoreRow) -> tuple[bool, float, str]:
        score = row.scores.get(self.layout.ranking)
        by_name = "" if self.layout.ranking else row.recipe or ""
        return score is None, -score.mean if score else 0.0, by_name

    @cached_property
    def _columns(self) -> list[LayoutColumn]:
        """Columns: the score that selected states, those of the layout, then evaluators that no paper reports."""
        dev = selecting_column(self.members)
        dev = None if dev is None or dev.evaluator in self.layout.evaluators else dev
        elsewhere = {name for layout in layouts(self.language) for name in layout.evaluators}
        known = {*self.layout.evaluators, *elsewhere, dev.evaluator if dev else ""}
        names = dict.fromkeys(name for member in self.members for name in member.results[0].scores)
        others = [LayoutColumn(name, name, None) for name in names if name not in known]
        return [*([dev] if dev else []), *self.layout.columns, *others]

    def _measured(self, configuration: Configuration, best_of: int) -> ScoreRow:
        paper = configuration.latest.paper
        row = find_reported_row(paper.key, paper.table, paper.row) if paper else None
        reported = self.layout.reported_scores(row) if row else None
        metric = row.table.rows[row.name].score if row else None
        scores = layout_scores(configuration, self.layout, self._columns, reported, metric)
        return measured_row(configuration, scores, row, best_of)

    def _untrained(self, chosen: Sequence[Configuration]) -> list[ScoreRow]:
        """Return the encoder before training, one row for all recipes that give it the same scores."""
        found: dict[tuple[tuple[str, str], ...], list[tuple[Configuration, dict[str, Score]]]] = {}
        for configuration in chosen:
            if configuration.latest.paper is None:
                columns = [(c.heading, self.layout.values(configuration, c, untrained=True)) for c in self._columns]
                scores = {heading: score_alone(values) for heading, values in columns if values}
                key = tuple((heading, f"{score.mean:.2f}") for heading, score in scores.items())
                found.setdefault(key, []).append((configuration, scores))
        found.pop((), None)
        rows = []
        for equal in found.values():
            first, scores = equal[0]
            recipes = f" ({', '.join(configuration.recipe for configuration, _ in equal)})" if len(found) > 1 else ""
            rows.append(
                ScoreRow(
                    source="untrained",
                    name=f"{self.encoder}, before training{recipes}",
                    model=first.latest.model,
                    language=first.latest.language,
                    seeds=first.seeds,
                    scores=scores,
                )
            )
        return rows


def _with_empty(rows: Sequence[ScoreRow], recipes: Sequence[str]) -> Iterator[ScoreRow]:
    """Yield rows, and below the fullest row of each recipe an empty row for its runs."""
    fullest = [
        max((row for row in rows if row.recipe == recipe), key=lambda row: len(row.scores)) for recipe in recipes
    ]
    empty = {"source": "measured", "reported_in": (), "scores": {}, "notes": ()}
    for row in rows:
        yield row
        if any(row is one for one in fullest):
            yield row.model_copy(update={**empty, "reproduces": row.name})
