"""A comparison as tables and sentences, on stdout and as a section of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from rich.markup import escape
from rich.text import Text

from cse_cli.analysis.compare import NONE, Comparison, ComparisonDocument, MetricComparison
from cse_cli.analysis.experiments import Experiment
from cse_cli.analysis.papers import own_column
from cse_cli.analysis.score_table import ScoreRow, ScoreTable, measure
from cse_cli.analysis.tables import build, own_row
from cse_cli.core.console import Console, stdout_console
from cse_cli.core.formatting import UNSET, counted, grouped, interval, mean_text, p_value, seed_list, signed
from cse_cli.core.identity import Mode
from cse_cli.core.plans import ASSUMED
from cse_cli.core.stats import MOST_SEEDS, Paired
from cse_cli.core.tables import EMPHASIS, Cell, Row, Table, as_rich_parts, plain_table
from cse_cli.recipe.changes import changes_table

Part = str | Sequence[str] | Table
"""Paragraph, list or table of a report."""
FEW = 3
"""Number of comparisons up to which `cse compare` shows all details."""
MOST_NAMED = 6
"""Number of methods up to which a remark names them."""
BASELINE, OVERLAP = "baseline", "no encoder"
EMPHASES = {"better": "best", "worse": "worse", BASELINE: "baseline"}
"""Direction of a difference → emphasis of its line."""
_MODES: Mapping[Mode, str] = {
    "planned": "planned: the seeds were planned before the first run; one t test",
    "incomplete": "planned seeds are missing: there is no test before they finish",
    "assumed": f"{ASSUMED}: one t test, valid only if you fixed the number of seeds before the first run",
    "anytime": "anytime test: p and interval are valid however often you look and add seeds. A plan needs fewer seeds: "
    "{}",
}


class Line(NamedTuple):
    """One line of a summary: a method, or if every two are compared, two of them.

    Args:
        scores: Scores of the method for the seeds that it shares with the other one.
        difference: Mean difference over these seeds.
        verdict: Direction of a difference that the test shows, `BASELINE` for the method that all others are compared
            with, or `OVERLAP` for the word overlap.
        tested: Comparison by the primary metric. None for these two.
    """

    name: str
    scores: tuple[float, ...]
    difference: float
    verdict: str
    tested: MetricComparison | None = None


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
        if (main := one.main).metric == metric:
            over = main.over_seeds
            scores |= zip(over.seeds, over.first, strict=True)
            name = names[one.second] if baseline else f"{names[one.second]} − {names[one.first]}"
            lines.append(Line(name, over.second, over.difference, main.direction, main))
    if baseline:
        first = tuple(scores[seed] for seed in sorted(scores))
        lines.insert(0, Line(baseline, first, 0.0, BASELINE))
        if (overlap := document.word_overlap.get(metric)) is not None:
            lines.append(Line("Word overlap", (overlap,), overlap - fmean(first), OVERLAP))
    return sorted(lines, key=lambda line: -line.difference)


def comparison_tables(document: ComparisonDocument, methods: Sequence[Experiment]) -> list[ScoreTable]:
    """Return a table for each method that others are compared with: methods as rows, metrics as columns."""
    of_letter, found = {method.letter: method for method in methods}, []
    for letter, comparisons in grouped(document.comparisons, lambda one: one.first).items():
        first, rows, of_first = of_letter[letter], list[ScoreRow](), dict[str, dict[int, float]]()
        reference = ScoreRow(source="measured", name=first.name, scores={})
        for comparison in comparisons:
            scores = {}
            for one in comparison.metrics:
                over = one.over_seeds
                of_first.setdefault(one.metric, {}).update(zip(over.seeds, over.first, strict=True))
                update = {
                    "reference": fmean(over.first),
                    "p": over.p_adjusted,
                    "significant": one.finding == "different",
                    "equal": over.constant and one.finding not in ("selecting", "untested"),
                }
                scores[one.metric] = measure(over.second).model_copy(update=update).marked()
            second = of_letter[comparison.second]
            rows.append(own_row(second, reference, second.name, scores=scores, seeds=comparison.seeds))
        seeds = tuple(sorted({seed for of_seeds in of_first.values() for seed in of_seeds}))
        alone = {metric: measure(list(of_seeds.values())) for metric, of_seeds in of_first.items()}
        table = build(
            [[own_row(first, None, first.name, scores=alone, seeds=seeds), *rows]],
            [own_column(metric, first.latest) for metric in of_first],
            [first],
            comparisons[0].main.metric,
            kind="comparison",
            heading=f"Methods compared with {first.name}",
            remarks=tuple(_summary_remarks(document)),
        )
        found.append(table)
    return found


def summary_parts(document: ComparisonDocument) -> list[Part]:
    """Return conclusion and table for each primary metric, and the remarks, as parts of a report."""
    parts: list[Part] = []
    baseline = baseline_of(document)
    for metric in dict.fromkeys(one.main.metric for one in document.comparisons):
        lines = summary_lines(document, metric)
        counts = Counter(line.verdict for line in lines if line.tested is not None)
        found = [f"{counts[word]} {word}" for word in ("better", "higher", "worse", "lower") if counts[word]]
        if counts[NONE]:
            found.append(f"{counts[NONE]} without a significant difference")
        about = f"{metric}, compared with {baseline}" if baseline else f"{metric}, every two"
        number = counted(counts.total(), "method" if baseline else "pair")
        # Pairs have no column for the mean, which would be that of the second method.
        means, rows = any(line.tested is None for line in lines), []
        for line in lines:
            over = None if line.tested is None else line.tested.over_seeds
            cells = (
                Cell("no seeds" if line.verdict == OVERLAP or _constant(line.scores) else str(len(line.scores))),
                *([Cell(mean_text(line.scores))] if means else []),
                Cell(
                    "0.00" if line.verdict == BASELINE else signed(line.difference),
                    strong=line.verdict not in (BASELINE, NONE, OVERLAP),
                ),
                Cell("" if over is None else interval_text(over)),
                Cell("" if over is None else p_value(over.p_adjusted)),
                Cell(line.verdict),
            )
            rows.append(Row(line.name, cells, EMPHASES.get(line.verdict, "")))
        headings = ("n", *(["mean ± sd"] if means else []), "diff.", "interval", "p", "")
        table = Table("Differences", headings, tuple(rows), align=f"p{'r' * (len(headings) - 1)}l")
        parts += [f"{about}: of {number}, {', '.join(found)}", table]
    remarks = list(_summary_remarks(document))
    return [*parts, remarks] if remarks else parts


def _constant(scores: Sequence[float]) -> bool:
    return len(scores) > len(set(scores)) == 1


def interval_text(seeds: Paired) -> str:
    """Return the interval at the level of the test. A dash without a test."""
    return "unbounded" if seeds.level and seeds.low is None else interval(seeds.low, seeds.high)


def _summary_remarks(document: ComparisonDocument) -> Iterator[str]:
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


def _mode_lines(document: ComparisonDocument) -> list[str]:
    here = any(not side.made_from for side in document.sides)
    plan = "`cse run RECIPE --seeds N`" if here else "--planned N, if you fixed N before the first run"
    return [_MODES[mode].format(plan) for mode in dict.fromkeys(one.mode for one in document.comparisons)]


def summary_legend(document: ComparisonDocument) -> list[str]:
    """Return the meaning of the columns of a summary."""
    shared = "that a method shares with the first one" if baseline_of(document) else "that both methods share"
    seconds = [one.main.over_seeds.second for one in document.comparisons]
    return [
        f"n: seeds {shared}; mean, sd and diff., the mean difference, are over these seeds",
        *(["no seeds: the score does not depend on the seed"] if any(map(_constant, seconds)) else []),
        f"interval, p: paired test over seeds. {counted(document.corrected_for, 'comparison')} share the 5 % (Bretz et "
        "al. 2009), so an interval excludes 0 exactly if its difference is significant",
        *_mode_lines(document),
    ]


COLORS = "green: the second method is better; red: it is worse; no color: chance could explain the difference"


def legend_lines(document: ComparisonDocument) -> list[str]:
    """Return the meaning of the tables' columns and their corrections."""
    every = [one for comparison in document.comparisons for one in comparison.metrics]
    lines = [
        "p: two-sided paired test over seeds; needed: seeds that find the difference in 80 % of tries, if it and the "
        "standard deviation of these seeds are the true ones",
        *_mode_lines(document),
        "interval: at the level of its metric's test, so it excludes 0 exactly if the difference is significant",
    ]
    if len(every) > len(document.comparisons):
        lines.append("metrics: the primary one is tested at 5 %; if it differs, the others by Holm's procedure")
    if document.corrected_for > 1:
        lines.append(f"{document.corrected_for} comparisons and their intervals share the 5 % (Bretz et al. 2009)")
    if any(one.on_pairs for one in every):
        lines.append(
            f"bootstrap: {document.resamples:,} resamples of the pairs with the same trained models, mean over seeds, "
            "interval not corrected"
        )
    return lines


def _comparison_parts(comparison: Comparison) -> list[Part]:
    """Return conclusions, the test over seeds, that on sentence pairs, and the remarks on both."""
    verdicts = [(one.metric, one.verdict) for one in comparison.metrics]
    parts: list[Part] = [plain_table(("metric", "conclusion"), verdicts, align="lp", caption="Conclusions")]
    gap, over, rows = f"{comparison.second} − {comparison.first}", f"Over {seed_list(comparison.seeds)}", list[Row]()
    for one in comparison.metrics:
        seeds, needed = one.over_seeds, one.over_seeds.seeds_needed
        cells = (
            Cell(mean_text(seeds.first)),
            Cell(mean_text(seeds.second)),
            Cell(signed(seeds.difference), strong=one.finding == "different"),
            Cell(interval_text(seeds)),
            Cell(p_value(seeds.p_adjusted)),
            Cell(UNSET if needed is None else f">{MOST_SEEDS:,}" if needed > MOST_SEEDS else f"{needed:,}"),
        )
        rows.append(Row(one.metric, cells, EMPHASES.get(one.direction, "")))
    headings = (comparison.first, comparison.second, gap, "interval", "p", "needed")
    parts += [f"{over}, seed by seed:", Table(over, headings, tuple(rows), align="lrrrrrr")]
    if compared := [(one.metric, one.on_pairs) for one in comparison.metrics if one.on_pairs is not None]:
        texts = [
            (metric, f"{on.pairs:,}", signed(on.difference), interval(on.low, on.high), p_value(on.p_adjusted))
            for metric, on in compared
        ]
        about = "On the same sentence pairs"
        shown = plain_table(("", "pairs", gap, "95 % bootstrap", "p"), texts, align="prrrr", caption=about)
        parts += [f"{about}, with the same trained models:", shown]
    reasons = grouped((one for one in comparison.metrics if one.pairs_note), lambda one: one.pairs_note)
    remarks = [
        f"no comparison of sentence pairs for {', '.join(one.metric for one in of_reason)}: {reason}"
        for reason, of_reason in reasons.items()
    ]
    left_out = comparison.left_out.items()
    remarks += [f"not compared: only {letter} has {seed_list(seeds)}" for letter, seeds in left_out]
    return [*parts, remarks] if remarks else parts


def _difference_parts(document: ComparisonDocument) -> list[Part]:
    letters = [method.letter for method in document.sides]
    parts: list[Part] = []
    here = [side for side in document.sides if not side.made_from]
    if document.changes:
        parts += ["Differences of the recipes:", changes_table(document.changes, letters)]
    elif document.changes is None:
        parts.append("The differences of the recipes are unknown, because a recorded recipe cannot be read.")
    elif len(here) > 1:
        parts.append("The recipes differ only in seed and descriptions.")
    if document.circumstances:
        parts += ["Other differences:", changes_table(document.circumstances, letters)]
    return parts


def _methods(document: ComparisonDocument) -> list[str]:
    methods = []
    for one in document.sides:
        origin = f"from {one.made_from}" if one.made_from else f"{one.model}, hash {one.recipe_hash[:8]}"
        methods.append(f"{one.letter}: {one.name}, {counted(len(one.seeds), 'run')}, {seed_list(one.seeds)}, {origin}")
    return [*methods, *document.notes]


def comparison_parts(document: ComparisonDocument) -> list[Part]:
    """Return the comparison of two methods as parts of the second's report."""
    (comparison,) = document.comparisons
    return [_methods(document), *_comparison_parts(comparison), legend_lines(document), *_difference_parts(document)]


def print_comparison(document: ComparisonDocument, *, details: bool = False) -> None:
    """Print the conclusions and then the tables behind them on stdout.

    Of more than `FEW` comparisons, print a summary, and everything else only if `details`.
    """
    many = len(document.comparisons) > FEW
    with stdout_console() as console:
        if many:
            _print_parts(console, summary_parts(document))
        if many and not details:
            hint = "--details shows the differences of the recipes and all metrics, also on the same sentence pairs"
            legend = [*summary_legend(document), hint]
        else:
            legend = legend_lines(document)
            for comparison in document.comparisons:
                style = EMPHASIS.get(EMPHASES.get(comparison.main.direction, ""), "")
                console.print(Text(comparison.headline, f"bold {style}".strip()))
            console.print()
            _print_parts(console, [_methods(document), *_difference_parts(document)])
            names = {method.letter: method.name for method in document.sides}
            for comparison in document.comparisons:
                first, second = comparison.first, comparison.second
                about = f"{names[second]} compared with {names[first]}"
                console.print(f"\n[bold]{second} − {first}[/bold]: {escape(about)}\n")
                _print_parts(console, _comparison_parts(comparison))
            every = (one for comparison in document.comparisons for one in comparison.metrics)
            if console.is_terminal and any(one.direction in EMPHASES for one in every):
                legend.append(COLORS)
        console.print()
        for line in legend:
            console.print(escape(line), style="dim")


def _print_parts(console: Console, parts: Sequence[Part]) -> None:
    for place, part in enumerate(parts):
        if place:
            console.print()
        if isinstance(part, Table):
            for shown in as_rich_parts(part, console.width, ruled=True):
                console.print(shown)
        else:
            lines, style = ([part], "bold") if isinstance(part, str) else (part, "")
            for line in lines:
                console.print(escape(line), style=style)
