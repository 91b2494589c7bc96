"""A comparison as tables and sentences: on stdout, and as a section of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from rich.markup import escape
from rich.text import Text

from cse_cli.analysis.compare import Comparison, ComparisonDocument, MethodSummary, MetricComparison
from cse_cli.analysis.pages import Part, Remarks, Section, Words
from cse_cli.analysis.reproduce import changes_table
from cse_cli.analysis.runs import Change
from cse_cli.analysis.settings import short_setting
from cse_cli.core.console import Console, stdout_console
from cse_cli.core.formatting import UNSET, counted, interval, mean_text, p_value, seed_list, signed
from cse_cli.core.identity import Mode
from cse_cli.core.plans import ASSUMED
from cse_cli.core.stats import LEVEL, MOST_SEEDS, Paired
from cse_cli.core.tables import EMPHASIS, Cell, Row, Table, as_rich, as_rich_parts, plain_table

_NARROW = 110
"""Columns of a terminal below which spreads and effect sizes are left out."""
_SHORT = 65
"""Letters of a setting and its values on one line."""
COLOURS = "green: the second is better than the first; red: it is worse; neither where chance could explain it"


def describe_method(method: MethodSummary) -> str:
    """Return name, runs, model and hash."""
    runs = f"{counted(len(method.seeds), 'run')}, {seed_list(method.seeds)}"
    return f"{method.name}, {runs}, {method.model}, hash {method.recipe_hash[:8]}"


def seeds_table(comparison: Comparison, *, narrow: bool = False) -> Table:
    """Return a line a metric; a narrow one is without the spread of each method and without the effect size."""
    gap = f"{comparison.second} − {comparison.first}"
    effect = () if narrow else ("d",)
    headings = (comparison.first, comparison.second, gap, "interval", "p", "Wilcoxon", *effect, "needed")
    rows = []
    for one in comparison.metrics:
        seeds = one.over_seeds
        limits = _interval_text(seeds)
        cells = [
            *(f"{fmean(v):.2f}" if narrow else mean_text(v) for v in (seeds.first, seeds.second)),
            signed(seeds.difference),
            limits.replace(" ", "") if narrow else limits,
            p_value(seeds.p_adjusted),
            p_value(seeds.wilcoxon_p),
            *(() if narrow else (signed(seeds.effect_size),)),
            _needed_text(seeds.seeds_needed),
        ]
        strong = one.finding == "different"
        texts = tuple(Cell(text, strong=strong and place == 2) for place, text in enumerate(cells))
        rows.append(Row(one.metric, texts, _emphasis(one)))
    return Table(f"Over {seed_list(comparison.seeds)}", headings, tuple(rows))


def _interval_text(seeds: Paired) -> str:
    """Return the interval at the level of the test. A dash without a test."""
    return "unbounded" if seeds.level and seeds.low is None else interval(seeds.low, seeds.high)


def _needed_text(n: int | None) -> str:
    return UNSET if n is None else f">{MOST_SEEDS:,}" if n > MOST_SEEDS else f"{n:,}"


def pairing_line(comparison: Comparison) -> str:
    """Return the gain from shared seeds for the primary metric. Empty if it is not known."""
    seeds = comparison.main.over_seeds
    if seeds.correlation is None or seeds.seeds_needed is None or seeds.seeds_unpaired is None:
        return ""
    return (
        f"pairing by seed, {comparison.main.metric}: correlation of the scores over seeds {signed(seeds.correlation)}; "
        f"needed: {_needed_text(seeds.seeds_needed)} seeds, without pairs {_needed_text(seeds.seeds_unpaired)}"
    )


def _emphasis(one: MetricComparison) -> str:
    """Return how a line stands out: where the second is better or worse, and more than by chance."""
    if one.finding != "different" or not one.more_is_better:
        return ""
    return "best" if one.over_seeds.difference > 0 else "worse"


def pairs_table(comparison: Comparison) -> Table:
    """Return a line for each metric whose sentence pairs are compared."""
    headings = ("pairs", f"{comparison.second} − {comparison.first}", "95 % bootstrap", "p", "Williams", "Steiger")
    rows = []
    for one in comparison.metrics:
        if (pairs := one.on_pairs) is not None:
            tests = [_rejected([getattr(s, name) for s in pairs.of_seeds]) for name in ("williams_p", "steiger_p")]
            limits = interval(pairs.low, pairs.high)
            cells = (f"{pairs.pairs:,}", signed(pairs.difference), limits, p_value(pairs.p_adjusted), *tests)
            rows.append(Row(one.metric, tuple(map(Cell, cells))))
    return Table("On the same sentence pairs", headings, tuple(rows))


def _rejected(values: Sequence[float | None]) -> str:
    """Return the p of a single seed, or how many of several seeds' tests reject equality."""
    known = [p for p in values if p is not None]
    if not known:
        return UNSET
    return p_value(known[0]) if len(known) == 1 else f"{sum(p < LEVEL for p in known)} of {len(known)}"


def pairs_remarks(metrics: Sequence[MetricComparison]) -> list[str]:
    """Return why sentence pairs are not compared, each reason once."""
    reasons: dict[str, list[str]] = {}
    for one in metrics:
        if one.pairs_note:
            reasons.setdefault(one.pairs_note, []).append(one.metric)
    return [f"no comparison of sentence pairs for {', '.join(names)}: {reason}" for reason, names in reasons.items()]


def left_out(comparison: Comparison) -> list[str]:
    """Return which seeds only one of the two has."""
    return [
        f"left out, as the other has none: {seed_list(seeds)} of {letter}"
        for letter, seeds in comparison.left_out.items()
    ]


def legend_lines(document: ComparisonDocument, *, narrow: bool = False) -> list[str]:
    """Return the meaning of the tables' columns, and their limits."""
    effect = "" if narrow else "d: Cohen's d_z; "
    lines = [
        f"p: paired test over seeds, two-sided; {effect}needed: seeds with which this test finds a difference of this "
        "size in 80 % of tries, if the difference and the standard deviation of these few seeds are the true ones"
    ]
    lines += [_MODES[mode] for mode in dict.fromkeys(comparison.mode for comparison in document.comparisons)]
    lines += _correction_lines(document)
    smallest = {len(c.seeds): 2.0 ** (1 - len(c.seeds)) for c in document.comparisons if 1 < len(c.seeds) < 6}
    lines.append("Wilcoxon: p of the signed-rank test of this metric with these seeds, not corrected")
    lines += [f"Wilcoxon: {n} seeds cannot give less than p = {p:.4g}" for n, p in smallest.items()]
    if any(one.on_pairs for comparison in document.comparisons for one in comparison.metrics):
        lines.append(
            f"bootstrap: {document.resamples:,} resamples of the pairs with the same trained models, mean over seeds; "
            "its interval is not corrected; Williams, Steiger: p, or seeds with p < 0.05"
        )
    return lines


_MODES: Mapping[Mode, str] = {
    "planned": "planned: the record contains the plan of the seeds, made before the first run; one t test",
    "incomplete": "planned seeds are missing: there is no test before they are finished",
    "assumed": f"{ASSUMED}: one t test, valid only if you fixed the number of seeds before the first run",
    "anytime": "anytime test: p and interval hold however often you look and add seeds. A plan needs fewer seeds: "
    "`cse run RECIPE --seeds N` records it before the first run",
}


def _correction_lines(document: ComparisonDocument) -> list[str]:
    """Return the corrections of the p-values and intervals over seeds."""
    lines = ["interval: at the level of its own test, so that it excludes 0 exactly if a difference is shown"]
    if max(len(comparison.metrics) for comparison in document.comparisons) > 1:
        lines.append("metrics: the primary one is tested at 5 %; if it differs, the others by Holm's procedure")
    if document.corrected_for > 1:
        lines.append(
            f"{document.corrected_for} comparisons share the 5 %, their intervals too, by a graph of Holm's kind"
        )
    return lines


def print_comparison(document: ComparisonDocument) -> None:
    """Print the conclusions and then the tables behind them on stdout."""
    with stdout_console() as console:
        for comparison in document.comparisons:
            style = EMPHASIS.get(_emphasis(comparison.main), "")
            console.print(Text(comparison.headline, f"bold {style}".strip()))
        console.print()
        for method in document.sides:
            console.print(f"[bold]{method.letter}[/bold]  {escape(describe_method(method))}")
        for note in document.notes:
            console.print(escape(f"   {note}"))
        _print_changes(console, document)
        for comparison in document.comparisons:
            _print_comparison(console, document, comparison)
        console.print()
        for line in legend_lines(document, narrow=console.width < _NARROW):
            console.print(escape(line), style="dim")
        if console.is_terminal and any(_emphasis(one) for c in document.comparisons for one in c.metrics):
            console.print(COLOURS, style="dim")


def _print_changes(console: Console, document: ComparisonDocument) -> None:
    letters = [method.letter for method in document.sides]
    console.print("\n[bold]What differs in the recipes[/bold]\n")
    if document.changes is None:
        console.print("not known: a recipe cannot be read")
    elif not document.changes:
        console.print("nothing but seed and prose")
    _print_values(console, letters, document.changes or ())
    if document.circumstances:
        console.print("\n[bold]And in how they ran[/bold]\n")
        _print_values(console, letters, document.circumstances)


def _print_values(console: Console, letters: Sequence[str], changes: Sequence[Change]) -> None:
    """Print a line a key, or one for each of its values where these are long; letters with the same value together."""
    for change in changes:
        same: dict[str, list[str]] = {}
        for letter, value in zip(letters, change.values, strict=True):
            same.setdefault(short_setting(change.key, value), []).append(letter)
        parts = [f"[bold]{' '.join(known)}[/bold] {escape(value)}" for value, known in same.items()]
        long = len(change.key) + sum(map(len, same)) > _SHORT
        console.print(f"{escape(change.key)}:" + "".join(f"\n    {part}" if long else f"  {part}" for part in parts))


def _print_comparison(console: Console, document: ComparisonDocument, comparison: Comparison) -> None:
    names = {method.letter: method.name for method in document.sides}
    first, second = comparison.first, comparison.second
    about = f"{names[second]} against {names[first]}, {seed_list(comparison.seeds)}"
    console.print(f"\n[bold]{second} against {first}[/bold]: {escape(about)}")
    for line in left_out(comparison):
        console.print(f"   {line}")
    console.print()
    narrow = console.width < _NARROW
    for part in as_rich_parts(
        seeds_table(comparison, narrow=narrow), console.width, ruled=True, gap=2 if narrow else 3
    ):
        console.print(part)
    if line := pairing_line(comparison):
        console.print(escape(f"\n{line}"))
    if (pairs := pairs_table(comparison)).rows:
        console.print("\n[bold]On the same sentence pairs[/bold]\n")
        for part in as_rich_parts(pairs, console.width, ruled=True):
            console.print(part)
    for line in pairs_remarks(comparison.metrics):
        console.print(escape(line))
    console.print("\n[bold]In words[/bold]\n")
    words = as_rich(_verdicts(comparison))
    words.show_header = False
    console.print(words)


def _verdicts(comparison: Comparison) -> Table:
    rows = [(one.metric, one.verdict) for one in comparison.metrics]
    return plain_table(("", "what may be said"), rows, align="lp", caption="In words")


def comparison_section(document: ComparisonDocument) -> Section:
    """Return the comparison of two methods as a section of the second's report."""
    (comparison,) = document.comparisons
    methods = (f"{method.letter}: {describe_method(method)}" for method in document.sides)
    parts: list[Part] = [Remarks((*methods, *document.notes), small=False), _verdicts(comparison)]
    parts += [Words(f"Over {seed_list(comparison.seeds)}, seed by seed:"), seeds_table(comparison)]
    if (pairs := pairs_table(comparison)).rows:
        parts += [Words("On the same sentence pairs, the trained models as they are:"), pairs]
    remarks = (pairing_line(comparison), *pairs_remarks(comparison.metrics), *legend_lines(document))
    parts.append(Remarks(tuple(filter(None, (*remarks, *left_out(comparison))))))
    if document.changes is None:
        parts.append(Words("What differs in the recipes is not known: one of them cannot be read."))
    letters = [method.letter for method in document.sides]
    if document.changes:
        parts += [Words("What differs in the recipes:"), changes_table(document.changes, letters)]
    if document.circumstances:
        parts += [Words("What differs in how they ran:"), changes_table(document.circumstances, letters)]
    return Section(f"Beside {document.sides[0].name}", tuple(parts))
