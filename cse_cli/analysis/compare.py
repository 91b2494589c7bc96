"""Comparison of recipes, runs or rows of a study: their differences, and tests over seeds and on sentence pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Literal

from pydantic import BaseModel, Field

from cse_cli.analysis.experiments import ENVIRONMENT, Experiment
from cse_cli.analysis.methods import lettered, rows_with_runs
from cse_cli.analysis.origins import read_resolved
from cse_cli.analysis.paired_tests import (
    Finding,
    OnPairs,
    PairedTests,
    evaluators_of,
    find_metrics,
    shared_metrics,
    verdict,
)
from cse_cli.analysis.tables import StudyRuns
from cse_cli.core.formatting import counted
from cse_cli.core.identity import SHORT, Difference, Mode
from cse_cli.core.plans import SeedPlan
from cse_cli.core.results import MAIN_SCORE, RANKED
from cse_cli.core.stats import LEVEL, Paired, compare_paired, judge_together
from cse_cli.recipe.changes import Change, recipe_changes
from cse_cli.runs.scores import main_metric, metric_value
from registry.errors import CseError
from registry.papers import AVERAGE

RESAMPLES = 2000
NONE = "—"
"""Direction of a difference that no test shows."""
Couple = tuple[Experiment, Experiment]


class MethodSummary(BaseModel, frozen=True):
    """One of the methods compared. `made_from` is the file or folders of results made elsewhere."""

    letter: str
    name: str
    recipe: str
    recipe_hash: str
    experiment: str
    model: str
    made_from: str = ""
    seeds: tuple[int, ...]
    mode: Mode
    planned: tuple[int, ...]
    run_ids: tuple[str | None, ...]
    notes: tuple[str, ...]


class MetricComparison(BaseModel, frozen=True):
    """One metric of one comparison.

    Args:
        more_is_better: Whether higher is known to be better. If not, nothing is called better.
        selecting: Whether the metric's evaluator selected the states. Then it is shown and not tested.
        pairs_note: Reason why the sentence pairs of all or some seeds are not compared.
    """

    metric: str
    more_is_better: bool
    selecting: bool = False
    over_seeds: Paired
    on_pairs: OnPairs | None = None
    pairs_note: str | None = None
    finding: Finding = "undecided"
    verdict: str = ""

    @property
    def direction(self) -> str:
        """Direction of a difference that the test shows, else a dash."""
        if self.finding != "different":
            return NONE
        words = ("better", "worse") if self.more_is_better else ("higher", "lower")
        return words[0 if self.over_seeds.difference > 0 else 1]


class Comparison(BaseModel, frozen=True):
    """Two methods. Differences are the second minus the first.

    Args:
        left_out: Letter → seeds that the other method does not have.
        planned: Planned seeds of a planned or incomplete comparison.
        primary: Metric that judges the methods. Others are tested on request, and only if it differs. Empty if every
            metric selected states.
        headline: Conclusion about the primary metric in one sentence, and the treatment of the others.
    """

    first: str
    second: str
    seeds: tuple[int, ...]
    left_out: dict[str, tuple[int, ...]]
    mode: Mode
    planned: tuple[int, ...] = ()
    metrics: tuple[MetricComparison, ...]
    primary: str = ""
    headline: str = ""

    @property
    def main(self) -> MetricComparison:
        """Comparison by the primary metric, else by the first one."""
        return next((one for one in self.metrics if one.metric == self.primary), self.metrics[0])


class ComparisonDocument(BaseModel, frozen=True):
    """Everything that `cse compare` shows.

    Args:
        changes: Keys of the resolved recipes that differ. None if a recipe cannot be read.
        circumstances: Other differences: text, weights and code of the same name, device, precision, versions.
        corrected_for: Number of comparisons that share the level.
        assumed_plan: Number of seeds that `--planned` gave at analysis time. It is not recorded.
        word_overlap: Primary metric → score of the word overlap, the baseline without an encoder.
    """

    schema_version: Literal[5] = 5
    sides: tuple[MethodSummary, ...]
    changes: tuple[Change, ...] | None
    circumstances: tuple[Change, ...]
    resamples: int
    corrected_for: int
    assumed_plan: int | None = None
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...] = ()
    word_overlap: dict[str, float] = Field(default_factory=dict)


UNEQUAL = ". Their budgets differ: {} and {} training steps"
"""End of the headline of two methods that trained for different numbers of steps."""


def compare(
    methods: Sequence[Experiment],
    metrics: Sequence[str] = (),
    resamples: int = RESAMPLES,
    *,
    pairwise: bool = False,
    planned: int | None = None,
    notes: Sequence[str] = (),
) -> ComparisonDocument:
    """Compare each method with the first one, or every two.

    The runs' records contain the plan of the seeds. If both methods are planned with the same seeds, the comparison is
    one t test. Without a plan, the test holds at any number of seeds.

    Args:
        methods: Two or more methods, as `find_methods` returns them.
        metrics: Metrics to compare and to test, the primary one first. Default: each evaluator's main metric, and the
            average if it can be made. Then only the primary metric is tested, so that the others cost it nothing.
        resamples: Number of data sets drawn from the sentence pairs. 0 omits the tests on sentence pairs.
        pairwise: Whether to compare every two.
        planned: Number of seeds that you planned before the first run. Only if there is no recorded plan.
        notes: Remarks on the choice of methods.
    """
    couples = couples_of(methods, pairwise=pairwise)
    plans = [_plan(couple, planned) for couple in couples]
    recipes = {method.letter: read_resolved(method.latest.run_id) for method in methods if not method.elsewhere}
    chosen = find_metrics(metrics, [run for method in methods for run in method.results])
    of_couples = [chosen or _shared_metrics(couple) for couple in couples]
    for metric, couple in product(chosen, couples):
        if why := _other_data(metric, couple):
            raise CseError(f"--metric '{metric}': {why}", "run both on the same data", code="compare.other_data")
    here = not any(method.elsewhere for method in methods)
    pairs = None
    if resamples and here:
        runs = [method.runs[seed] for couple in couples for method in couple for seed in _seeds(couple)]
        pairs = PairedTests(runs, [metric for of_couple in of_couples for metric in of_couple], resamples)
    plain = [_compare(*one, pairs) for one in zip(couples, plans, of_couples, strict=True)]
    known = [recipe for recipe in recipes.values() if recipe is not None]
    changes = tuple(recipe_changes(known)) if len(known) == len(recipes) else None
    names = {method.letter: method.name for method in methods}
    judged = []
    for one, couple in zip(judge(plain, plans, names, only_primary=not metrics), couples, strict=True):
        steps = [" or ".join(map(str, sorted({run.steps for run in method.results}))) for method in couple]
        unequal = UNEQUAL.format(*steps) if steps[0] != steps[1] and "0" not in steps else ""
        judged.append(one.model_copy(update={"headline": one.headline + unequal}))
    sides = [
        MethodSummary(
            letter=method.letter,
            name=method.name,
            recipe=method.latest.recipe,
            recipe_hash=method.latest.recipe_hash,
            experiment=method.latest.experiment,
            model=method.latest.model,
            seeds=method.seeds,
            made_from=method.latest.source if method.elsewhere else "",
            mode=method.plan.mode,
            planned=method.plan.planned,
            run_ids=tuple(run.run_id for run in method.results),
            notes=method.notes,
        )
        for method in methods
    ]
    overlaps = {one.main.metric: metric_value(methods[0].latest.word_overlap, one.main.metric) for one in judged}
    differing = [_other_data(f"{name}.", couple) for couple in couples for name in couple[0].latest.scores]
    return ComparisonDocument(
        sides=tuple(sides),
        changes=changes,
        circumstances=tuple(_circumstances(methods, changes or ())),
        resamples=resamples,
        corrected_for=len(couples),
        assumed_plan=planned,
        comparisons=tuple(judged),
        notes=(
            *notes,
            *_notes(methods, [letter for letter, recipe in recipes.items() if recipe is None]),
            *dict.fromkeys(f"not compared: {why}" for why in differing if why),
        ),
        word_overlap={metric: score for metric, score in overlaps.items() if score is not None},
    )


def couples_of(methods: Sequence[Experiment], *, pairwise: bool) -> list[Couple]:
    """Return the methods to compare with each other: each with the first one, or every two."""
    return list(combinations(methods, 2)) if pairwise else [(methods[0], method) for method in methods[1:]]


def _seeds(couple: Couple) -> list[int]:
    return sorted(couple[0].runs.keys() & couple[1].runs.keys())


def _plan(couple: Couple, assumed: int | None) -> SeedPlan:
    if not (shared := _seeds(couple)):
        has = " and ".join(f"{method.name} has {', '.join(map(str, method.seeds))}" for method in couple)
        raise CseError(
            f"no shared seed: {has}",
            "train both with the same seeds"
            if couple[1].elsewhere
            else f"run `{couple[1].command(f'--seed {couple[0].seeds[0]}')}`",
            code="compare.no_shared_seed",
        )
    plan = couple[0].plan.paired_with(couple[1].plan)
    if assumed is None:
        return plan
    names = " and ".join(method.name for method in couple)
    if plan.planned and len(plan.planned) != assumed:
        problem, action = f"the recorded plan of {names} has {len(plan.planned)} seeds", "omit --planned"
    elif len(shared) != assumed:
        problem = f"{names} share {counted(len(shared), 'seed')}"
        action = "run the missing seeds first" if len(shared) < assumed else "omit --planned: seeds were added later"
    else:
        return plan if plan.planned else replace(plan, mode="assumed")
    raise CseError(f"--planned {assumed}: {problem}", action, code="compare.wrong_plan")


def _shared_metrics(couple: Couple) -> list[str]:
    every = shared_metrics([method.runs[seed] for method in couple for seed in _seeds(couple)])
    found = [metric for metric in every if not _other_data(metric, couple)]
    if every and not found:
        raise CseError(
            f"no shared metric: {_other_data(every[0], couple)}", "run both on the same data", code="compare.other_data"
        )
    if not found:
        scored = " and ".join(f"{method.name} has {', '.join(method.latest.scores) or 'none'}" for method in couple)
        raise CseError(
            f"no shared metric: {scored}",
            "use the same evaluator names in both recipes, or select a metric of both with --metric",
            code="compare.no_shared_metric",
        )
    return found


def _other_data(metric: str, couple: Couple) -> str:
    """Return the data of an evaluator of a metric that two methods scored on other data. Empty if no data differ."""
    for name in evaluators_of(metric):
        data = [method.latest.data_of(name) for method in couple]
        if all(data) and data[0] != data[1]:
            scored = (f"{method.name} scored {method.latest.data_text(name)}" for method in couple)
            return f"the data of '{name}' differ, {' and '.join(scored)}"
    return ""


def _compare(couple: Couple, plan: SeedPlan, metrics: Sequence[str], pairs: PairedTests | None) -> Comparison:
    first, second = couple
    seeds, compared = _seeds(couple), []
    chose = [(run.metric_for_best_model or "").rpartition(".") for method in couple for run in method.results]
    for metric in metrics:
        scores: dict[int, tuple[float, float]] = {}
        for seed in seeds:
            a, b = (metric_value(method.runs[seed].scores, metric) for method in couple)
            if a is not None and b is not None:
                scores[seed] = (a, b)
        if not scores:
            raise CseError(
                f"--metric '{metric}': {first.name} and {second.name} share no seed with this metric",
                "omit --metric to compare every shared metric",
                code="compare.no_shared_metric",
            )
        on_pairs, note = None, None
        if pairs is not None:
            on_pairs, note = pairs.compare(metric, {seed: (first.runs[seed], second.runs[seed]) for seed in scores})
        evaluator, _, name = metric.rpartition(".")
        one = MetricComparison(
            metric=metric,
            # A recipe maximizes its own metric. A correlation with gold scores is better if it is higher.
            more_is_better=metric == AVERAGE
            or on_pairs is not None
            or name in {RANKED, MAIN_SCORE, *(of for *_, of in chose)},
            selecting=bool(evaluator) and evaluator in {of for of, *_ in chose},
            over_seeds=compare_paired(list(scores), [a for a, _ in scores.values()], [b for _, b in scores.values()]),
            on_pairs=on_pairs,
            pairs_note=note,
        )
        compared.append(one)
    left_out = {method.letter: tuple(seed for seed in method.seeds if seed not in seeds) for method in couple}
    tested = [one.metric for one in compared if not one.selecting]
    judged_by = [main_metric(method.latest) for method in couple]
    return Comparison(
        first=first.letter,
        second=second.letter,
        seeds=tuple(seeds),
        left_out={letter: others for letter, others in left_out.items() if others},
        mode=plan.mode,
        planned=plan.planned,
        metrics=tuple(compared),
        primary=next((metric for metric in judged_by if metric in tested), next(iter(tested), "")) or "",
    )


def judge(
    comparisons: Sequence[Comparison],
    plans: Sequence[SeedPlan],
    names: Mapping[str, str],
    *,
    only_primary: bool = False,
) -> Iterable[Comparison]:
    """Yield the comparisons, which share the level, with corrected p-values and intervals, and with the conclusions.

    With `only_primary` the other metrics are shown and not tested.
    """
    tested = [
        [
            one
            for one in sorted(each.metrics, key=lambda one: one.metric != each.primary)
            if not one.selecting and (not only_primary or one.metric == each.primary)
        ]
        for each in comparisons
    ]
    over_seeds = judge_together(
        [[one.over_seeds.p_in(each.mode) for one in of_one] for each, of_one in zip(comparisons, tested, strict=True)]
    )
    on_pairs = judge_together([[None if one.on_pairs is None else one.on_pairs.p for one in of] for of in tested])
    for comparison, plan, *found in zip(comparisons, plans, tested, over_seeds, on_pairs, strict=True):
        corrections = {one.metric: both for one, *both in zip(*found, strict=True)}
        mode, main, primary, judged = comparison.mode, comparison.main.metric, comparison.primary, []
        others, headline = "", f"{main}, compared with {names[comparison.first]}: "
        for one in comparison.metrics:
            seeds, pairs = corrections.get(one.metric, (None, None))
            p, level, needed = None, 0.0, 0.0
            if seeds is not None and mode != "incomplete":
                p, needed, level = seeds.p, seeds.level, seeds.level if seeds.tested else 0.0
            over = one.over_seeds.judged(mode, p, level, needed)
            paired = one.on_pairs and one.on_pairs.model_copy(update={"p_adjusted": None if pairs is None else pairs.p})
            if one.selecting:
                finding, text = "selecting", "not tested: it selected the states"
                of_main = text
            else:
                finding, text = verdict(comparison.second, over, paired, one.more_is_better, plan)
                _, of_main = verdict(names[comparison.second], over, paired, one.more_is_better, plan)
            if one.metric == main:
                headline += of_main
            if only_primary and one.metric != primary and not one.selecting:
                finding, text = "untested", f"not tested: --metric {one.metric}"
            update = {"over_seeds": over, "on_pairs": paired, "finding": finding, "verdict": text}
            judged.append(one.model_copy(update=update))
        number = sum(not one.selecting and one.metric != primary for one in judged)
        p = next((one.over_seeds.p_adjusted for one in judged if one.metric == primary), None)
        if number and p is not None and not only_primary:
            rest = "the other metric is" if number == 1 else f"the {number} other metrics are"
            others = f". Primary metric: {primary}; it shows no difference, so {rest} not tested"
            if p < LEVEL:
                others = f". Primary metric: {primary}; {rest} corrected together by Holm's procedure"
        yield comparison.model_copy(update={"metrics": tuple(judged), "headline": headline + others})


def _circumstances(methods: Sequence[Experiment], changes: Sequence[Change]) -> Iterable[Change]:
    """Yield the differences that are not in the recipes: text, weights, code, device, precision, versions."""
    identities = [method.latest.identity for method in methods]
    parts: dict[tuple[str, str], Difference] = {}
    for identity in identities[1:]:
        parts |= {(one.part, one.name): one for one in identities[0].differences(identity) if one.part != "settings"}
    changed = {change.key for change in changes}
    for part, name in parts:
        digests = [getattr(identity, part) for identity in identities]
        values = tuple(str(one.get(name, "") if name else one).removeprefix("rows:")[:SHORT] for one in digests)
        # A component that only one recipe has, or another model in a recipe, is a change of the recipe.
        if all(values) and not (part == "weights" and changed & {name, f"{name}.model"}):
            label = "scored data" if part == "scored" else f"{part} of"
            yield Change(key=f"{label} {name}" if name else part, values=values)
    for name, value_of in ENVIRONMENT.items():
        values = tuple(", ".join(sorted({value_of(run) for run in method.results} - {""})) for method in methods)
        if all(values) and len(set(values)) > 1:
            yield Change(key=name, values=values)


def _notes(methods: Sequence[Experiment], unreadable: Sequence[str]) -> Iterable[str]:
    """Yield the remarks on each method. `unreadable` are the letters of those whose recipe cannot be read."""
    for method in methods:
        yield from (f"{method.letter}: {note}" for note in method.notes)
        if method.plan.mode == "incomplete" and len(method.runs) > 1:
            missing = method.command(f"--seeds {method.plan.option}")
            yield f"{method.letter}: {method.plan.text}: `{missing}`"
        if method.test_selected:
            yield f"{method.letter}: a test split selected the states, so the scores are optimistic"
        if method.letter in unreadable:
            yield f"{method.letter}: the recorded recipe cannot be read"
    runs = [run for method in methods for run in method.results]
    if selected := sorted({run.metric_for_best_model for run in runs if run.metric_for_best_model}):
        yield f"{', '.join(selected)} selected the states: optimistic, and not tested"


def compare_rows(runs: StudyRuns, argument: str, score: str | None = None) -> ComparisonDocument:
    """Compare the rows of a study with its first one, as `cse compare STUDY` does, without tests on sentence pairs.

    `score` is the metric to compare. Without it, or if it is the primary metric of the runs, it is all main metrics.
    """
    rows, notes = rows_with_runs(runs, argument)
    methods = lettered([(row, row.name) for row in rows])
    primary = score in (None, main_metric(methods[0].latest))
    return compare(methods, [] if primary or score is None else [score], resamples=0, notes=notes)
