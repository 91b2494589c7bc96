"""Experiments: finished runs that are seeds of each other, their scores, and the differences between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, get_args

from cse_cli.analysis.origins import RecipeStatus, changed_settings, names_of, origin_of, recipe_status, why_unreadable
from cse_cli.core.formatting import grouped
from cse_cli.core.identity import SHORT, Difference
from cse_cli.core.plans import SeedPlan, plan_of
from cse_cli.core.results import Result
from cse_cli.runs.index import finished_runs

SETTINGS_SHOWN = 3
"""Number of changed settings that a label shows."""
ENVIRONMENT: Mapping[str, Callable[[Result], str]] = {
    "software": lambda run: f"cse {run.versions.cse}" if run.run_id else run.versions.cse,
    "python": lambda run: run.versions.python,
    "torch": lambda run: run.versions.torch,
    "transformers": lambda run: run.versions.transformers,
    "engine": lambda run: run.versions.engine[:SHORT],
    "device": lambda run: run.device,
    "processor": lambda run: "portable" if run.is_portable else run.processor if run.device.startswith("cpu") else "",
    "precision": lambda run: run.precision,
}
"""Name → value of what can differ between runs of one experiment, "" if it is not recorded.

The engine is the code of trainer and evaluators. The processor matters to runs on a CPU."""
TRAINING = "training"
"""Fingerprint of the training text. All others are evaluation data."""
POOLED = (
    "--pool settings: runs with equal settings are one row, even if text, weights or code differ, with the last "
    "finished run of each seed"
)

NO_FILE = "there is no recipe with this name, so the settings are not compared with its file"
UNREADABLE = "its recipe cannot be read, so the settings are not compared with its file: {}"
BEST_OF = "the best of {} configurations by the dev scores of these seeds, so it is not tested: run new seeds together"


def last_finished(runs: Iterable[Result]) -> Result:
    """Return the run that finished last."""
    return max(runs, key=lambda run: run.finished)


def by_seed(runs: Iterable[Result]) -> dict[int, Result]:
    """Return seed → its run that finished last, in the order of the seeds."""
    latest = {run.seed: run for run in sorted(runs, key=lambda run: run.finished)}
    return dict(sorted(latest.items()))


def mixed_environments(runs: Sequence[Result]) -> list[str]:
    """Return a remark on versions, device and precision that differ between runs of one row."""
    values = {name: dict.fromkeys(filter(None, map(value_of, runs))) for name, value_of in ENVIRONMENT.items()}
    named = [f"{name} {' / '.join(of)}" for name, of in values.items() if len(of) > 1]
    return [f"not the same for all seeds: {'; '.join(named)}"] if named else []


@dataclass(frozen=True)
class Experiment:
    """The runs of one experiment, one per seed: a row of a table, a cell of a study, or a method to compare.

    Args:
        results: Results in the order of the seeds.
        names: Recipes of the runs. Several files can have the same settings.
        origin: Path or name that identifies the first of these recipes.
        changes: Settings that `--set` and `--unset` changed.
        cell: Study and row for which a run was started, whose name is shorter than its settings.
        apart: Difference from other experiments with the same settings, such as "text 1f914d36".
        best_of: Number of configurations of its recipe of which it is the best.
        fresh: Whether its seeds did not choose it among them.
        letter: Letter of a compared method in tables and sentences.
        study: Study whose row a compared method is.
    """

    results: tuple[Result, ...]
    status: RecipeStatus = "current"
    names: tuple[str, ...] = ()
    origin: str = ""
    changes: tuple[str, ...] = ()
    cell: str = ""
    apart: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    best_of: int = 1
    fresh: bool = True
    letter: str = ""
    name: str = ""
    study: str = ""

    @cached_property
    def latest(self) -> Result:
        """Run that finished last."""
        return last_finished(self.results)

    @property
    def recipe(self) -> str:
        """Name of the first recipe."""
        return self.names[0] if self.names else self.latest.recipe

    @cached_property
    def runs(self) -> dict[int, Result]:
        """Seed → its run, in the order of the seeds."""
        return {result.seed: result for result in self.results}

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds in ascending order."""
        return tuple(self.runs)

    @property
    def elsewhere(self) -> bool:
        """Whether another tool made the results, so that there are no runs, recipes or sentence pairs."""
        return self.latest.run_id is None

    @property
    def test_selected(self) -> bool:
        """Whether a test split selected the state of any run."""
        return any(result.test_selected for result in self.results)

    @cached_property
    def plan(self) -> SeedPlan:
        """Recorded plan of the seeds, on which their test depends. Pooled experiments have none."""
        pooled = len({result.experiment for result in self.results}) > 1
        return SeedPlan("anytime") if pooled else plan_of(self.results)

    @property
    def stale(self) -> bool:
        """Whether the recipe's current file describes another experiment and `--set` does not explain it."""
        return self.status == "changed" or (self.status == "other_model" and not self.changes)

    @property
    def settings(self) -> tuple[str, ...]:
        """Differences from the recipe's file and from other experiments with the same settings."""
        if self.status == "current":
            return self.apart
        if self.cell:
            return (self.cell, *self.apart)
        changed = self.changes or (changed_settings(self.latest) if self.status == "changed" else ())
        more = len(changed) - SETTINGS_SHOWN
        return (*changed[:SETTINGS_SHOWN], *([f"and {more} more"] if more > 0 else []), *self.apart)

    def remarks(self) -> list[str]:
        """Return the doubts about the scores, and what differs between the seeds."""
        unreadable = self.status == "unreadable"
        doubts = {
            NO_FILE: self.status == "missing",
            UNREADABLE.format(why_unreadable(self.latest) if unreadable else ""): unreadable,
            self.plan.text: self.plan.mode == "incomplete",
            BEST_OF.format(self.best_of): not self.fresh,
        }
        return [*(doubt for doubt, holds in doubts.items() if holds), *self.notes, *mixed_environments(self.results)]

    def judges(self, evaluator: str) -> bool:
        """Return whether an evaluator may rank and judge: it neither selected states nor uses a dev split."""
        selecting = (self.latest.metric_for_best_model or "").rpartition(".")[0]
        return evaluator != selecting and not evaluator.endswith("dev")

    def command(self, seeds: str) -> str:
        """Return the command for missing runs. `seeds` is its option for the seeds, which a study does not need."""
        return f"cse run {self.study or f'{self.latest.recipe} {seeds}'}"


@dataclass(frozen=True)
class FinishedRuns:
    """Finished runs and their origin.

    Args:
        tags: Run → cell of the study that it was started for.
        status: Relation of all runs to the files of their recipes. Default: by the files.
        changes: Run → settings that its `--set` and `--unset` changed.
    """

    results: Sequence[Result]
    tags: Mapping[str, str] = field(default_factory=dict)
    status: RecipeStatus | None = None
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def read_finished_runs() -> FinishedRuns:
    """Return all finished runs."""
    runs = finished_runs()
    cells = {run.run_id: run.about.study for run in runs if run.about.study}
    changes = {run.run_id: run.about.changes for run in runs if run.about.changes}
    return FinishedRuns([run.result for run in runs if run.result is not None], cells, changes=changes)


def group(runs: FinishedRuns, *, pool: bool = False) -> list[Experiment]:
    """Return results as experiments, those with other evaluation data apart. `pool` merges those with equal settings.

    A run with another model than its recipe's reproduces no reported row. Other runs have the reported row that they,
    or a later run of the same experiment, reproduce.
    """
    placed: list[_Placed] = []
    ordered = sorted(runs.results, key=lambda run: run.finished)
    recipes = {(run.source, run.recipe): run for run in ordered}
    origins = {key: origin_of(run) for key, run in recipes.items()}
    names = names_of({origins[key]: run.recipe for key, run in recipes.items()})
    statuses: dict[tuple[object, ...], RecipeStatus] = {}
    for run in ordered:
        changed, origin = tuple(runs.changes.get(run.run_id or "", ())), origins[run.source, run.recipe]
        key = (origin, run.recipe_hash, run.model, changed)
        if key not in statuses:
            statuses[key] = runs.status or recipe_status(run, changed)
        placed.append(_Placed(run, run.recipe_hash if pool else run.experiment, origin, statuses[key], changed))
    rows = {one.group: one.run.paper for one in placed if one.run.paper and one.status != "other_model"}
    with_rows = []
    for one in placed:
        row = None if one.status == "other_model" else one.run.paper or rows.get(one.group)
        same = row == one.run.paper
        with_rows.append(one if same else one._replace(run=one.run.model_copy(update={"paper": row})))
    groups = grouped(with_rows, lambda one: (one.group, one.run.paper, evaluation_data(one.run)))
    found: list[Experiment] = []
    for members in groups.values():  # in the order in which they finished
        seeds, of_files = [one.run for one in members], {one.origin: one.status for one in members}
        files = sorted(of_files, key=lambda origin: get_args(RecipeStatus).index(of_files[origin]))
        first_runs = list({run.experiment: run for run in reversed(seeds)}.values())[::-1]
        merged = [each for first, second in pairwise(first_runs) for each in differences(first, second)]
        experiment = Experiment(
            results=tuple(by_seed(seeds).values()),
            status=of_files[files[0]],
            names=tuple(dict.fromkeys(names[origin] for origin in files)),
            origin=files[0],
            changes=next((one.changes for one in reversed(members) if one.changes), ()),
            cell=next(filter(None, (runs.tags.get(run.run_id or "", "").rstrip("/") for run in reversed(seeds))), ""),
            notes=(POOLED, *([f"pooled: {'; '.join(dict.fromkeys(merged))}"] if merged else [])) if pool else (),
        )
        found.append(experiment)
    for places in grouped(range(len(found)), lambda place: found[place].latest.recipe_hash).values():
        newest = max(places, key=lambda place: found[place].latest.finished)
        for place in places:  # the differences between experiments with the same settings
            if place != newest and (notes := differences(found[place].latest, found[newest].latest)):
                note = f"{found[newest].recipe}: equal settings, but not the same experiment: {'; '.join(notes)}"
                found[place], found[newest] = (
                    _marked(found[place], note, found[newest]), _marked(found[newest], note, found[place])
                )  # fmt: skip
    return found


class _Placed(NamedTuple):
    """A run, what groups it with others, and the relation to the file of its recipe."""

    run: Result
    group: str
    origin: str
    status: RecipeStatus
    changes: tuple[str, ...]


def evaluation_data(result: Result) -> tuple[tuple[str, str], ...]:
    """Return the data sets of a run's evaluators with their digests."""
    return tuple(sorted((name, digest) for name, digest in result.fingerprints.items() if name != TRAINING))


def _marked(one: Experiment, note: str, other: Experiment) -> Experiment:
    tags = []
    for each in _differing(one.latest, other.latest):
        if each.part == "code":
            tags.append(f"{each} of {one.latest.finished:%Y-%m-%d %H:%M}")
        else:
            named = {"weights": f"weights of {each.name}", "scored": each.name}.get(each.part, each.part)
            tags.append(f"{named} {each.first.removeprefix('rows:')[:SHORT] or 'none'}")
    return replace(one, apart=tuple(dict.fromkeys((*one.apart, *tags))), notes=(*one.notes, note))


def differences(first: Result, second: Result) -> list[str]:
    """Return the differences between the experiments and the evaluation data of two runs."""
    dates = f"{first.finished:%Y-%m-%d %H:%M} / {second.finished:%Y-%m-%d %H:%M}"
    return [
        f"{one} ({dates})" if one.part == "code" else str(one).replace("scored data", "evaluation data")
        for one in _differing(first, second)
    ]


def _differing(first: Result, second: Result) -> list[Difference]:
    """Return the differences of the experiments, then of the evaluation data, which records of 0.1 have, too."""
    found = [one for one in first.identity.differences(second.identity) if one.part != "scored"]
    old, new = dict(evaluation_data(first)), dict(evaluation_data(second))
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return found + [Difference("scored", name, old.get(name, ""), new.get(name, "")) for name in names]
