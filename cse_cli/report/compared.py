"""A run's recipe compared with another one, as `cse compare` does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cse_cli.board.grid import Text
from cse_cli.compare.comparing import compare
from cse_cli.compare.document import Comparison, Document, MetricDocument, SideDocument
from cse_cli.compare.seeds import LEVEL, MOST_SEEDS, Paired
from cse_cli.compare.sides import Side, find_sides
from cse_cli.report.about import changed
from cse_cli.report.parts import Part, Remarks, Row, Section, Table, Words, plain_table
from cse_cli.report.subject import Subject, by_seed
from cse_cli.report.words import UNSET, counted, interval, mean, probability, seed_list, signed
from cse_cli.results import Result
from registry.errors import CseError


def find_beside(subject: Subject, asked: str, results: Sequence[Result]) -> Side:
    """Return what a run's recipe is compared with: all finished runs of that recipe, or of that run's recipe.

    Raises:
        CseError: It is neither a recipe nor a run, nothing of it has finished, or it is the same recipe.
    """
    known = [*(one for one in results if one.run_id != subject.result.run_id), subject.result]
    found, _ = find_sides([asked, subject.result.run_id or ""], known)
    digest = found.latest.recipe_hash
    if digest == subject.result.recipe_hash:
        raise CseError(
            f"--beside: {found.name} is the same recipe as run {(subject.result.run_id or '')[:8]}",
            "its seeds are in the report anyway; name another recipe, or a run of one",
        )
    if len(found.runs) > 1 or (asked.rpartition("@")[2].isdigit() and "@" in asked):
        return found
    runs = by_seed([*(one for one in results if one.recipe_hash == digest), found.latest])
    return replace(found, name=found.latest.recipe, runs=runs)


def compared(subject: Subject, beside: Side) -> Section:
    """Return what differs, the comparison over seeds and on the same pairs, and what may be said of it."""
    own = Side("B", f"{subject.result.recipe} (this report)", subject.sisters)
    document = compare([beside, own])
    (comparison,) = document.comparisons
    parts: list[Part] = [Remarks((*map(_side, document.sides), *document.notes), small=False), _verdicts(comparison)]
    parts += [Words(f"Over {seed_list(comparison.seeds)}, seed by seed:"), _over_seeds(comparison)]
    parts += [*_on_pairs(comparison), Remarks(tuple(_legend(document, comparison))), *_differences(document)]
    return Section(f"Beside {beside.name}", tuple(parts))


def _side(side: SideDocument) -> str:
    runs = f"{counted(len(side.seeds), 'run')}, {seed_list(side.seeds)}"
    return f"{side.letter}: {side.name}, {runs}, {side.model}, hash {side.recipe_hash[:8]}"


def _differences(document: Document) -> Iterator[Part]:
    letters = tuple(side.letter for side in document.sides)
    if document.changes is None:
        yield Words("What differs in the recipes is not known: one of them cannot be read.")
    if document.changes:
        yield Words("What differs in the recipes:")
        yield changed(document.changes, letters)
    if document.circumstances:
        yield Words("What differs in how they ran:")
        yield changed(document.circumstances, letters)


def _verdicts(comparison: Comparison) -> Table:
    rows = [(one.metric, one.verdict) for one in comparison.metrics]
    return plain_table("In words", ("what may be said",), rows)


def _over_seeds(comparison: Comparison) -> Table:
    gap = f"{comparison.second} − {comparison.first}"
    headings = (comparison.first, comparison.second, gap, "95 % interval", "p", "Wilcoxon p", "d", "seeds needed")
    rows = tuple(_metric(one) for one in comparison.metrics)
    return Table(f"Over {seed_list(comparison.seeds)}", headings, rows)


def _metric(one: MetricDocument) -> Row:
    seeds = one.over_seeds
    cells = [
        Text(mean(seeds.first)),
        Text(mean(seeds.second)),
        Text(signed(seeds.difference), one.finding == "different"),
        Text(interval(seeds.low, seeds.high)),
        Text(probability(seeds.p_adjusted)),
        Text(probability(seeds.wilcoxon_p)),
        Text(signed(seeds.effect_size)),
        Text(_needed(seeds)),
    ]
    return Row(one.metric, tuple(cells))


def _needed(seeds: Paired) -> str:
    n = seeds.seeds_needed
    return UNSET if n is None else f">{MOST_SEEDS:,}" if n > MOST_SEEDS else f"{n:,}"


def _on_pairs(comparison: Comparison) -> list[Part]:
    rows = [row for one in comparison.metrics if (row := _pairs(one)) is not None]
    gap = f"{comparison.second} − {comparison.first}"
    headings = ("pairs", gap, "95 % bootstrap", "p", "Williams", "Steiger")
    reasons: dict[str, list[str]] = {}
    for one in comparison.metrics:
        if one.pairs_note:
            reasons.setdefault(one.pairs_note, []).append(one.metric)
    told = tuple(f"sentence pairs of {', '.join(metrics)} are not compared: {why}" for why, metrics in reasons.items())
    table = Table("On the same sentence pairs", headings, tuple(rows))
    parts: list[Part] = [Words("On the same sentence pairs, the trained models as they are:"), table] if rows else []
    return [*parts, *([Remarks(told)] if told else [])]


def _pairs(one: MetricDocument) -> Row | None:
    pairs = one.on_pairs
    if pairs is None:
        return None
    williams, steiger = ([getattr(seed, name) for seed in pairs.of_seeds] for name in ("williams_p", "steiger_p"))
    bootstrap = (f"{pairs.pairs:,}", signed(pairs.difference), interval(pairs.low, pairs.high))
    cells = (*bootstrap, probability(pairs.p_adjusted), _rejected(williams), _rejected(steiger))
    return Row(one.metric, tuple(map(Text, cells)))


def _rejected(values: Sequence[float | None]) -> str:
    """Return the p of a single seed, or how many of several seeds' tests reject equality."""
    known = [p for p in values if p is not None]
    if not known:
        return UNSET
    return probability(known[0]) if len(known) == 1 else f"{sum(p < LEVEL for p in known)} of {len(known)}"


def _legend(document: Document, comparison: Comparison) -> list[str]:
    lines = [
        "p: paired t-test over seeds, two-sided; d: Cohen's d_z; seeds needed: to see a difference of this size in "
        "80 % of tries at 5 %, a rough estimate"
    ]
    if len(comparison.metrics) > 1:
        lines.append(
            f"{len(comparison.metrics)} metrics are tested, each at 5 %: one in twenty seems different by chance"
        )
    if any(one.on_pairs for one in comparison.metrics):
        lines.append(
            f"bootstrap: {document.resamples:,} resamples of the pairs, mean over seeds; Williams, Steiger: p, or "
            "seeds with p < 0.05"
        )
    for letter, seeds in comparison.left_out.items():
        lines.append(f"left out, as the other has none: {seed_list(seeds)} of {letter}")
    return lines
