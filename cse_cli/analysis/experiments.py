"""Finished runs by experiment: what distinguishes two experiments of one recipe, and which recipes they come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from cse_cli.analysis.origins import STATUSES, Answers, RecipeStatus, names_of, origin_of, recipe_status
from cse_cli.analysis.runs import by_seed, changed_settings, last_finished, shortened
from cse_cli.core.identity import SHORT, Difference
from cse_cli.core.plans import SeedPlan, plan_of
from cse_cli.core.results import STS_TASKS, PaperRow, Result, paper_average
from cse_cli.runs.index import RecordedRun
from registry.papers import AVERAGE

StatusOf = Callable[[Result], RecipeStatus]
ChangesOf = Mapping[str, Sequence[str]]
"""Run → what its `--set` and `--unset` changed."""
TRAINING = "training"
"""Name of the fingerprint of the training text, which is not evaluation data."""
POOLED = (
    "--pool settings: runs with equal settings are one row, also if text, weights or code differ; of each seed the run "
    "that finished last"
)


@dataclass(frozen=True)
class Configuration:
    """The runs of one experiment, one per seed.

    Args:
        results: By seed.
        status: How the experiment relates to its recipe's file today.
        names: Recipes that it comes from: several files may have the same settings.
        origin: What identifies the first of these recipes.
        changes: What `--set` and `--unset` changed.
        apart: What distinguishes it from other experiments with the same settings, such as "text 1f914d36".
        notes: How it differs from these, and what is pooled in it.
    """

    results: tuple[Result, ...]
    status: RecipeStatus
    names: tuple[str, ...] = ()
    origin: str = ""
    changes: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def latest(self) -> Result:
        """The run that finished last."""
        return last_finished(self.results)

    @property
    def recipe(self) -> str:
        """Name of the recipe that it came from first."""
        return self.names[0] if self.names else self.latest.recipe

    @property
    def seeds(self) -> tuple[int, ...]:
        """In order."""
        return tuple(result.seed for result in self.results)

    @property
    def test_selected(self) -> bool:
        """Whether a test split selected the state of any run."""
        return any(result.test_selected for result in self.results)

    @cached_property
    def plan(self) -> SeedPlan:
        """The recorded plan of the seeds, on which their test depends. Experiments that are pooled have none."""
        pooled = len({result.experiment for result in self.results}) > 1
        return SeedPlan("anytime") if pooled else plan_of(self.results)

    @property
    def stale(self) -> bool:
        """Whether the recipe's file describes another experiment today, which no `--set` explains."""
        return self.status == "changed" or (self.status == "other_model" and not self.changes)

    @property
    def settings(self) -> tuple[str, ...]:
        """How it differs from the recipe's file, and from other experiments with the same settings."""
        if self.status == "current":
            return self.apart
        changed = self.changes or (changed_settings(self.latest) if self.status == "changed" else ())
        return (*shortened(changed), *self.apart)

    def judges(self, evaluator: str) -> bool:
        """Return whether an evaluator's scores may rank and judge: neither the selecting one nor another on dev."""
        selecting = (self.latest.select or "").rpartition(".")[0]
        return evaluator != selecting and not evaluator.endswith("dev")

    def values(self, evaluator: str, metric: str | None = None, *, untrained: bool = False) -> list[float]:
        """Return the score of every seed, or nothing if one seed lacks it.

        Args:
            evaluator: As the recipe names it, or `avg` for the average of the seven English sets.
            metric: None for the evaluator's main metric.
            untrained: Of the encoder before training.
        """
        if evaluator == AVERAGE:
            return self.averages(STS_TASKS, metric or "spearman", untrained=untrained)
        found: list[float] = []
        for result in self.results:
            metrics = (result.untrained if untrained else result.scores).get(evaluator, {})
            name = metric or next(iter(metrics), "")  # evaluators report their main metric first
            if name not in metrics:
                return []
            found.append(metrics[name])
        return found

    def averages(self, evaluators: Sequence[str], metric: str, *, untrained: bool = False) -> list[float]:
        """Return the papers' average of every seed, or nothing if one seed lacks a score."""
        scores = [result.untrained if untrained else result.scores for result in self.results]
        found = [paper_average(of_seed, evaluators, metric) for of_seed in scores]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else []


def configurations(
    results: Iterable[Result],
    status_of: StatusOf | None = None,
    changes: ChangesOf | None = None,
    *,
    pool: bool = False,
) -> list[Configuration]:
    """Return the runs of each experiment together; scores on different evaluation data are never together.

    A run with another model than its recipe's reproduces no reported row.

    Args:
        results: Finished runs.
        status_of: How a run relates to its recipe's file.
        changes: Run → what its `--set` changed.
        pool: Merge experiments with the same settings.
    """
    ordered = sorted(results, key=lambda run: run.finished)
    groups = _Groups(ordered, changes or {}, status_of)
    found: dict[tuple[object, ...], list[Result]] = defaultdict(list)
    for result, paper in groups.with_papers(lambda run: run.recipe_hash if pool else run.experiment):
        key = result.recipe_hash if pool else result.experiment
        found[key, paper, evaluation_data(result)].append(result)
    groups.answers.keep()
    return _distinguished([groups.configuration(runs, pool=pool) for runs in found.values()])


def evaluation_data(result: Result) -> tuple[tuple[str, str], ...]:
    """Return data set and digest of everything that a run was scored on."""
    return tuple(sorted((name, digest) for name, digest in result.fingerprints.items() if name != TRAINING))


class _Groups:
    """What the runs of one call have in common; each recipe's file is looked at once."""

    def __init__(self, results: Sequence[Result], changes: ChangesOf, status_of: StatusOf | None) -> None:
        self._results, self._changes, self.answers = results, changes, Answers()
        self._status_of = status_of or (lambda result: recipe_status(result, self.changes(result), self.answers))
        self._statuses: dict[tuple[object, ...], RecipeStatus] = {}
        self._origins: dict[tuple[str, str], str] = {}
        self._names = names_of({self.origin(result): result.recipe for result in results})

    def changes(self, result: Result) -> tuple[str, ...]:
        """Return what `--set` changed of a run's recipe."""
        return tuple(self._changes.get(result.run_id or "", ()))

    def origin(self, result: Result) -> str:
        """Return what identifies a run's recipe."""
        key = result.source, result.recipe
        if key not in self._origins:
            self._origins[key] = origin_of(result)
        return self._origins[key]

    def status(self, result: Result) -> RecipeStatus:
        """Return how a run relates to its recipe's file."""
        key = self.origin(result), result.recipe_hash, result.model, self.changes(result)
        if key not in self._statuses:
            self._statuses[key] = self._status_of(result)
        return self._statuses[key]

    def with_papers(self, key_of: Callable[[Result], str]) -> Iterable[tuple[Result, PaperRow | None]]:
        """Yield runs with the reported row that they reproduce, or that a later run of theirs reproduces."""
        rows = [None if self.status(result) == "other_model" else result.paper for result in self._results]
        newest = {key_of(run): row for run, row in zip(self._results, rows, strict=True) if row is not None}
        for result, own in zip(self._results, rows, strict=True):
            row = own if self.status(result) == "other_model" else own or newest.get(key_of(result))
            yield (result if row == result.paper else result.model_copy(update={"paper": row})), row

    def configuration(self, runs: Sequence[Result], *, pool: bool) -> Configuration:
        """Return runs, in the order in which they finished, as one configuration."""
        statuses = {self.origin(run): self.status(run) for run in runs}
        origins = sorted(statuses, key=lambda origin: STATUSES.index(statuses[origin]))
        merged = [found for first, second in pairwise(_first_of_each(runs)) for found in differences(first, second)]
        return Configuration(
            results=tuple(by_seed(runs).values()),
            status=statuses[origins[0]],
            names=tuple(dict.fromkeys(self._names[origin] for origin in origins)),
            origin=origins[0],
            changes=next((changes for run in reversed(runs) if (changes := self.changes(run))), ()),
            notes=(POOLED, *([f"pooled: {'; '.join(dict.fromkeys(merged))}"] if merged else [])) if pool else (),
        )


def _first_of_each(runs: Sequence[Result]) -> list[Result]:
    return list({run.experiment: run for run in reversed(runs)}.values())[::-1]


def _distinguished(found: Sequence[Configuration]) -> list[Configuration]:
    """Return configurations, with what distinguishes those that have the same settings."""
    same: dict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(found):
        same[one.latest.recipe_hash].append(place)
    named = list(found)
    for places in same.values():
        newest = max(places, key=lambda place: found[place].latest.finished)
        for place in places:
            if place != newest and (notes := differences(found[place].latest, found[newest].latest)):
                note = f"{found[newest].recipe}: equal settings, but not the same experiment: {'; '.join(notes)}"
                named[place] = _marked(named[place], note, found[newest])
                named[newest] = _marked(named[newest], note, found[place])
    return named


def _marked(one: Configuration, note: str, other: Configuration) -> Configuration:
    tags = dict.fromkeys((*one.apart, *_tags(one.latest, other.latest)))
    return replace(one, apart=tuple(tags), notes=(*one.notes, note))


def _tags(result: Result, other: Result) -> list[str]:
    """Return what a run has that another one, with the same settings, has not."""
    return [_tag(difference, result) for difference in result.identity.differences(other.identity)] + [
        f"{name} {digest[:SHORT]}" for name, digest, _ in _other_data(result, other)
    ]


def _tag(difference: Difference, of: Result) -> str:
    if difference.part == "code":
        return f"{difference} of {of.finished:%Y-%m-%d %H:%M}"
    named = f"weights of {difference.name}" if difference.part == "weights" else difference.part
    return f"{named} {difference.first[:SHORT] or 'none'}"


def differences(first: Result, second: Result) -> list[str]:
    """Return how the experiments and the evaluation data of two runs differ; code with the times of the runs."""
    dates = f"{first.finished:%Y-%m-%d %H:%M} / {second.finished:%Y-%m-%d %H:%M}"
    named = first.identity.differences(second.identity)
    return [f"{one} ({dates})" if one.part == "code" else str(one) for one in named] + [
        f"evaluation data {name} {old[:SHORT]} / {new[:SHORT]}" for name, old, new in _other_data(first, second)
    ]


def mixed(results: Sequence[Result]) -> list[str]:
    """Return what was not the same for all seeds and does not make another experiment."""
    versions = ("cse", "python", "torch", "transformers", "engine")
    facts = {name: [getattr(result.versions, name) for result in results] for name in versions}
    facts["engine"] = [digest[:SHORT] for digest in facts["engine"]]
    facts |= {name: [getattr(result, name) for result in results] for name in ("device", "precision")}
    named = [f"{name} {' / '.join(dict.fromkeys(of))}" for name, of in facts.items() if len(set(of)) > 1]
    return [f"not the same for all seeds: {'; '.join(named)}"] if named else []


def study_cells(runs: Iterable[RecordedRun]) -> dict[str, str]:
    """Return run → cell of the study that it was made for."""
    return {run.run_id: run.about.study for run in runs if run.about.study}


def _other_data(first: Result, second: Result) -> list[tuple[str, str, str]]:
    """Return the evaluation data that differ, with both digests."""
    old, new = dict(evaluation_data(first)), dict(evaluation_data(second))
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return [(name, _digest(old.get(name)), _digest(new.get(name))) for name in names]


def _digest(fingerprint: str | None) -> str:
    return "none" if fingerprint is None else fingerprint.removeprefix("rows:")
