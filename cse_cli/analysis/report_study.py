"""A study → its report: its cells in the paper's layout, its figure, what is missing.

A run's recipe compared with another one, as `cse compare` does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from cse_cli.analysis import leaderboard_formats as wording
from cse_cli.analysis import paper_tables as studies
from cse_cli.analysis import reproduce as surroundings
from cse_cli.analysis.compare import Comparison, Document, MetricDocument, SideDocument, compare
from cse_cli.analysis.leaderboard_formats import Text
from cse_cli.analysis.pages import (
    Code,
    Facts,
    Page,
    Part,
    Picture,
    Remarks,
    Row,
    Section,
    Table,
    Words,
    of_block,
    plain_table,
)
from cse_cli.analysis.paper_tables import Filled, Ran
from cse_cli.analysis.reproduce import changed, without_folders
from cse_cli.analysis.runs import Side, Subject, by_seed, find_sides
from cse_cli.core.formatting import UNSET, counted, interval, mean, probability, seed_list, signed, to_toml
from cse_cli.core.results import Result
from cse_cli.core.stats import LEVEL, MOST_SEEDS, Paired
from cse_cli.recipe.cells import headings, table_of, values
from cse_cli.recipe.files import name_of
from cse_cli.recipe.study import Study, load_study, origins_of
from registry import papers
from registry.errors import CseError


@dataclass(frozen=True)
class Found:
    """A study with what has run of it.

    Args:
        filled: Its cells with their runs.
        current: Recipe hash → runs of today's cells, one a seed.
    """

    filled: Filled
    current: Mapping[str, Sequence[Result]] = field(repr=False)

    @property
    def study(self) -> Study:
        """The study."""
        return self.filled.study

    @property
    def results(self) -> list[Result]:
        """Every run once."""
        return [result for runs in self.current.values() for result in runs]


def study_page(asked: str, results: Sequence[Result], tags: Mapping[str, str]) -> Page:
    """Return the report of a study.

    Args:
        asked: Name or path.
        results: All finished runs.
        tags: Run → the study's cell it was made for.

    Raises:
        CseError: It is not valid, or nothing of it has finished.
    """
    filled = studies.filled(load_study(asked), Ran(results, tags))
    if not filled.any:
        raise CseError(f"no run of {filled.study.name} has finished", f"`cse run {asked}` runs it")
    ran = {cell.hash: runs.results for cell, runs in filled.cells if runs is not None and runs.standing == "current"}
    found = Found(filled, ran)
    sections = (
        _about(found),
        _scores(found),
        _figure(found, results),
        _cells(found),
        surroundings.environment(found.results, {}) if found.results else Section("Environment", ()),
        surroundings.data(found.results),
        _again(found, asked),
    )
    which = f"{found.study.name}, {counted(len(found.results), 'finished run')}"
    return Page(found.study.title, which, tuple(section for section in sections if section.parts))


def _about(found: Found) -> Section:
    study = found.study
    pairs = {
        "study": study.name,
        "description": study.description,
        "answers": _answers(study),
        "recipe": study.recipe or "",
        "seeds": seed_list(study.seed_list),
        "cells": _counted(found),
    }
    parts: list[Part] = [Facts(tuple((name, value) for name, value in pairs.items() if value))]
    for source in origins_of(study.path).sources:
        parts.append(Code(source.text, "toml", f"{name_of(source.path)}, as written"))
    cell = found.filled.cells[0][0]
    text = to_toml(without_folders(cell.load(study.seed_list[0]).recipe.resolved()))
    parts.append(Code(text, "toml", f"The recipe of its first cell, {cell.label}, every default written in"))
    return Section("What was run", tuple(parts))


def _answers(study: Study) -> str:
    if study.answers is None:
        return ""
    key, identifier = study.answers
    paper = papers.load(key)
    figure, table = paper.figures.get(identifier), paper.tables.get(identifier)
    shown = (
        f"Figure {figure.number}: {figure.caption}" if figure else f"{table.title}: {table.caption}" if table else ""
    )
    return f"{paper.citation} {shown} {paper.url}"


def _counted(found: Found) -> str:
    missing = found.filled.missing()
    whole = len(found.filled.cells)
    return f"{whole} × {counted(len(found.study.seed_list), 'seed')}; {whole - len(missing)} complete"


def _scores(found: Found) -> Section:
    study = found.study
    if study.answers is not None and table_of(study) is not None:
        block = studies.block(found.filled, *study.answers)
        return Section("Beside the paper", of_block(block))
    return Section("Scores", (_table(found), Remarks(tuple(_remarks(found)))))


def _table(found: Found) -> Table:
    """Return rows and columns as the study names them: mean and spread over the seeds."""
    cells = [cell for cell, _ in found.filled.cells]
    scores = values(found.study, cells, found.current)
    columns = headings(found.study, scores)
    rows = []
    for name, of_row in scores.items():
        n = max((len(numbers) for numbers in of_row.values()), default=0)
        rows.append(Row(name, (Text(str(n)), *(Text(mean(of_row.get(column, []))) for column in columns)), ours=n > 0))
    return Table("Scores of every setting", ("n", *columns), tuple(rows))


def _remarks(found: Found) -> list[str]:
    missing = found.filled.missing()
    lines = wording.missing(missing, f"cse run {found.study.name}") if missing else []
    return ["n: seeds; ±: sample standard deviation over them", *lines]


def _figure(found: Found, results: Sequence[Result]) -> Section:
    from cse_cli.analysis.study_figures import draw_study  # matplotlib: only where something is drawn

    cells = [cell for cell, _ in found.filled.cells]
    with TemporaryDirectory() as folder:
        files = draw_study(found.study, cells, results, Path(folder))
        drawn = [path for path in files if path.suffix == ".svg"]
        return Section("Figure", tuple(Picture(path.stem, found.study.title, path.read_bytes()) for path in drawn))


def _cells(found: Found) -> Section:
    """Return what each cell is, and which of its seeds have finished."""
    rows = []
    for cell, _ in found.filled.cells:
        settings = [*(f"--set {text}" for text in cell.overrides), *(f"--unset {key}" for key in cell.unset)]
        seeds = ", ".join(str(result.seed) for result in found.current.get(cell.hash, ()))
        rows.append((cell.label, cell.recipe, " ".join(settings), cell.hash[:8], seeds or "none"))
    told = Words("A finished run belongs to a cell when the hash of its resolved recipe is the cell's.")
    columns = ("recipe", "settings", "hash", "seeds finished")
    return Section("Cells", (plain_table("Every cell", columns, rows), told))


def _again(found: Found, asked: str) -> Section:
    commits = {(result.versions.git or "").removesuffix("+") for result in found.results} - {""}
    checkout = [f"git checkout {commit}" for commit in commits] if len(commits) == 1 else []
    own = any((result.versions.git or "").endswith("+") for result in found.results)
    parts: list[Part] = [Code("\n".join([*checkout, f"cse run {_named(found.study, asked)}"]), "console")]
    parts.append(Words("Cells that are finished are not run again where the same tracking store is used."))
    if own:
        parts.append(Words("Something in the repository was not committed when they ran."))
    return Section("Run it again", tuple(parts))


def _named(study: Study, asked: str) -> str:
    """Return what others can ask for the study by."""
    return Path(asked).name if Path(asked).is_absolute() else asked or study.name


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
