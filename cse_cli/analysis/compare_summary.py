"""Summary of a comparison of many methods: one line for each, sorted by the difference of the primary metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cse_cli.analysis.compare import ComparisonDocument, MetricComparison
from cse_cli.core.formatting import counted, interval, mean_text, p_value, signed
from cse_cli.core.identity import Mode
from cse_cli.core.plans import ASSUMED
from cse_cli.core.stats import Paired
from cse_cli.core.tables import Cell, Row, Table

FEW = 3
"""Number of comparisons up to which `cse compare` shows all details."""
MOST_NAMED = 6
"""Number of methods up to which a remark names them."""
BASELINE, NONE = "baseline", "—"
EMPHASIS = {"better": "best", "worse": "worse", BASELINE: "baseline"}
"""Verdict → emphasis of its line."""
_MODES: Mapping[Mode, str] = {
    "planned": "planned: the seeds were planned before the first run; one t test",
    "incomplete": "planned seeds are missing: there is no test before they finish",
    "assumed": f"{ASSUMED}: one t test, valid only if you fixed the number of seeds before the first run",
    "anytime": "anytime test: p and interval are valid however often you look and add seeds. A plan needs fewer seeds: "
    "`cse run RECIPE --seeds N`",
}


@dataclass(frozen=True)
class Line:
    """One line of a summary.

    Args:
        name: Name of the method. If every two are compared, the names of both.
        scores: Scores of the method for the seeds that it shares with the other one.
        tested: Its comparison by the primary metric. None for the method that all others are compared with.
    """

    name: str
    scores: tuple[float, ...]
    tested: MetricComparison | None = None

    @property
    def difference(self) -> float:
        """Mean difference over the shared seeds."""
        return 0.0 if self.tested is None else self.tested.over_seeds.difference

    @property
    def verdict(self) -> str:
        """Direction of a difference that the test shows, else a dash."""
        if self.tested is None:
            return BASELINE
        if self.tested.finding != "different":
            return NONE
        words = ("better", "worse") if self.tested.more_is_better else ("higher", "lower")
        return words[0 if self.difference > 0 else 1]


def baseline_of(document: ComparisonDocument) -> str:
    """Return the name of the method that all others are compared with. Empty if every two are compared."""
    letters = {one.first for one in document.comparisons}
    return next(side.name for side in document.sides if side.letter in letters) if len(letters) == 1 else ""


def summary_lines(document: ComparisonDocument, metric: str) -> list[Line]:
    """Return the comparisons with this primary metric and the method compared with, by difference, best first."""
    names = {side.letter: side.name for side in document.sides}
    baseline = baseline_of(document)
    lines: list[Line] = []
    scores: dict[int, float] = {}
    for one in document.comparisons:
        if one.main.metric == metric:
            over = one.main.over_seeds
            scores |= zip(over.seeds, over.first, strict=True)
            name = names[one.second] if baseline else f"{names[one.second]} − {names[one.first]}"
            lines.append(Line(name, over.second, one.main))
    if baseline:
        lines.insert(0, Line(baseline, tuple(scores[seed] for seed in sorted(scores))))
    return sorted(lines, key=lambda line: -line.difference)


def summary_parts(document: ComparisonDocument) -> list[str | Sequence[str] | Table]:
    """Return conclusion and table for each primary metric, and the remarks, as parts of a report."""
    parts: list[str | Sequence[str] | Table] = []
    for metric in dict.fromkeys(one.main.metric for one in document.comparisons):
        lines = summary_lines(document, metric)
        parts += [_headline(document, metric, lines), summary_table(lines)]
    remarks = list(_remarks(document))
    return [*parts, remarks] if remarks else parts


def _headline(document: ComparisonDocument, metric: str, lines: Sequence[Line]) -> str:
    counts = Counter(line.verdict for line in lines if line.tested is not None)
    found = [f"{counts[word]} {word}" for word in ("better", "higher", "worse", "lower") if counts[word]]
    if counts[NONE]:
        found.append(f"{counts[NONE]} without a significant difference")
    baseline = baseline_of(document)
    about = f"{metric}, compared with {baseline}" if baseline else f"{metric}, every two"
    return f"{about}: of {counted(counts.total(), 'method' if baseline else 'pair')}, {', '.join(found)}"


def summary_table(lines: Sequence[Line]) -> Table:
    """Return the table of a summary. Pairs have no column for the mean, which would be that of the second method."""
    means = any(line.tested is None for line in lines)
    rows = [Row(line.name, tuple(_cells(line, means=means)), EMPHASIS.get(line.verdict, "")) for line in lines]
    headings = ("n", *(["mean ± sd"] if means else []), "diff.", "interval", "p", "")
    return Table("Differences", headings, tuple(rows), align=f"p{'r' * (len(headings) - 1)}l")


def _cells(line: Line, *, means: bool) -> Iterator[Cell]:
    yield Cell(str(len(line.scores)))
    if means:
        yield Cell(mean_text(line.scores))
    yield Cell("0.00" if line.tested is None else signed(line.difference), strong=line.verdict not in (BASELINE, NONE))
    yield Cell("" if line.tested is None else interval_text(line.tested.over_seeds))
    yield Cell("" if line.tested is None else p_value(line.tested.over_seeds.p_adjusted))
    yield Cell(line.verdict)


def interval_text(seeds: Paired) -> str:
    """Return the interval at the level of the test. A dash without a test."""
    return "unbounded" if seeds.level and seeds.low is None else interval(seeds.low, seeds.high)


def _remarks(document: ComparisonDocument) -> Iterator[str]:
    """Yield the remarks of the document with names instead of letters, equal ones once, and what else differs."""
    names = {side.letter: side.name for side in document.sides}
    of_methods: dict[str, list[str]] = {}
    for note in document.notes:
        letter, _, text = note.partition(": ")
        if letter in names:
            of_methods.setdefault(text, []).append(names[letter])
        else:
            yield note
    for text, methods in of_methods.items():
        yield f"{', '.join(methods) if len(methods) <= MOST_NAMED else counted(len(methods), 'method')}: {text}"
    if document.circumstances:
        yield f"other differences of the methods: {', '.join(one.key for one in document.circumstances)}"


def mode_lines(document: ComparisonDocument) -> list[str]:
    """Return the meaning of each mode of the tests."""
    return [_MODES[mode] for mode in dict.fromkeys(one.mode for one in document.comparisons)]


def summary_legend(document: ComparisonDocument) -> list[str]:
    """Return the meaning of the columns of a summary."""
    shared = "that a method shares with the first one" if baseline_of(document) else "that both methods share"
    return [
        f"n: seeds {shared}; mean, sd and diff., the mean difference, are over these seeds",
        f"interval, p: paired test over seeds. {counted(document.corrected_for, 'comparison')} share the 5 % (Bretz et "
        "al. 2009), so an interval excludes 0 exactly if its difference is significant",
        *mode_lines(document),
    ]
