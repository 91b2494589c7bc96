"""Finished runs grouped by experiment, their relation to the current recipe files, and their differences."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

from cse_cli.analysis.runs import (
    RecipeFacts,
    by_seed,
    changed_settings,
    last_finished,
    read_resolved,
    recipe_changes,
    recipe_today,
    shortened,
)
from cse_cli.core.identity import SHORT
from cse_cli.core.paths import cache
from cse_cli.core.plans import SeedPlan, plan_of
from cse_cli.core.results import STS_TASKS, PaperRow, Result, State, paper_average
from cse_cli.recipe.files import bare_name, real_path, recipe_name, roots
from cse_cli.runs.index import RecordedRun
from registry.errors import CseError, UnknownNameError
from registry.papers import AVERAGE
from registry.paths import is_file, write_atomically

RecipeStatus = Literal["current", "variant", "changed", "other_model", "missing"]
"""Relation of a run to the current file of its recipe: the same settings, settings that its `--set` explains, other
settings, another model, or no such file."""
STATUSES: tuple[RecipeStatus, ...] = ("current", "variant", "other_model", "changed", "missing")
"""Statuses in the order in which one represents several."""
SHIPPED = "_recipes"
"""Directory of an installation's recipes."""
StatusOf = Callable[[Result], RecipeStatus]
ChangesOf = Mapping[str, Sequence[str]]
"""Run → settings that its `--set` and `--unset` changed."""
TRAINING = "training"
"""Fingerprint of the training text. All others are evaluation data."""
POOLED = (
    "--pool settings: runs with equal settings are one row, even if text, weights or code differ, with the last "
    "finished run of each seed"
)


@dataclass(frozen=True)
class Configuration:
    """The runs of one experiment, one per seed.

    Args:
        results: Results in the order of the seeds.
        status: Relation of the experiment to the current file of its recipe.
        names: Recipes of the runs. Several files can have the same settings.
        origin: Path or name that identifies the first of these recipes.
        changes: Settings that `--set` and `--unset` changed.
        apart: Difference from other experiments with the same settings, such as "text 1f914d36".
        notes: Remarks on these differences and on pooled experiments.
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
        """Run that finished last."""
        return last_finished(self.results)

    @property
    def recipe(self) -> str:
        """Name of the first recipe."""
        return self.names[0] if self.names else self.latest.recipe

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds in ascending order."""
        return tuple(result.seed for result in self.results)

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
        changed = self.changes or (changed_settings(self.latest) if self.status == "changed" else ())
        return (*shortened(changed), *self.apart)

    def judges(self, evaluator: str) -> bool:
        """Return whether an evaluator may rank and judge: it neither selected states nor uses a dev split."""
        selecting = (self.latest.metric_for_best_model or "").rpartition(".")[0]
        return evaluator != selecting and not evaluator.endswith("dev")

    def values(self, evaluator: str, metric: str | None = None, *, of: State = "scores") -> list[float]:
        """Return the score of every seed. Empty if one seed lacks it.

        `evaluator` can be `avg` for the average of the seven English sets. The default metric is the main one.
        """
        if evaluator == AVERAGE:
            return self.averages(STS_TASKS, metric or "spearman", of=of)
        found: list[float] = []
        for result in self.results:
            metrics = getattr(result, of).get(evaluator, {})
            name = metric or next(iter(metrics), "")  # evaluators report their main metric first
            if name not in metrics:
                return []
            found.append(metrics[name])
        return found

    def averages(self, evaluators: Sequence[str], metric: str, *, of: State = "scores") -> list[float]:
        """Return the papers' average of every seed. Empty if one seed lacks a score."""
        scores = [getattr(result, of) for result in self.results]
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
    """Return one configuration for each experiment and set of evaluation data.

    A run with another model than its recipe's reproduces no reported row. `pool` merges experiments with the same
    settings.
    """
    ordered = sorted(results, key=lambda run: run.finished)
    groups = _Groups(ordered, changes or {}, status_of)
    found: dict[tuple[object, ...], list[Result]] = defaultdict(list)
    for result, paper in groups.with_papers(lambda run: run.recipe_hash if pool else run.experiment):
        key = result.recipe_hash if pool else result.experiment
        found[key, paper, evaluation_data(result)].append(result)
    groups.variants.save()
    return _distinguished([groups.configuration(runs, pool=pool) for runs in found.values()])


def evaluation_data(result: Result) -> tuple[tuple[str, str], ...]:
    """Return the data sets of a run's evaluators with their digests."""
    return tuple(sorted((name, digest) for name, digest in result.fingerprints.items() if name != TRAINING))


class _Groups:
    """Origin, status and paper of runs. Each recipe's file is read once."""

    def __init__(self, results: Sequence[Result], changes: ChangesOf, status_of: StatusOf | None) -> None:
        self._results, self._changes, self.variants = results, changes, Variants()
        status_of = status_of or (lambda result: recipe_status(result, self._changes_of(result), self.variants))
        recipes = {(run.source, run.recipe): run for run in results}
        self._origins = {key: origin_of(run) for key, run in recipes.items()}
        self._names = names_of({self._origins[key]: run.recipe for key, run in recipes.items()})
        experiments = {self._key(run): run for run in reversed(results)}
        self._statuses = {key: status_of(run) for key, run in experiments.items()}

    def _changes_of(self, result: Result) -> tuple[str, ...]:
        return tuple(self._changes.get(result.run_id or "", ()))

    def _key(self, result: Result) -> tuple[object, ...]:
        return self.origin(result), result.recipe_hash, result.model, self._changes_of(result)

    def origin(self, result: Result) -> str:
        return self._origins[result.source, result.recipe]

    def status(self, result: Result) -> RecipeStatus:
        """Return the relation of a run to its recipe's current file."""
        return self._statuses[self._key(result)]

    def with_papers(self, key_of: Callable[[Result], str]) -> Iterable[tuple[Result, PaperRow | None]]:
        """Yield runs with the reported row that they, or a later run of the same experiment, reproduce."""
        rows = [None if self.status(result) == "other_model" else result.paper for result in self._results]
        newest = {key_of(run): row for run, row in zip(self._results, rows, strict=True) if row is not None}
        for result, own in zip(self._results, rows, strict=True):
            row = own if self.status(result) == "other_model" else own or newest.get(key_of(result))
            yield (result if row == result.paper else result.model_copy(update={"paper": row})), row

    def configuration(self, runs: Sequence[Result], *, pool: bool) -> Configuration:
        """Return runs as one configuration. The runs are in the order in which they finished."""
        statuses = {self.origin(run): self.status(run) for run in runs}
        origins = sorted(statuses, key=lambda origin: STATUSES.index(statuses[origin]))
        first_runs = list({run.experiment: run for run in reversed(runs)}.values())[::-1]
        merged = [found for first, second in pairwise(first_runs) for found in differences(first, second)]
        return Configuration(
            results=tuple(by_seed(runs).values()),
            status=statuses[origins[0]],
            names=tuple(dict.fromkeys(self._names[origin] for origin in origins)),
            origin=origins[0],
            changes=next((changes for run in reversed(runs) if (changes := self._changes_of(run))), ()),
            notes=(POOLED, *([f"pooled: {'; '.join(dict.fromkeys(merged))}"] if merged else [])) if pool else (),
        )


def _distinguished(found: Sequence[Configuration]) -> list[Configuration]:
    """Return configurations with the differences between those with the same settings."""
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
    tags = []
    for difference in one.latest.identity.differences(other.latest.identity):
        if difference.part == "code":
            tags.append(f"{difference} of {one.latest.finished:%Y-%m-%d %H:%M}")
        else:
            named = f"weights of {difference.name}" if difference.part == "weights" else difference.part
            tags.append(f"{named} {difference.first[:SHORT] or 'none'}")
    tags += [f"{name} {digest[:SHORT]}" for name, digest, _ in _other_data(one.latest, other.latest)]
    return replace(one, apart=tuple(dict.fromkeys((*one.apart, *tags))), notes=(*one.notes, note))


def differences(first: Result, second: Result) -> list[str]:
    """Return the differences between the experiments and the evaluation data of two runs."""
    dates = f"{first.finished:%Y-%m-%d %H:%M} / {second.finished:%Y-%m-%d %H:%M}"
    named = first.identity.differences(second.identity)
    return [f"{one} ({dates})" if one.part == "code" else str(one) for one in named] + [
        f"evaluation data {name} {old[:SHORT]} / {new[:SHORT]}" for name, old, new in _other_data(first, second)
    ]


def study_cells(runs: Iterable[RecordedRun]) -> dict[str, str]:
    """Return run → cell of the study that it was started for."""
    return {run.run_id: run.about.study for run in runs if run.about.study}


def _other_data(first: Result, second: Result) -> list[tuple[str, str, str]]:
    """Return the evaluation data that differ with both digests."""
    old, new = dict(evaluation_data(first)), dict(evaluation_data(second))
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    first_of, second_of = ({name: of.get(name, "none").removeprefix("rows:") for name in names} for of in (old, new))
    return [(name, first_of[name], second_of[name]) for name in names]


def origin_of(result: Result) -> str:
    """Return the path of a run's recipe, or its name if the file is not on this machine.

    A recipe with a bare name on another machine is the recipe with this name on this machine.
    """
    source, name = result.source, result.recipe
    shipped = source.endswith(f"/{SHIPPED}/{name}.toml")  # another installation's
    if source and not shipped and is_file(Path(source)):
        return str(real_path(Path(source)))
    if source and not shipped and not source.endswith(f"/recipes/{name}.toml"):
        return source
    file = Path(name) if name.endswith(".toml") else _named(name)
    return name if file is None else str(real_path(file))


def _named(name: str) -> Path | None:
    """Return the file of the recipe with a bare name."""
    return next((file for root in roots() if is_file(file := root / f"{name}.toml")), None)


def names_of(recipes: Mapping[str, str]) -> dict[str, str]:
    """Return origin → name for origin → recorded name. Files with the same name get the end of their path."""
    bare = {origin: bare_name(Path(origin)) if origin.endswith(".toml") else origin for origin in recipes}
    names = {origin: bare[origin] or recipe_name(called) for origin, called in recipes.items()}
    same: dict[str, list[str]] = defaultdict(list)
    for origin, name in names.items():
        same[name].append(origin)
    for name, origins in same.items():
        if len(origins) > 1 or _named(name) is not None:
            names |= {origin: _tail(origin, origins) for origin in origins if bare[origin] is None}
    return names


def _tail(path: str, others: Sequence[str]) -> str:
    """Return the shortest end of a path, with its directory, that no other path has."""
    parts = Path(path).parts
    for count in range(2, len(parts)):
        if all(Path(other).parts[-count:] != parts[-count:] for other in others if other != path):
            return Path(*parts[-count:]).as_posix()
    return path


def recipe_status(result: Result, changes: Sequence[str] = (), variants: Variants | None = None) -> RecipeStatus:
    """Return the relation of a run to the current file of its recipe. `changes` are those of its `--set`."""
    origin = origin_of(result)
    if not is_file(Path(origin)):
        return "missing"
    try:
        today = recipe_today(origin)
    except UnknownNameError:
        return "missing"
    except CseError:
        return "changed"
    if today.settings == result.recipe_hash:
        return "current"
    if result.model not in {str(part.get("model", "")) for part in today.resolved["encoders"].values()}:
        return "other_model"
    return "variant" if changes and (variants or Variants()).is_variant(result, changes, today) else "changed"


class Variants:
    """Cache of whether `--set` explains the differences of runs from the current files of their recipes.

    Reading the resolved recipe of a run takes two milliseconds. The keys are the settings hashes of both sides. You can
    delete the file at any time.
    """

    def __init__(self) -> None:
        self._file = cache() / "variants.json"
        self._known: dict[str, bool] = {}
        with suppress(OSError, ValueError, TypeError):
            self._known = dict(json.loads(self._file.read_bytes()))
        self._read = len(self._known)

    def is_variant(self, result: Result, changes: Sequence[str], today: RecipeFacts) -> bool:
        """Return whether changes explain all differences between a run and the current file of its recipe."""
        key = " ".join((today.settings, result.recipe_hash, *changes))
        if key not in self._known:
            if (ran := read_resolved(result.run_id)) is None:
                return True
            differing = recipe_changes([today.resolved, ran])
            self._known[key] = all(_explained(change.key, changes) for change in differing)
        return self._known[key]

    def save(self) -> None:
        """Write the file if the cache has new entries."""
        if len(self._known) > self._read:
            with suppress(OSError):  # a directory that cannot be written is read without a cache
                write_atomically(self._file, json.dumps(self._known))


def _explained(key: str, changes: Sequence[str]) -> bool:
    """Return whether a change sets this key, a table around it or a key in it."""
    for change in changes:
        changed = change.removeprefix("no ").partition("=")[0].removesuffix(".name")
        changed = re.split(r"\.\d+(?:\.|$)", changed)[0]  # changes have no positions in arrays
        if f"{key}.".startswith(f"{changed}.") or f"{changed}.".startswith(f"{key}."):
            return True
    return False
