"""Verdict on a reported number: is it what further runs of the recipe would score?

The reported number r is one run, the mean of k runs, or the best of k runs. Your n seeds have the mean m. If r comes
from the same normal distribution with the standard deviation σ, then r − m has the variance σ² (1/k + 1/n). With an
estimate s of σ that has ν degrees of freedom, r is in the prediction interval

    m ± t(ν, 1 − α/2) · s · √(1/k + 1/n)

with the probability 1 − α. For the best of k runs, the upper end has the level α / (2k) for a single run, by
Bonferroni's inequality. The interval is wider by one unit of the last reported digit: half of it because the number is
rounded, half because papers round the scores of tasks before they average them.

If others published runs of the same recipe, their variance is pooled with that of your seeds, so that few seeds are
enough. Their mean is not used, because another implementation can have another mean.
"""

from __future__ import annotations

import math
import shlex
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple

from pydantic import BaseModel

from cse_cli.analysis.experiments import Experiment
from cse_cli.analysis.papers import judging_column, reported_row, rows_of_table, table_of
from cse_cli.analysis.score_table import Score, ScoreRow
from cse_cli.core.formatting import counted
from cse_cli.core.results import RANKED, STS_TASKS, Result, paper_average
from cse_cli.core.stats import LEVEL, MOST_SEEDS
from cse_cli.recipe.files import bare_file, name_of, recipe_name, shipped
from cse_cli.recipe.load import LoadedRecipe, changed, load
from cse_cli.runs.scores import metric_value
from registry import papers
from registry.errors import CseError, UnknownNameError, suggestion
from registry.papers import AVERAGE, Column, DoubtfulPoint, Reproduction

Outcome = Literal["reproduced", "lower", "higher", "undecided"]
"""The reported number is in the interval, your scores are lower, or higher, or there are too few seeds."""
TOLERANCE = 1.0
"""Largest half-width of the 95 % confidence interval of your mean, in points, with which a number counts as reproduced.

A wider one would also accept a method that is one point worse. The gains over SimCSE in IFCL's Table 1 are 0.94 to
1.55 points.
"""
FEWEST_FREEDOM = 4
"""Smallest degrees of freedom of a standard deviation that decides: five seeds, or fewer with published runs.

With three seeds, a standard deviation that is too small by chance would end the search for more seeds too early.
"""
EARLY_LEVEL = 0.01
"""Level of "lower" and "higher" as long as there are too few seeds, so that adding seeds does not add errors."""
UNEQUAL = 0.01
"""Level of the F test for different variances. Then the published runs are not used."""


class Spread(NamedTuple):
    """Number of runs that others published, the sample standard deviation of their scores, and their source."""

    n: int
    std: float
    source: str


class Claim(BaseModel, frozen=True):
    """A reported number.

    Args:
        digits: Number of reported decimals.
        runs: Number of runs behind it.
        best: Whether it is the best of these runs instead of their mean.
        tolerance: Precision of your mean that a verdict requires, in points.
        others: Published runs of the same recipe.
    """

    heading: str
    value: float
    digits: int = 2
    runs: int = 1
    best: bool = False
    tolerance: float = TOLERANCE
    others: Spread | None = None


class Verdict(BaseModel, frozen=True):
    """Verdict, and the numbers that lead to it.

    Args:
        n: Number of your seeds, with `mean` and sample standard deviation `std`.
        sigma: Standard deviation of the interval. None if it is unknown.
        freedom: Degrees of freedom of `sigma`. None without training, where every run has the same score.
        pooled: Whether published runs are part of `sigma`.
        low: Lower end of the interval for the reported number, up to `high`. None without an interval.
        level: Level of the interval. None without a test: without training, every run has the same score.
        more_seeds: Number of additional seeds that are expected to suffice. 0 for a decided verdict. One more than
            `MOST_SEEDS` means more than those.
    """

    outcome: Outcome
    mean: float
    std: float | None
    n: int
    sigma: float | None = None
    freedom: int | None = None
    pooled: bool = False
    low: float | None = None
    high: float | None = None
    level: float | None = LEVEL
    more_seeds: int = 0


def judge(score: Score, claim: Claim, *, trained: bool = True) -> Verdict:
    """Return the verdict on a reported number from the score of your seeds. Without training, all runs are equal."""
    from scipy.special import fdtr, fdtrc, stdtrit  # a third of a second to import

    def quantile(tail: float, freedom: int) -> float:
        return float(-stdtrit(freedom, tail))

    def outcome(low: float, high: float) -> Outcome:
        return "lower" if claim.value > high else "higher" if claim.value < low else "reproduced"

    n, mean, unit = score.n or 0, score.mean, 10**-claim.digits
    yours = {"mean": mean, "std": score.std, "n": n}
    if not trained:
        low, high = mean - unit, mean + unit
        return Verdict(outcome=outcome(low, high), low=low, high=high, sigma=0.0, level=None, **yours)
    sigma, freedom, pooled, others = score.std, n - 1, False, claim.others
    if others is not None:  # an F test decides whether the variances are different
        own, theirs, std = n - 1, others.n - 1, score.std or 0.0
        ratio = (std / others.std) ** 2
        if sigma is None or 2 * min(fdtr(own, theirs, ratio), fdtrc(own, theirs, ratio)) >= UNEQUAL:
            squares = own * std**2 + theirs * others.std**2
            sigma, freedom, pooled = math.sqrt(squares / (own + theirs)), own + theirs, True
    if sigma is None:
        return Verdict(outcome="undecided", freedom=0, more_seeds=FEWEST_FREEDOM + 1 - n, **yours)
    precision = quantile(LEVEL / 2, freedom) * sigma / math.sqrt(n)
    enough = precision <= claim.tolerance and freedom >= FEWEST_FREEDOM
    level = LEVEL if enough else EARLY_LEVEL
    reach = sigma * math.sqrt((1 if claim.best else 1 / claim.runs) + 1 / n)
    low = mean - quantile(level / 2, freedom) * reach - unit
    high = mean + quantile(level / 2 / (claim.runs if claim.best else 1), freedom) * reach + unit
    found, more_seeds = outcome(low, high), 0
    if found == "reproduced" and not enough:

        def suffices(more: int) -> bool:
            """Return whether the mean is precise enough with more seeds, if σ stays the same."""
            known = freedom + more
            precise = quantile(LEVEL / 2, known) * sigma / math.sqrt(n + more) <= claim.tolerance
            return known >= FEWEST_FREEDOM and precise

        found, more_seeds = "undecided", 1 + bisect_left(range(1, MOST_SEEDS + 1), True, key=suffices)
    return Verdict(
        outcome=found, sigma=sigma, freedom=freedom, pooled=pooled, low=low, high=high, level=level,
        more_seeds=more_seeds, **yours,
    )  # fmt: skip


def verdict_text(verdict: Verdict, claim: Claim) -> str:
    """Return the verdict with your score and the reported one, and the prediction interval with its basis."""
    seeds, others, word = counted(verdict.n, "seed"), claim.others, str(verdict.outcome)
    if verdict.outcome == "undecided":
        many = verdict.more_seeds > MOST_SEEDS
        more = f"more than {MOST_SEEDS:,} more seeds" if many else counted(verdict.more_seeds, "more seed")
        word = f"not decided yet ({more})"
    std = "" if verdict.std is None else f" ± {verdict.std:.2f}"
    reported = f"reported {claim.value:.{claim.digits}f}"
    text = f"{word}: {claim.heading} {verdict.mean:.2f}{std} over {seeds}, {reported}."
    if verdict.sigma is None:
        return f"{text} One seed has no standard deviation, and no runs of others are published."
    if verdict.freedom is None:
        return f"{text} The recipe does not train, so every run has this score."
    basis = f"your {seeds}"
    if others is not None:
        theirs = f"{counted(others.n, 'published run')} ({others.source})"
        basis += f" and {theirs}" if verdict.pooled else f". {theirs} have another variance"
    what = "one more run" if claim.runs == 1 else f"the {'best' if claim.best else 'mean'} of {claim.runs} runs"
    interval = f"{verdict.low:.2f} to {verdict.high:.2f} ({100 * (1 - (verdict.level or 0)):.0f} % prediction interval)"
    return f"{text} Expected for {what}: {interval}, with the standard deviation {verdict.sigma:.2f} of {basis}."


def claim_of(row: ScoreRow, column: Column, recipe: str) -> Claim:
    """Return the reported number of a column, with the published runs of the recipe."""
    reported, cells = row.scores[column.name], table_of(row).rows[row.name]
    published = papers.distribution(recipe, column.evaluator or "")
    return Claim(
        heading=column.name,
        value=reported.target,
        digits=reported.digits,
        runs=cells.runs,
        best=cells.best,
        others=Spread(published.n, published.std, published.source) if published and published.std else None,
    )


def verdict_note(experiment: Experiment, row: ScoreRow, score: Score) -> list[str]:
    """Return the verdict on a reported row that runs reproduce, as a note on their row of the leaderboard.

    `score` is theirs in the column that judges a row. A single seed has a note only if others published runs.
    """
    if not score.comparable or experiment.stale or experiment.test_selected:
        return []
    table = table_of(row)
    column = judging_column(table)
    if table.kind != "scores" or column.name not in row.scores:
        return []
    claim = claim_of(row, column, experiment.recipe)
    if score.reference != claim.value:
        return []
    verdict = judge(score, claim, trained=experiment.latest.steps != 0)
    return [] if verdict.sigma is None else [f"{row.name}: {verdict_text(verdict, claim)}"]


FEWEST = 20
"""Smallest number of runs for which a percentile is more informative than a count."""


def compare_with_reproductions(results: Sequence[Result], *, notes: bool = False) -> list[str]:
    """Return lines with the published distribution of a recipe and the position of each of its runs in it.

    Runs with other settings than the shipped recipe's are omitted. `notes` add how the published runs differ.
    """
    published, unchanged = {one.recipe for one in papers.reproductions()}, []
    for result in sorted(results, key=lambda result: result.seed):
        name = recipe_name(result.recipe)
        if name in published and result.recipe_hash == _shipped(name):
            unchanged.append(result)
    if not unchanged:
        return []
    name = recipe_name(unchanged[0].recipe)
    found = {score: papers.distribution(name, score) for score in (AVERAGE, *STS_TASKS)}
    known = {score: one for score, one in found.items() if one is not None and one.n > 1}
    lines = []
    for source in dict.fromkeys(one.source for one in known.values()):  # by its average if it has one
        one = next(one for one in known.values() if one.source == source)
        spread = "" if one.std is None else f" ± {one.std:.2f}"
        numbers = f"{one.score} {one.low:.2f} to {one.high:.2f}, mean {one.mean:.2f}{spread}"
        note = f"; {one.note}" if notes and one.note else ""
        address = source.removeprefix("https://").removeprefix("github.com/")
        lines.append(f"{one.n} independent runs of {one.paper}: {numbers} ({address}{note})")
    sources = len(lines)
    for result in unchanged:  # its average, and the tasks outside their range
        metrics = {score: score if score == AVERAGE else f"{score}.{RANKED}" for score in known}
        measured = {score: metric_value(result.scores, metric) for score, metric in metrics.items()}
        values = {score: value for score, value in measured.items() if value is not None}
        outside = [
            score for score, value in values.items() if not known[score].low <= round(value, 2) <= known[score].high
        ]
        shown = [score for score in values if score == AVERAGE or score in outside]
        parts = [f"{score} {values[score]:.2f}, {position(values[score], known[score])}" for score in shown]
        if values.keys() - {AVERAGE} and not set(shown) - {AVERAGE}:
            parts.append("every task within its range")
        lines += [f"seed {result.seed}: {'; '.join(parts)}"] if parts else []
    return lines if len(lines) > sources else []


def position(value: float, known: Reproduction) -> str:
    """Return the percentile of a score, or the number of runs below it, or whether it is in the range.

    Ties count half, as in the usual percentile rank. Published values have two decimals, so `value` is rounded first.
    """
    score = round(value, 2)
    if score < known.low:
        return f"below all {known.n}"
    if score > known.high:
        return f"above all {known.n}"
    if not known.values:
        return "within their range"
    below = sum(other < score for other in known.values) + sum(other == score for other in known.values) / 2
    if known.n < FEWEST:
        return f"above {below:g} of {known.n}"
    number = round(100 * below / known.n)
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending} percentile"


@cache
def _shipped(name: str) -> str:
    """Return the hash of the recipe in this package, not of another file with the same name."""
    return load(str(shipped() / f"{name}.toml")).recipe.hash()


@dataclass(frozen=True)
class Target:
    """Recipe to run, and the number to compare it with.

    Args:
        name: Name of the row, such as "IFCL, Table 1, IFCL-BERT base".
        source: Citation of the paper, or command and machine of the measurement.
        evaluators: Evaluators of the number. Several are averaged as in papers.
        notes: Doubts about the reported row.
    """

    loaded: LoadedRecipe = field(repr=False)
    name: str
    source: str
    claim: Claim
    evaluators: Sequence[str]
    metric: str
    notes: Sequence[str] = ()

    def value(self, result: Result) -> float:
        """Return the score of a run."""
        if len(self.evaluators) > 1:
            found = paper_average(result.scores, self.evaluators, self.metric)
        else:
            found = result.scores.get(self.evaluators[0], {}).get(self.metric)
        if found is None:
            raise CseError(
                f"run {str(result.run_id)[:8]} has no score for '{self.claim.heading}'",
                f"run it again: cse run {result.recipe} --again",
                code="reproduce.no_score",
            )
        return found


def find_target(argument: str, overrides: Sequence[str] = (), unset: Sequence[str] = ()) -> Target:
    """Return the target that a recipe, or a row such as "ifcl/1/IFCL-BERT base", names."""
    key, slash, address = argument.partition("/")
    names_a_file = argument.endswith(".toml") or bare_file(argument, study=False) is not None
    if not names_a_file and key in papers.names() and slash:
        row, recipe = _find_row(key, address)
        return _paper_target(load(recipe, overrides, unset), row)
    loaded = load(argument, overrides, unset)
    if found := reported_row(loaded.recipe.paper):
        return _paper_target(loaded, found)
    if (measured := papers.measured_rows().get(recipe_name(argument))) is None:
        raise CseError(
            f"recipe '{argument}' reproduces no reported row",
            f"run it without a verdict: cse run {argument}. Rows have addresses such as 'ifcl/1/IFCL-BERT base', and "
            f"these small recipes have measured results: {', '.join(papers.measured_rows())}",
            code="reproduce.no_row",
        )
    if measured.judged not in loaded.recipe.evaluators:
        raise CseError(
            f"'{argument}' has no evaluator '{measured.judged}', whose score was measured",
            "omit --unset",
            code="reproduce.not_comparable",
        )
    judged, runs = measured.judged, len(measured.seeds)
    others = Spread(runs, measured.std(judged), "measured by this project")
    return Target(
        loaded=loaded,
        name=f"{measured.recipe}, measured by this project",
        source=f"{measured.command} ({measured.date}, {measured.machine}, {measured.versions})",
        claim=Claim(
            heading=judged, value=measured.mean(judged), runs=runs, tolerance=measured.tolerance, others=others
        ),
        evaluators=(judged,),
        metric=measured.metric,
    )


def _find_row(key: str, address: str) -> tuple[ScoreRow, str]:
    """Return the row "table/row" of a paper and its recipe. The table is a number or an identifier."""
    number, slash, name = address.partition("/")
    paper = papers.load(key)
    tables = {one: table for one, table in paper.tables.items() if number in (one, str(table.number))}
    if not tables:
        known = [*paper.tables, *(str(table.number) for table in paper.tables.values() if table.number is not None)]
        raise UnknownNameError(
            f"there is no table '{number}' in {paper.short}.{suggestion(number, known)}",
            f"show its tables: cse leaderboard --paper {key}",
            code="reproduce.unknown_table",
        )
    rows = {row.name.casefold(): row for one in tables for row in rows_of_table(key, one)}
    if (found := rows.get(name.casefold())) is None:
        names = [row.name for row in rows.values()]
        message = f"'{key}/{address}': there is no row '{name}' in table '{number}' of {paper.short}."
        raise UnknownNameError(
            message + suggestion(name, names) if slash else f"'{key}/{address}' is a table, not a row",
            f"show its rows: cse leaderboard --table {key}/{number}. An address: '{key}/{number}/{names[-1]}'",
            code="reproduce.unknown_row",
        )
    table = table_of(found)
    if found.recipe is not None and table.kind == "scores":
        return found, found.recipe
    column = next((column for row, column in table.printed() if row == found.name), table.columns[0])
    answer = table.answer(found.name, column.name)
    if answer.kind == "study":
        raise CseError(
            f"'{key}/{address}': a study reproduces this row, with one recipe for each cell",
            f"run the study: cse run {answer.text}",
            code="reproduce.study",
        )
    reason = answer.text if answer.kind == "reason" else "its table does not contain scores"
    raise CseError(
        f"'{key}/{address}': no recipe reproduces this row: {reason}",
        f"choose another row: cse leaderboard --table {key}/{found.table}",
        code="reproduce.no_recipe",
    )


def _paper_target(loaded: LoadedRecipe, row: ScoreRow) -> Target:
    """Return the target of a reported row: its average if the recipe scores it, else its first comparable score."""
    reported, table, paper = row.scores, table_of(row), papers.load(str(row.paper))
    tasks = tuple(one.evaluator for one in table.columns if one.evaluator not in (None, AVERAGE)) or STS_TASKS
    found = []
    for column in table.columns:
        evaluators = tasks if column.evaluator == AVERAGE else (column.evaluator,)
        known = column.evaluator and column.name in reported and reported[column.name].comparable
        if known and set(evaluators) <= loaded.recipe.evaluators.keys():
            found.append((column, evaluators))
    if not found:
        reasons = "; ".join(dict.fromkeys(flag.note for flag in (*table.doubts(row.name), *table.flags)))
        raise CseError(
            f"{row.name} of {paper.short}, {table.title}: no score of '{loaded.name}' is the reported quantity"
            f"{f' ({reasons})' if reasons else ''}",
            f"run the recipe without a verdict: cse run {loaded.name}",
            code="reproduce.not_comparable",
        )
    column, evaluators = next((one for one in found if one[0].evaluator == AVERAGE), found[0])
    of_text = ("bold_not_maximum", "text_only", "wording", "unused")  # these do not concern the numbers of a row
    flags = [flag for flag in table.flags if flag.row in (None, row.name) and flag.kind not in of_text]
    return Target(
        loaded=loaded,
        name=f"{paper.short}, {table.title}, {row.name}",
        source=f"{paper.citation} {paper.url}",
        claim=claim_of(row, column, loaded.name),
        evaluators=[name for name in evaluators if name is not None],
        metric=table.score_of(column, row.name),
        notes=list(dict.fromkeys(f"{flag.column}: {flag.note}" if flag.column else flag.note for flag in flags)),
    )


def doubts(loaded: LoadedRecipe) -> Iterator[tuple[DoubtfulPoint, list[str]]]:
    """Yield the doubtful points of a recipe, its own first, with the `--set` options that it accepts."""
    names = [name_of(source.path) for source in loaded.origins.sources]
    points = [point for name in names for point in papers.doubtful_points() if name in point.recipes]
    for point in dict.fromkeys(points):
        accepted: list[list[str]] = []
        for option in map(str.split, point.options):
            try:
                differs = changed(loaded, option).recipe.hash() != loaded.recipe.hash()
            except CseError:
                continue
            if differs and not any(set(option) < set(other) for other in accepted):
                accepted.append(option)
        if accepted:
            yield point, [" ".join(f"--set {shlex.quote(word)}" for word in option) for option in accepted]
