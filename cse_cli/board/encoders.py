"""The leaderboard proper: everything known of one encoder in one table, ours among it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from cse_cli.board import layouts, ours, references
from cse_cli.board.layouts import Column, Layout
from cse_cli.board.printed import encoder_of, find
from cse_cli.board.runs import Configuration
from cse_cli.board.shape import Block, Row
from cse_cli.spread import Score, alone, beside_one_run, beside_untrained

DEV = "dev"
"""Heading of the score that chose states and configurations; no paper prints it."""
CHOSEN = "dev: {}, which chose each run's state and, by its mean over seeds, the configuration shown of each recipe"


def blocks(ran: Sequence[Configuration], *, every: bool = False, field: bool = False) -> list[Block]:
    """Return one table for each encoder and language that has finished runs, and kind of scores.

    Args:
        ran: Our runs.
        every: All configurations of a recipe, not only the best by its dev mean.
        field: The field's public leaderboard too.
    """
    groups: dict[tuple[str, str], list[Configuration]] = {}
    for configuration in ran:
        groups.setdefault((encoder_of(configuration), configuration.latest.language), []).append(configuration)
    return [
        _Board(encoder, language, layout, tuple(members)).block(every=every, field=field)
        for (encoder, language), configurations in groups.items()
        for layout, members in _laid_out(language, configurations)
    ]


def _laid_out(
    language: str, configurations: Sequence[Configuration]
) -> Iterable[tuple[Layout, Sequence[Configuration]]]:
    """Yield the columns that papers print together, with the runs that stand in no earlier table with all they have."""
    shown: set[tuple[int, str, str | None]] = set()
    for layout in layouts.layouts(language):
        members = [
            (place, configuration)
            for place, configuration in enumerate(configurations)
            if {(place, *score) for score in layout.scored(configuration)} - shown
        ]
        if members:
            yield layout, [configuration for _, configuration in members]
        shown |= {(place, *score) for place, configuration in members for score in layout.scored(configuration)}
    places = {place for place, *_ in shown}
    yield from layouts.own([c for place, c in enumerate(configurations) if place not in places])


@dataclass(frozen=True)
class _Board:
    encoder: str
    language: str
    layout: Layout
    members: tuple[Configuration, ...]

    def block(self, *, every: bool, field: bool) -> Block:
        """Return the table: untrained encoders first, all else by its average."""
        printed = references.printed(self.encoder, self.language, self.layout)
        known = references.merged([*printed, *(references.field(self.encoder, self.layout) if field else [])])
        known += references.reproduced([row.recipe for row in printed], self.layout)
        chosen = [(configuration, 1) for configuration in self.members] if every else self._best()
        lines = [self._line(configuration, count) for configuration, count in chosen]
        untrained = self._untrained([configuration for configuration, _ in chosen])
        dev = self._dev()
        columns = [*([DEV] if dev else []), *self.layout.headings, *(column.heading for column in self._extra())]
        remarks = (CHOSEN.format(f"{dev.evaluator}.{dev.metric}"),) if dev else ()
        return Block(
            kind="encoder",
            heading=f"{self.encoder} ({self.language}){f' [{self.layout.unit}]' if self.layout.unit else ''}",
            encoder=self.encoder,
            language=self.language,
            columns=tuple(columns),
            rows=(*untrained, *sorted([*known, *lines], key=self._rank)),
            remarks=remarks,
        )

    def _rank(self, row: Row) -> tuple[bool, float]:
        score = row.scores.get(self.layout.ranking)
        return score is None, -score.mean if score else 0.0

    def _dev(self) -> Column | None:
        """Return the evaluator that chose most of the states, where it is not among the columns."""
        chose = Counter(c.latest.select for c in self.members if c.latest.select and not c.test_selected)
        if not chose:
            return None
        evaluator, _, metric = chose.most_common(1)[0][0].rpartition(".")
        return None if evaluator in self.layout.evaluators else Column(DEV, evaluator, metric)

    def _extra(self) -> list[Column]:
        """Return what our runs score besides."""
        dev = self._dev()
        elsewhere = {name for layout in layouts.layouts(self.language) for name in layout.evaluators}
        known = {*self.layout.evaluators, *elsewhere, dev.evaluator if dev else ""}
        names = dict.fromkeys(name for member in self.members for name in member.results[0].scores)
        return [Column(name, name, None) for name in names if name not in known]

    def _best(self) -> list[tuple[Configuration, int]]:
        """Return the best configuration of each recipe by its dev mean, and of how many.

        What the recipe's file says today goes before what it no longer says, several seeds before one.
        """
        methods: dict[tuple[str, bool], list[Configuration]] = {}
        for configuration in self.members:
            methods.setdefault((configuration.recipe, configuration.test_selected), []).append(configuration)
        best = [(max(of_one, key=self._quality), of_one) for of_one in methods.values()]
        return [(one, sum(other.stale == one.stale for other in of_one)) for one, of_one in best]

    def _quality(self, configuration: Configuration) -> tuple[bool, bool, float, float]:
        dev = self._dev()
        values = self.layout.values(configuration, dev) if dev else []
        mean = fmean(values) if values else float("-inf")
        finished = configuration.latest.finished.timestamp()
        return not configuration.stale, len(configuration.seeds) > 1, mean, finished

    def _line(self, configuration: Configuration, count: int) -> Row:
        asked = configuration.latest.paper
        answered = find(asked.key, asked.table, asked.row) if asked else None
        printed = layouts.numbers(self.layout.of_printed(answered)) if answered else {}
        scores: dict[str, Score] = {}
        for column in self._columns():
            values = self.layout.values(configuration, column)
            before = self.layout.values(configuration, column, untrained=True)
            if values and answered is None and before:
                scores[column.heading] = beside_untrained(values, before)
            elif values:
                scores[column.heading] = beside_one_run(values, printed.get(column.heading))
        place = {"paper": asked.key, "table": asked.table, "answers": asked.row} if asked and answered else {}
        return ours.line(configuration, scores).model_copy(update={**place, "configurations": count})

    def _columns(self) -> list[Column]:
        dev = self._dev()
        return [*([dev] if dev else []), *self.layout.columns, *self._extra()]

    def _untrained(self, chosen: Sequence[Configuration]) -> list[Row]:
        """Return the encoder before training, once for all recipes that read it alike."""
        found: dict[tuple[tuple[str, str], ...], list[tuple[Configuration, dict[str, Score]]]] = {}
        for configuration in chosen:
            if configuration.latest.paper is not None:
                continue
            columns = [(c.heading, self.layout.values(configuration, c, untrained=True)) for c in self._columns()]
            scores = {heading: alone(values) for heading, values in columns if values}
            if scores:
                key = tuple((heading, f"{score.mean:.2f}") for heading, score in scores.items())
                found.setdefault(key, []).append((configuration, scores))
        several = len(found) > 1
        return [_untrained(self.encoder, alike, several=several) for alike in found.values()]


def _untrained(encoder: str, alike: Sequence[tuple[Configuration, dict[str, Score]]], *, several: bool) -> Row:
    first, scores = alike[0]
    recipes = ", ".join(configuration.recipe for configuration, _ in alike)
    return Row(
        source="untrained",
        name=f"{encoder}, before training" + (f" ({recipes})" if several else ""),
        model=first.latest.model,
        language=first.latest.language,
        seeds=first.seeds,
        scores=scores,
    )
