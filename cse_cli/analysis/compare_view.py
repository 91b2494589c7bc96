"""A comparison as tables and sentences, on stdout and as a section of a report."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.text import Text

from cse_cli.analysis.compare import Comparison, ComparisonDocument, MetricComparison
from cse_cli.analysis.compare_summary import FEW, interval_text, mode_lines, summary_legend, summary_parts
from cse_cli.analysis.rerun import changes_table
from cse_cli.core.console import Console, stdout_console
from cse_cli.core.formatting import UNSET, counted, interval, mean_text, p_value, seed_list, signed
from cse_cli.core.stats import MOST_SEEDS
from cse_cli.core.tables import EMPHASIS, Cell, Row, Table, as_rich_parts, plain_table

Part = str | Sequence[str] | Table
"""Paragraph, list or table of a report."""
COLORS = "green: the second method is better; red: it is worse; no color: chance could explain the difference"


def seeds_table(comparison: Comparison) -> Table:
    """Return one line for each metric with the test over seeds."""
    gap = f"{comparison.second} − {comparison.first}"
    headings = (comparison.first, comparison.second, gap, "interval", "p", "needed")
    rows = []
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
        rows.append(Row(one.metric, cells, _emphasis(one)))
    return Table(f"Over {seed_list(comparison.seeds)}", headings, tuple(rows), align="lrrrrrr")


def _emphasis(one: MetricComparison) -> str:
    """Return the emphasis of a line: whether the second method is significantly better or worse."""
    if one.finding != "different" or not one.more_is_better:
        return ""
    return "best" if one.over_seeds.difference > 0 else "worse"


def pairs_table(comparison: Comparison) -> Table:
    """Return one line for each metric whose sentence pairs are compared."""
    headings = ("", "pairs", f"{comparison.second} − {comparison.first}", "95 % bootstrap", "p")
    compared = [(one.metric, one.on_pairs) for one in comparison.metrics if one.on_pairs is not None]
    rows = [
        (metric, f"{on.pairs:,}", signed(on.difference), interval(on.low, on.high), p_value(on.p_adjusted))
        for metric, on in compared
    ]
    return plain_table(headings, rows, align="prrrr", caption="On the same sentence pairs")


def _remarks(comparison: Comparison) -> tuple[str, ...]:
    """Return the remarks on the tests of a comparison."""
    reasons: dict[str, list[str]] = {}
    for one in comparison.metrics:
        if one.pairs_note:
            reasons.setdefault(one.pairs_note, []).append(one.metric)
    lines = [f"no comparison of sentence pairs for {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    left_out = comparison.left_out.items()
    return (*lines, *(f"not compared: only {letter} has {seed_list(seeds)}" for letter, seeds in left_out))


def legend_lines(document: ComparisonDocument) -> list[str]:
    """Return the meaning of the tables' columns and their corrections."""
    lines = [
        "p: two-sided paired test over seeds; needed: seeds that find the difference in 80 % of tries, if it and the "
        "standard deviation of these seeds are the true ones"
    ]
    lines += mode_lines(document)
    lines.append(
        "interval: at the level of its metric's test, so it excludes 0 exactly if the difference is significant"
    )
    if max(len(comparison.metrics) for comparison in document.comparisons) > 1:
        lines.append("metrics: the primary one is tested at 5 %; if it differs, the others by Holm's procedure")
    if document.corrected_for > 1:
        lines.append(f"{document.corrected_for} comparisons and their intervals share the 5 % (Bretz et al. 2009)")
    if any(one.on_pairs for comparison in document.comparisons for one in comparison.metrics):
        lines.append(
            f"bootstrap: {document.resamples:,} resamples of the pairs with the same trained models, mean over seeds, "
            "interval not corrected"
        )
    return lines


def _comparison_parts(comparison: Comparison) -> list[Part]:
    verdicts = [(one.metric, one.verdict) for one in comparison.metrics]
    parts: list[Part] = [plain_table(("metric", "conclusion"), verdicts, align="lp", caption="Conclusions")]
    parts += [f"Over {seed_list(comparison.seeds)}, seed by seed:", seeds_table(comparison)]
    if (pairs := pairs_table(comparison)).rows:
        parts += ["On the same sentence pairs, with the same trained models:", pairs]
    if remarks := _remarks(comparison):
        parts.append(remarks)
    return parts


def _difference_parts(document: ComparisonDocument) -> list[Part]:
    letters = [method.letter for method in document.sides]
    parts: list[Part] = []
    if document.changes:
        parts += ["Differences of the recipes:", changes_table(document.changes, letters)]
    elif document.changes is None:
        parts.append("The differences of the recipes are unknown, because a recorded recipe cannot be read.")
    else:
        parts.append("The recipes differ only in seed and descriptions.")
    if document.circumstances:
        parts += ["Other differences:", changes_table(document.circumstances, letters)]
    return parts


def _methods(document: ComparisonDocument) -> list[str]:
    """Return letter, name, runs, model and settings hash of each method, and the remarks."""
    runs = [f"{counted(len(one.seeds), 'run')}, {seed_list(one.seeds)}" for one in document.sides]
    methods = [
        f"{one.letter}: {one.name}, {of}, {one.model}, hash {one.recipe_hash[:8]}"
        for one, of in zip(document.sides, runs, strict=True)
    ]
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
            _print_legend(console, [*summary_legend(document), hint])
            return
        for comparison in document.comparisons:
            style = EMPHASIS.get(_emphasis(comparison.main), "")
            console.print(Text(comparison.headline, f"bold {style}".strip()))
        console.print()
        _print_parts(console, [_methods(document), *_difference_parts(document)])
        names = {method.letter: method.name for method in document.sides}
        for comparison in document.comparisons:
            first, second = comparison.first, comparison.second
            about = f"{names[second]} compared with {names[first]}"
            console.print(f"\n[bold]{second} − {first}[/bold]: {escape(about)}\n")
            _print_parts(console, _comparison_parts(comparison))
        legend = legend_lines(document)
        if console.is_terminal and any(_emphasis(one) for c in document.comparisons for one in c.metrics):
            legend.append(COLORS)
        _print_legend(console, legend)


def _print_legend(console: Console, lines: Sequence[str]) -> None:
    console.print()
    for line in lines:
        console.print(escape(line), style="dim")


def _print_parts(console: Console, parts: Sequence[Part]) -> None:
    """Print the parts of a report with empty lines between them."""
    for place, part in enumerate(parts):
        if place:
            console.print()
        if isinstance(part, str):
            console.print(escape(part), style="bold")
        elif isinstance(part, Table):
            for shown in as_rich_parts(part, console.width, ruled=True):
                console.print(shown)
        else:
            for text in part:
                console.print(escape(text))
