"""Differences from the first row of a study that papers report, next to the measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cse_cli.analysis.compare import ComparisonDocument
from cse_cli.analysis.compare_summary import interval_text
from cse_cli.analysis.paper_tables import trend
from cse_cli.analysis.verdict import p_text
from cse_cli.core.formatting import signed
from cse_cli.core.stats import Paired
from cse_cli.core.tables import Table, plain_table
from cse_cli.recipe.study_schema import Study
from registry.papers import AVERAGE
from registry.papers.averages import reported_difference


@dataclass(frozen=True)
class ReportedDifference:
    """A row's reported difference from the first row, and the measured one."""

    row: str
    reported: float
    measured: Paired

    @property
    def excluded(self) -> bool:
        """Whether the interval of the measured difference excludes the reported one."""
        low, high = self.measured.low, self.measured.high
        return low is not None and high is not None and not low <= self.reported <= high

    @property
    def is_gain(self) -> bool:
        """Whether the measured difference is significantly positive."""
        return self.measured.low is not None and self.measured.low > 0


def reported_differences(study: Study, document: ComparisonDocument) -> list[ReportedDifference]:
    """Return the rows that state a reported average, by its difference from that of the first row.

    Empty if the first row states none, or the rows are not compared by the average of the seven sets.
    """
    of_row = {row.row: row.reported for _, row in study.placed_rows() if row.reported}
    baseline = of_row.get(study.rows[0].row) if study.rows else None
    names = {side.letter: side.name for side in document.sides}
    found = []
    for one in document.comparisons:
        recipe = of_row.get(names[one.second])
        if baseline and recipe and one.main.metric == AVERAGE:
            difference = reported_difference(recipe, baseline)
            if difference is not None:
                found.append(ReportedDifference(names[one.second], difference, one.main.over_seeds))
    return sorted(found, key=lambda one: -one.reported)


def reported_parts(study: Study, document: ComparisonDocument) -> list[str | Sequence[str] | Table]:
    """Return the table of reported and measured differences and what follows from it, as parts of a report."""
    found = reported_differences(study, document)
    if not found:
        return []
    rows = [
        (one.row, signed(one.reported), signed(one.measured.difference), interval_text(one.measured)) for one in found
    ]
    gains = [one for one in found if one.reported > 0]
    lines = [
        f"reported gains: {len(gains)}; excluded by the interval: {sum(one.excluded for one in gains)}; measured as a "
        f"significant gain: {sum(one.is_gain for one in gains)}"
    ]
    along = trend(AVERAGE, [one.measured.difference for one in found], [one.reported for one in found])
    if along is not None and along.p is not None:
        lines.append(
            f"rank correlation of reported and measured differences over {along.n} rows: {signed(along.rho)} "
            f"({p_text(along.p)})"
        )
    about = "Differences of the averages that papers report for the same methods, usually with one seed:"
    return [about, plain_table(["row", "reported", "here", "interval"], rows, align="prrr"), lines]
