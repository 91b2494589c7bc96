"""Time, disk space and memory of runs that have not started, from earlier runs or from probes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cse_cli.core.devices import choose
from cse_cli.core.formatting import counted
from cse_cli.data.identity import Known
from cse_cli.data.requirements import Availability, availabilities, download_size
from cse_cli.planning.data_steps import Step, data_steps
from cse_cli.planning.disk_space import RECORDS, DiskSpace
from cse_cli.planning.probe import Probe
from cse_cli.planning.records import Earlier, earlier_runs
from cse_cli.recipe.schema import PROSE, Recipe
from cse_cli.runs.index import RecordedRun
from cse_cli.training.build import Job
from registry.errors import MissingError

PROBE_SECONDS = 3.0
"""Time of a probe's steps, and of its evaluations."""
ALL_PROBES = 60.0
"""Time of the probes of many different recipes together."""
SHORTEST_PROBE = 0.5
CLOSING = 3.0
"""Seconds for the figures and the saved model of a run."""
PREPARATION = 3.0
"""Seconds until the first step of a run whose text is tokenized, if only records are read."""
_ONLY_LENGTH = {"seed", "steps", "epochs", "evaluate_every", "checkpoint_every"}
"""Keys of `[train]` that change how much work a run has, and not how long a step takes."""

Measure = Callable[[Job, float, Sequence[str]], Probe]
"""Probe of a job for a number of seconds. Its columns with these names do not exist yet."""


@dataclass(frozen=True)
class RunCost:
    """Cost of one run.

    Args:
        earlier: Number of earlier runs that it is based on.
        probe: Probe that it is based on, or None.
        preparation: Seconds until the first step, without imports and tokenizing.
        tokenizing: Seconds for tokenizing. Runs with the same text do it once.
        training: Seconds of steps and checkpoints.
        evaluation: Seconds of all evaluations, figures and the saved model.
        steps: Number of steps, or None if it is unknown.
        memory: Peak memory in bytes, or None if it is unknown.
        space: Disk space of the run.
        cache: Bytes of token files.
        unmeasured: Parts whose time is not included.
    """

    preparation: float
    tokenizing: float
    training: float
    evaluation: float
    steps: int | None
    memory: int | None
    space: DiskSpace
    earlier: int = 0
    probe: Probe | None = None
    cache: int = 0
    unmeasured: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Time of the run without tokenizing."""
        return self.preparation + self.training + self.evaluation


@dataclass(frozen=True)
class Stage:
    """One stage of all runs together.

    Args:
        seconds: Sum over the runs, or None if it is unknown.
        detail: Amount of work.
        basis: Source of the time.
    """

    name: str
    seconds: float | None
    detail: str
    basis: str = ""


@dataclass(frozen=True)
class Forecast:
    """Forecast of the open runs of a command.

    Args:
        runs: Number of runs that are not finished.
        place: Placement of the runs, in words.
        stages: Stages in the order in which they happen.
        seconds: Time until the last run ends, or None if it is unknown.
        download: Size of the downloads in words, empty without downloads.
        missing: Requirements that cannot be downloaded, with the reason and the next action.
        disk: Part → bytes, as far as they are known.
        memory: Largest peak memory of a run in bytes, or None if it is unknown.
        unmeasured: Parts whose time is not included.
    """

    runs: int
    place: str
    stages: tuple[Stage, ...]
    seconds: float | None
    download: str
    missing: tuple[str, ...]
    disk: dict[str, int]
    memory: int | None
    unmeasured: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Placement of runs.

    Args:
        text: Description.
        device: Device as `cse_cli.core.devices.choose` takes it.
        slots: Number of parallel runs.
    """

    text: str
    device: str = "auto"
    slots: int = 1


def forecast(
    runs: Sequence[tuple[Job, Known]],
    place: Place,
    recorded: Sequence[RecordedRun],
    measure: Measure,
    start: float = 0.0,
) -> Forecast:
    """Return the forecast of runs, none of which is finished.

    Args:
        runs: Jobs, each with the known parts of its identity.
        place: Placement of the runs.
        recorded: Earlier runs, newest first.
        measure: Probe. It is called once for recipes that differ only in numbers that do not change the work.
        start: Seconds for the start of the process.

    Raises:
        CseError: If parts of a recipe do not fit.
    """
    groups: dict[str, list[tuple[Job, Known]]] = {}
    for job, known in runs:
        groups.setdefault(shape(job.loaded.recipe), []).append((job, known))
    recipes = [group[0][0].loaded.recipe for group in groups.values()]
    found = availabilities(recipes)
    steps = {(step.title, step.rows): step for recipe in recipes for step in data_steps(recipe)}
    unfinished = [step for step in steps.values() if step.done < step.rows or not step.rows]
    seconds = max(SHORTEST_PROBE, min(PROBE_SECONDS, ALL_PROBES / max(1, len(groups))))

    def probed(job: Job) -> Probe:
        return measure(job, seconds, [step.column for step in unfinished])

    of_groups = [list(_costs(group, recorded, probed)) for group in groups.values()]
    costs = [cost for of_group in of_groups for cost in of_group]
    known_costs = [cost for cost in costs if cost is not None]
    tokenizing = sum(max((c.tokenizing for c in of_group if c is not None), default=0.0) for of_group in of_groups)
    made = [(step, _data_seconds(step, place.device)) for step in unfinished]
    times = [start, tokenizing, *(took for _, took in made), makespan([c.seconds for c in known_costs], place.slots)]
    complete = len(known_costs) == len(costs) and all(took is not None for took in times)
    return Forecast(
        runs=len(runs),
        place=place.text,
        stages=(
            *_download_stage(found),
            *(_data_stage(step, took) for step, took in made),
            *_run_stages(runs, costs, start + tokenizing),
        ),
        seconds=sum(took for took in times if took is not None) if complete else None,
        download=download_size(found),
        missing=tuple(f"{o.requirement.title}: {o.problem} → {o.action}" for o in found if o.state == "missing"),
        disk=_disk(found, of_groups, place.slots),
        memory=max((cost.memory for cost in known_costs if cost.memory is not None), default=None),
        unmeasured=tuple(dict.fromkeys(part for cost in known_costs for part in cost.unmeasured)),
    )


def shape(recipe: Recipe) -> str:
    """Return the settings that decide how long a step and an evaluation take: all except real numbers and lengths."""
    tables = {key: value for key, value in recipe.resolved().items() if key not in PROSE}
    tables["train"] = {key: value for key, value in tables["train"].items() if key not in _ONLY_LENGTH}
    return json.dumps(_without_reals(tables), sort_keys=True)


def _without_reals(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_reals(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_reals(inner) for inner in value]
    return 0.0 if isinstance(value, float) else value


def makespan(seconds: Sequence[float], slots: int) -> float:
    """Return the time until the last run ends if each slot takes the longest run that is left."""
    ends = [0.0] * slots
    for took in sorted(seconds, reverse=True):
        ends[ends.index(min(ends))] += took
    return max(ends)


def _costs(
    group: Sequence[tuple[Job, Known]], recorded: Sequence[RecordedRun], measure: Callable[[Job], Probe]
) -> Iterator[RunCost | None]:
    """Yield the cost of each run of equal shape, or None if it is unknown before the download."""
    compute = choose(group[0][0].device, group[0][0].loaded.recipe.train.precision)
    measured: Probe | None = None
    here = all(one.state == "here" for one in availabilities([group[0][0].loaded.recipe]))
    for job, known in group:
        earlier = earlier_runs(known, compute.describe(), compute.precision, recorded)
        if earlier is not None:
            yield of_records(earlier, job.loaded.recipe.train.steps)
        elif not here:
            yield None
        else:
            measured = measured or measure(job)
            yield of_probe(measured, job.loaded.recipe)


def of_records(earlier: Earlier, steps: int | None) -> RunCost:
    """Return the cost of a run like earlier ones."""
    return RunCost(
        earlier=earlier.runs,
        preparation=PREPARATION,
        tokenizing=0.0,
        training=earlier.training,
        evaluation=earlier.evaluation,
        steps=steps,
        memory=earlier.memory,
        space=earlier.space,
    )


def of_probe(probe: Probe, recipe: Recipe) -> RunCost:
    """Return the cost of a run from the times of its parts.

    training = steps · step + checkpoints · (bytes of a checkpoint and of a best state) · time per byte.
    evaluation = untrained state + one dev score per `evaluate_every` steps + all evaluators at the end.
    """
    train, evaluate, scoring = recipe.train, recipe.evaluate, probe.scoring
    metric = evaluate.metric_for_best_model
    dev = 0.0 if metric is None else scoring.each[metric.rpartition(".")[0]]
    steps = train.steps
    if steps is None:
        steps = train.epochs * ((probe.rows or 0) // train.batch_size)
    scored = _times(steps, train.evaluate_every)
    written = _times(steps, train.checkpoint_every or train.evaluate_every)
    size = written * probe.space.checkpoint + scored * probe.space.state
    untrained = 0.0 if steps == 0 else scoring.together if evaluate.eval_on_start else dev
    return RunCost(
        probe=probe,
        preparation=probe.build,
        tokenizing=probe.tokenizing,
        training=steps * probe.step + size * probe.write,
        evaluation=untrained + scored * dev + scoring.together + CLOSING,
        steps=steps,
        memory=probe.memory,
        space=probe.space,
        cache=probe.cache,
        unmeasured=scoring.unmeasured,
    )


def _times(steps: int, every: int) -> int:
    """Return how often something happens in a training: after each `every` steps and after the last one."""
    return 0 if steps == 0 else math.ceil(steps / every) if every else 1


def _data_seconds(step: Step, device: str) -> float | None:
    """Return the seconds for the rest of a column, or None if its model is not on this machine."""
    try:
        return (step.rows - step.done) / step.measure(device, PROBE_SECONDS)
    except MissingError:
        return None


def _download_stage(found: Sequence[Availability]) -> Iterator[Stage]:
    if size := download_size(found):
        names = ", ".join(one.requirement.name for one in found if one.state == "fetchable")
        yield Stage("download", None, f"{size}: {names}", "its time depends on the network")


def _data_stage(step: Step, seconds: float | None) -> Stage:
    left = f"{step.rows - step.done:,} of {step.rows:,} rows" if step.rows else "number of rows unknown"
    return Stage("data", seconds, f"{step.title}, {left}", "" if seconds is None else f"probe of {PROBE_SECONDS:.0f} s")


def _run_stages(runs: Sequence[tuple[Job, Known]], costs: Sequence[RunCost | None], once: float) -> Iterator[Stage]:
    """Yield preparation, training and evaluation of all runs. `once` is added to the preparation."""
    known = [cost for cost in costs if cost is not None]
    complete = len(known) == len(costs)
    basis = _basis(known) if complete else ""

    def total(seconds: Iterator[float]) -> float | None:
        return sum(seconds) if complete else None

    recipes = [job.loaded.recipe for job, _ in runs]
    if runs:
        prepared = total(cost.preparation + once / len(known) for cost in known)
        yield Stage("preparation", prepared, "models, text, tokens", basis)
    if any(recipe.train.steps != 0 for recipe in recipes):
        steps = f"{sum(c.steps or 0 for c in known):,} steps" if complete else "steps"
        sizes = sorted({recipe.train.batch_size for recipe in recipes if recipe.train.steps != 0})
        several = f"{counted(len(runs), 'run')}, " if len(runs) > 1 else ""
        detail = f"{several}{steps} of {'–'.join(map(str, sizes[:: max(1, len(sizes) - 1)]))} sentences"
        yield Stage("training", total(c.training for c in known), detail, basis)
    if runs:
        names = dict.fromkeys(name for recipe in recipes for name in recipe.evaluators)
        yield Stage("evaluation", total(c.evaluation for c in known), ", ".join(names), basis)


def _basis(costs: Sequence[RunCost]) -> str:
    """Return the sources of the times in words."""
    probes = {id(cost.probe): cost.probe for cost in costs if cost.probe is not None}
    took = sum(probe.seconds for probe in probes.values())
    probed = f"{counted(len(probes), 'probe')} of {took:.0f} s" if probes else ""
    most = max((cost.earlier for cost in costs), default=0)
    return ", ".join(filter(None, (probed, f"{counted(most, 'earlier run')} on this device" if most else "")))


def _disk(found: Sequence[Availability], groups: Sequence[Sequence[RunCost | None]], slots: int) -> dict[str, int]:
    """Return part → bytes: downloads, token files, finished runs, and the checkpoints of runs in progress.

    A finished run keeps its model and its records.
    """
    known = [cost for group in groups for cost in group if cost is not None]
    working = sorted((cost.space.total - cost.space.state - RECORDS for cost in known), reverse=True)
    parts = {
        "downloads": sum({one.origin: one.bytes or 0 for one in found if one.state == "fetchable"}.values()),
        "tokens": sum(max((cost.cache for cost in group if cost is not None), default=0) for group in groups),
        "runs": sum(cost.space.state + RECORDS for cost in known),
        "checkpoints": sum(working[:slots]),
    }
    return {name: size for name, size in parts.items() if size}
