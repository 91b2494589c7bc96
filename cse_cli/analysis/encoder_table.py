"""All that is known of one encoder: printed rows, what others measured, and the best configuration of each recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from cse_cli.analysis.experiments import Configuration
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
from cse_cli.core.multiple import correct_row
from cse_cli.core.stats import Score, score_against_untrained, score_alone

DEV = "dev"
"""Heading of the score that chose states and configurations; no paper prints it."""
CHOSEN = "{}: {}, which selected each run's state and, by its mean over seeds, the configuration shown of each recipe"


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
        dev = self._selecting(self.members)
        remark = CHOSEN.format(self._heading(dev), f"{dev.evaluator}.{dev.metric}") if dev else None
        return ScoreTable(
            kind="encoder",
            heading=f"{self.encoder} ({self.language}){f' [{self.layout.unit}]' if self.layout.unit else ''}",
            encoder=self.encoder,
            language=self.language,
            columns=tuple(column.heading for column in self._columns),
            rows=(*untrained, *_with_empty(ranked, open_recipes)),
            remarks=(remark,) if remark else (),
            command=f"cse run {' '.join(open_recipes)} --seeds 5" if open_recipes else None,
        )

    def _heading(self, dev: LayoutColumn) -> str:
        return next(
            (column.heading for column in self.layout.columns if column.evaluator == dev.evaluator), dev.heading
        )

    def _rank(self, row: ScoreRow) -> tuple[bool, float, str]:
        score = row.scores.get(self.layout.ranking)
        by_name = "" if self.layout.ranking else row.recipe or ""
        return score is None, -score.mean if score else 0.0, by_name

    @cached_property
    def _columns(self) -> list[LayoutColumn]:
        """Return the score that selected states, the papers' columns, and what our runs score besides."""
        dev = self._selecting(self.members)
        dev = None if dev is None or dev.evaluator in self.layout.evaluators else dev
        elsewhere = {name for layout in layouts(self.language) for name in layout.evaluators}
        known = {*self.layout.evaluators, *elsewhere, dev.evaluator if dev else ""}
        names = dict.fromkeys(name for member in self.members for name in member.results[0].scores)
        others = [LayoutColumn(name, name, None) for name in names if name not in known]
        return [*([dev] if dev else []), *self.layout.columns, *others]

    @staticmethod
    def _selecting(members: Sequence[Configuration]) -> LayoutColumn | None:
        """Return the score that selected most of the states, unless it is a test score."""
        selected = Counter(c.latest.select for c in members if c.latest.select and not c.test_selected)
        if not selected:
            return None
        evaluator, _, metric = selected.most_common(1)[0][0].rpartition(".")
        return LayoutColumn(DEV, evaluator, metric)

    def best(self) -> list[tuple[Configuration, int]]:
        """Return the best settings of each recipe by their dev mean, and of how many; all if nothing selects by dev.

        What the recipe's file or a `--set` says goes before what is stale, several seeds before one. Experiments that
        have the best settings in common are all returned: nothing chooses among these.
        """
        methods: dict[tuple[str, bool], list[Configuration]] = {}
        for configuration in self.members:
            methods.setdefault((configuration.origin or configuration.recipe, configuration.test_selected), []).append(
                configuration
            )
        return [shown for of_one in methods.values() for shown in self._best(of_one)]

    def _best(self, of_one: Sequence[Configuration]) -> list[tuple[Configuration, int]]:
        fresh = [one for one in of_one if not one.stale] or of_one
        dev = self._selecting(fresh)
        if dev is None:
            return [(one, 1) for one in fresh]
        best = max(fresh, key=lambda one: self._quality(one, dev))
        settings = {one.latest.recipe_hash for one in fresh}
        return [(one, len(settings)) for one in fresh if one.latest.recipe_hash == best.latest.recipe_hash]

    def _quality(self, configuration: Configuration, dev: LayoutColumn) -> tuple[bool, float, float]:
        values = self.layout.values(configuration, dev)
        mean = fmean(values) if values else float("-inf")
        return len(configuration.seeds) > 1, mean, configuration.latest.finished.timestamp()

    def _our_row(self, configuration: Configuration, best_of: int) -> ScoreRow:
        paper = configuration.latest.paper
        answered = find_printed_row(paper.key, paper.table, paper.row) if paper else None
        printed = self.layout.printed_scores(answered) if answered else {}
        mode, scores = configuration.plan.mode, dict[str, Score]()
        for heading_column in self._columns:
            column = self._as_printed(heading_column, answered)
            values = self.layout.values(configuration, column)
            before = self.layout.values(configuration, column, untrained=True)
            if values and answered is None and before:
                scores[column.heading] = score_against_untrained(values, before, mode)
            elif values:
                scores[column.heading] = compare_with_printed(values, printed.get(column.heading), mode)
            if values and not configuration.judges(column.evaluator):
                scores[column.heading] = scores[column.heading].with_p(None)
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
