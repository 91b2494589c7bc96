"""The scores of a run and of its sisters, beside the paper's row and among what others measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from cse_cli.board import printed, tables
from cse_cli.board.grid import Text
from cse_cli.board.ours import own_values
from cse_cli.board.runs import Configuration
from cse_cli.distribution import told
from cse_cli.report.parts import Part, Remarks, Row, Section, Table, Words, of_block
from cse_cli.report.subject import Subject, doubts
from cse_cli.report.words import counted, seed_list, signed
from registry.papers import AVERAGE

VISIBLE = 0.005
"""Spread that two decimals show."""


def scores(subject: Subject) -> Section:
    """Return every seed's scores, mean and spread, and the gain over the encoder before training."""
    runs, result = subject.configuration, subject.result
    return Section("Scores", (Words(_which(subject)), _table(runs, result.seed), Remarks(tuple(_remarks(subject)))))


def _which(subject: Subject) -> str:
    seeds = list(subject.sisters)
    if len(seeds) == 1:
        return f"One run of this recipe has finished, with seed {seeds[0]}: no spread over seeds is known."
    return (
        f"{counted(len(seeds), 'run')} of this very recipe (hash {subject.result.recipe_hash}) have finished, with "
        f"{seed_list(seeds)}; all are shown, the one that finished last of each seed."
    )


def _table(runs: Configuration, own: int) -> Table:
    columns = {name: own_values(runs, name) for name in (*runs.latest.scores, AVERAGE)}
    shown = {name: values for name, values in columns.items() if values}
    before = {name: own_values(runs, name, untrained=True) for name in shown}
    rows = _before(before)
    for place, result in enumerate(runs.results):
        label = f"seed {result.seed}{' (this run)' if result.seed == own and len(runs.results) > 1 else ''}"
        rows.append(_row(label, [f"{values[place]:.2f}" for values in shown.values()], ours=result.seed == own))
    if len(runs.results) > 1:
        rows.append(_row("mean", [f"{fmean(values):.2f}" for values in shown.values()]))
        rows.append(_row("±", [f"{stdev(values):.2f}" for values in shown.values()], below=True))
    if any(before.values()):
        gains = [_gain(values, before[name]) for name, values in shown.items()]
        rows.append(_row("gain over before training", gains))
    return Table("Scores of every seed", tuple(shown), tuple(rows))


def _before(columns: Mapping[str, Sequence[float]]) -> list[Row]:
    """Return the encoder before training; its spread where heads that are drawn by chance give it one."""
    if not any(columns.values()):
        return []
    rows = [_row("before training", [f"{fmean(values):.2f}" if values else "" for values in columns.values()])]
    spreads = [stdev(values) if len(values) > 1 else 0.0 for values in columns.values()]
    if max(spreads) >= VISIBLE:
        rows.append(_row("±", [f"{spread:.2f}" for spread in spreads], below=True))
    return rows


def _row(label: str, cells: Sequence[str], *, ours: bool = False, below: bool = False) -> Row:
    return Row(label, tuple(map(Text, cells)), ours, below)


def _gain(values: Sequence[float], before: Sequence[float]) -> str:
    """Return the mean gain, seed by seed; nothing where the encoder was not scored before training."""
    gains = [after - start for after, start in zip(values, before, strict=False)]
    return signed(fmean(gains)) if before else ""


def _remarks(subject: Subject) -> list[str]:
    result = subject.result
    metrics = {name: next(iter(values)) for name, values in result.scores.items() if values}
    told = [f"{metric} of {', '.join(n for n, m in metrics.items() if m == metric)}" for metric in metrics.values()]
    said = next(iter(metrics.values())) if len(set(metrics.values())) == 1 else "; ".join(dict.fromkeys(told))
    lines = [f"main metric of each evaluator: {said}"]
    if subject.configuration.averages((), "spearman"):
        lines.append("avg: mean of the seven English test sets, each rounded to two decimals first, as in the papers")
    if len(subject.sisters) > 1:
        lines.append("±: sample standard deviation over the seeds")
    if result.select is not None:
        lines.append(f"{result.select} chose the state that is scored: its own score is optimistic")
    return [*lines, *doubts(subject)]


def beside_paper(subject: Subject) -> Section:
    """Return the printed row that the recipe answers with our seeds below it, doubts about it told."""
    runs = subject.configuration
    asked = runs.latest.paper
    if asked is None or (row := printed.find(asked.key, asked.table, asked.row)) is None:
        return Section("Beside the paper", _no_paper(subject))
    block, _ = tables.answered(asked.key, asked.table, [runs])
    kept = tuple(line for line in block.rows if asked.row in (line.answers, line.name))
    cited = Words(f"{row.paper.citation} {row.paper.url}")
    return Section("Beside the paper", (*of_block(block.model_copy(update={"rows": kept})), cited))


def _no_paper(subject: Subject) -> tuple[Part, ...]:
    if subject.result.paper is None:
        return ()
    paper = subject.result.paper
    return (Words(f"Not compared with {paper.key}, {paper.table}, {paper.row}: another model, or no such row today."),)


def among_others(subject: Subject) -> Section:
    """Return where each seed falls in the distribution that others published, where one is known."""
    lines = told(subject.results, notes=True)
    return Section(
        "Among runs by others", (Words(f"{lines[0]}."), Remarks(tuple(lines[1:]), small=False)) if lines else ()
    )
