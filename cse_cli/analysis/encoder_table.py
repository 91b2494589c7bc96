"""All that is known of one encoder: printed rows, what others measured, and the best configuration of each recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from cse_cli.analysis.paper_tables import our_row
from cse_cli.analysis.papers import (
    Layout,
    LayoutColumn,
    PrintedRow,
    ScoreRow,
    ScoreTable,
    compare_with_printed,
    find_printed_row,
    layouts,
    merge_equal,
    printed_beside,
    reproduced,
)
from cse_cli.analysis.runs import Configuration
from cse_cli.core.multiple import correct_row
from cse_cli.core.stats import Score, score_against_untrained, score_alone

DEV = "dev"
"""Heading of the score that chose states and configurations; no paper prints it."""
CHOSEN = "dev: {}, which chose each run's state and, by its mean over seeds, the configuration shown of each recipe"


@dataclass(frozen=True)
class EncoderTable:
    """All that is known of one encoder in one layout."""

    encoder: str
    language: str
    layout: Layout
    members: tuple[Configuration, ...]

    def table(self, *, every: bool = False) -> ScoreTable:
        """Return the table: untrained encoders first, all else by its average."""
        printed = printed_beside(self.encoder, self.language, self.layout)
        known = [*merge_equal(printed), *reproduced([row.recipe for row in printed], self.layout)]
        chosen = [(configuration, 1) for configuration in self.members] if every else self.best()
        ours = [self._our_row(configuration, best_of) for configuration, best_of in chosen]
        untrained = self._untrained([configuration for configuration, _ in chosen])
        ranked = sorted([*known, *ours], key=self._rank)
        open_recipes = [] if self.members else list(dict.fromkeys(row.recipe for row in ranked if row.recipe))
        dev = self._dev
        return ScoreTable(
            kind="encoder",
            heading=f"{self.encoder} ({self.language}){f' [{self.layout.unit}]' if self.layout.unit else ''}",
            encoder=self.encoder,
            language=self.language,
            columns=tuple(column.heading for column in self._columns),
            rows=(*untrained, *_with_empty(ranked, open_recipes)),
            remarks=(CHOSEN.format(f"{dev.evaluator}.{dev.metric}"),) if dev else (),
            command=f"cse run {' '.join(open_recipes)} --seeds 5" if open_recipes else None,
        )

    def _rank(self, row: ScoreRow) -> tuple[bool, float]:
        score = row.scores.get(self.layout.ranking)
        return score is None, -score.mean if score else 0.0

    @cached_property
    def _columns(self) -> list[LayoutColumn]:
        """Return the score that chose, the papers' columns, and what our runs score besides."""
        dev = self._dev
        elsewhere = {name for layout in layouts(self.language) for name in layout.evaluators}
        known = {*self.layout.evaluators, *elsewhere, dev.evaluator if dev else ""}
        names = dict.fromkeys(name for member in self.members for name in member.results[0].scores)
        others = [LayoutColumn(name, name, None) for name in names if name not in known]
        return [*([dev] if dev else []), *self.layout.columns, *others]

    @cached_property
    def _dev(self) -> LayoutColumn | None:
        """Return the evaluator that chose most of the states, where it is not among the columns."""
        chose = Counter(c.latest.select for c in self.members if c.latest.select and not c.test_selected)
        if not chose:
            return None
        evaluator, _, metric = chose.most_common(1)[0][0].rpartition(".")
        return None if evaluator in self.layout.evaluators else LayoutColumn(DEV, evaluator, metric)

    def best(self) -> list[tuple[Configuration, int]]:
        """Return the best configuration of each recipe by its dev mean, and of how many.

        What the recipe's file says today goes before what it no longer says, several seeds before one.
        """
        methods: dict[tuple[str, bool], list[Configuration]] = {}
        for configuration in self.members:
            methods.setdefault((configuration.recipe, configuration.test_selected), []).append(configuration)
        best = [(max(of_one, key=self._quality), of_one) for of_one in methods.values()]
        return [(one, sum(other.stale == one.stale for other in of_one)) for one, of_one in best]

    def _quality(self, configuration: Configuration) -> tuple[bool, bool, float, float]:
        dev = self._dev
        values = self.layout.values(configuration, dev) if dev else []
        mean = fmean(values) if values else float("-inf")
        finished = configuration.latest.finished.timestamp()
        return not configuration.stale, len(configuration.seeds) > 1, mean, finished

    def _our_row(self, configuration: Configuration, best_of: int) -> ScoreRow:
        paper = configuration.latest.paper
        answered = find_printed_row(paper.key, paper.table, paper.row) if paper else None
        printed = self.layout.printed_scores(answered) if answered else {}
        scores: dict[str, Score] = {}
        for heading_column in self._columns:
            column = self._as_printed(heading_column, answered)
            values = self.layout.values(configuration, column)
            before = self.layout.values(configuration, column, untrained=True)
            if values and answered is None and before:
                scores[column.heading] = score_against_untrained(values, before)
            elif values:
                scores[column.heading] = compare_with_printed(values, printed.get(column.heading))
        return our_row(configuration, correct_row(scores, self.layout.ranking), answered, best_of)

    def _as_printed(self, column: LayoutColumn, answered: PrintedRow | None) -> LayoutColumn:
        """Return a column with the metric of the printed row, where that row has one of its own."""
        own = answered.table.rows[answered.name].score if answered is not None else None
        return column if own is None or column not in self.layout.columns else replace(column, metric=own)

    def _untrained(self, chosen: Sequence[Configuration]) -> list[ScoreRow]:
        """Return the encoder before training, once for all recipes that read it alike."""
        found: dict[tuple[tuple[str, str], ...], list[tuple[Configuration, dict[str, Score]]]] = {}
        for configuration in chosen:
            if configuration.latest.paper is not None:
                continue
            columns = [(c.heading, self.layout.values(configuration, c, untrained=True)) for c in self._columns]
            scores = {heading: score_alone(values) for heading, values in columns if values}
            if scores:
                key = tuple((heading, f"{score.mean:.2f}") for heading, score in scores.items())
                found.setdefault(key, []).append((configuration, scores))
        return [
            ScoreRow(
                source="untrained",
                name=f"{self.encoder}, before training"
                + (f" ({', '.join(configuration.recipe for configuration, _ in equal)})" if len(found) > 1 else ""),
                model=equal[0][0].latest.model,
                language=equal[0][0].latest.language,
                seeds=equal[0][0].seeds,
                scores=equal[0][1],
            )
            for equal in found.values()
        ]


def _with_empty(rows: Sequence[ScoreRow], recipes: Sequence[str]) -> Iterator[ScoreRow]:
    """Yield rows, and below the fullest that a recipe answers the row that its runs would fill."""
    answered = [
        max((row for row in rows if row.recipe == recipe), key=lambda row: len(row.scores)) for recipe in recipes
    ]
    for row in rows:
        yield row
        if any(row is one for one in answered):
            yield row.model_copy(
                update={"source": "ours", "answers": row.name, "printed": (), "scores": {}, "notes": ()}
            )
