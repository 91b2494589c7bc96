"""Studies: the plan of their runs, one per experiment and seed, and their results as tables and as JSON."""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter
from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

from rich.markup import escape
from rich.text import Text

from cse_cli.analysis.experiments import Experiment
from cse_cli.analysis.table_view import print_tables
from cse_cli.analysis.tables import StudyRuns, own_table
from cse_cli.core.console import Console, stdout_console, write_json
from cse_cli.core.formatting import counted, differences, seed_list
from cse_cli.core.identity import Difference
from cse_cli.core.results import Result
from cse_cli.core.tables import as_rich, plain_table
from cse_cli.jobs.job import Job, distinct, finished
from cse_cli.jobs.request import RunRequest, parse_tags, reduced
from cse_cli.recipe.cells import Cell, cell_tag, cells, values
from cse_cli.recipe.files import bare_name
from cse_cli.recipe.schema import PROSE
from cse_cli.recipe.study import Study, load_study, only_rows
from cse_cli.recipe.trials import Choice, Trial, choices_table, choose, trials, tuned
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import log_of
from registry.errors import CseError


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a study.

    Args:
        name: Name or path in the command.
        runs: Job → first cell that it fills, in the order of seeds, so that an unfinished study has complete tables of
            few seeds.
        before: Jobs that are finished.
        changed: Differences of jobs that are finished only with other text, weights or code.
        trials: Plan of the trials that choose the settings of rows. None if no row is tuned.
        tried: Trials of its cells, in the same order.
    """

    name: str
    study: Study
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    runs: dict[Job, Cell] = field(repr=False)
    before: Set[Job] = field(repr=False)
    changed: dict[Job, list[Difference]] = field(default_factory=dict, repr=False)
    trials: StudyPlan | None = field(default=None, repr=False)
    tried: tuple[Trial, ...] = ()

    @property
    def open(self) -> list[Job]:
        """Jobs that are not finished."""
        return [job for job in self.runs if job not in self.before]

    @property
    def jobs(self) -> list[Job]:
        """Jobs of the trials and of the rows."""
        return [*([] if self.trials is None else self.trials.runs), *self.runs]

    @property
    def left(self) -> int:
        """Number of trials and runs that are not finished."""
        return len(self.open) + (0 if self.trials is None else self.trials.left)

    def seeds_before(self) -> dict[str, set[int]]:
        """Return hash of the settings → finished seeds."""
        found: dict[str, set[int]] = {cell.hash: set() for cell in self.cells}
        for job in self.before:
            found[self.runs[job].hash].add(job.seed)
        return found

    def results(self) -> dict[str, list[Result]]:
        """Return the results that are recorded now: hash of the settings → results in the order of seeds."""
        results: dict[str, list[Result]] = {cell.hash: [] for cell in self.cells}
        recorded = all_runs()
        for job in sorted(self.runs, key=lambda job: job.seed):
            if (found := job.result(recorded)) is not None:
                results[self.runs[job].hash].append(found)
        return results

    def choices(self) -> list[Choice]:
        """Return the settings of rows that the trials recorded by now choose."""
        return [] if self.trials is None else choose(self.trials.study, self.tried, self.trials.results())


@dataclass(frozen=True)
class StudyOutcome:
    """Outcome of a study. `results`: hash of the settings → results in the order of seeds. `ran`: executed runs."""

    plan: StudyPlan
    results: dict[str, list[Result]] = field(repr=False)
    ran: int
    failures: dict[Job, CseError]
    trials: StudyOutcome | None = field(default=None, repr=False)


def plan_study(name: str, request: RunRequest, *, undecided: bool = True) -> StudyPlan:
    """Read a study and its recipes, and find the finished runs.

    Overrides of the command apply to every cell, and its seeds replace those of the study. A tuned row has the
    settings of its best finished trial. Without one, it has those of its recipe, or is left out unless `undecided`.
    """
    study = only_rows(load_study(name), request.rows)
    seeds = tuple(request.seed_list()) or study.seed_list
    parse_tags(request.tags)
    if not study.is_tuned:
        return _plan(name, study, cells(study, request.overrides, request.unset), seeds, request)
    if both := sorted({*seeds} & {*study.tune_seeds}):
        message = f"seed {both[0]} is a seed of the trials that tune the rows of '{name}', so it is not fresh"
        raise CseError(message, "use other seeds", code="study.seed_not_fresh")
    tried = trials(study, request.overrides, request.unset)
    first = _plan(name, study, [trial.cell for trial in tried], study.tune_seeds, request)
    tried = [replace(one, cell=cell) for one, cell in zip(tried, first.cells, strict=True)]
    decided = tuned(study, choose(study, tried, first.results()), undecided=undecided)
    plan = _plan(name, decided, cells(decided, request.overrides, request.unset), seeds, request)
    return replace(plan, trials=first, tried=tuple(tried))


def _plan(name: str, study: Study, made: Sequence[Cell], seeds: Sequence[int], request: RunRequest) -> StudyPlan:
    """Return the plan of cells and seeds, with the finished runs."""
    if request.fast_dev_run:
        made = [reduced(cell, request.overrides) for cell in made]
    different: dict[str, Cell] = {}
    for cell in made:
        if (one := different.setdefault(cell.hash, cell)) is cell:
            continue
        ignored = dict.fromkeys([*PROSE, "train", "data"])
        first, second = ({**each.load(0).recipe.resolved(), **ignored} for each in (one, cell))
        if differing := list(differences(first, second)):  # models in directories with the same name have one hash
            message = f"cells '{one.label}' and '{cell.label}' differ only in directories with the same name"
            raise CseError(f"{message}: {differing[0]}", "rename one of the directories", code="jobs.ambiguous_cells")
    group = os.environ.get("MLFLOW_EXPERIMENT_NAME") or study.name
    runs: dict[Job, Cell] = {}
    for seed, cell in itertools.product(seeds, different.values()):
        label = f"{cell.label} · seed {seed}"
        job = Job(cell.load(seed), seed, study=cell_tag(study, cell), group=group, shown_as=label)
        runs[request.labeled(job, several=True)] = cell
    distinct(runs)
    recorded = all_runs()
    before = finished(runs, recorded)
    changed = {job: changes for job in runs if job not in before and (changes := job.changes(recorded))}
    return StudyPlan(name, study, tuple(made), tuple(seeds), runs, before.keys(), changed)


def plan_lines(plan: StudyPlan, cells: str = "cell") -> list[str]:
    """Return the title of a study and its numbers of runs, in Rich's markup. `cells` is what a cell is."""
    title = f"[bold]{escape(plan.study.name)}[/bold] · {escape(plan.study.title)}"
    return [title, f"  {_count_runs(plan, cells)}", *(f"  {escape(line)}" for line in _changed_lines(plan))]


def _count_runs(plan: StudyPlan, cells: str = "cell") -> str:
    different = len({cell.hash for cell in plan.cells})
    same = "" if different == len(plan.cells) else f" ({different} different)"
    return (
        f"{counted(len(plan.cells), cells)}{same} × {counted(len(plan.seeds), 'seed')} = "
        f"{counted(len(plan.runs), 'run')}: {len(plan.before)} finished, {len(plan.open)} to run"
    )


def _changed_lines(plan: StudyPlan) -> list[str]:
    """Return a line for each change of text, weights or code since runs of the study finished."""
    ways = Counter(", ".join(map(str, differences)) for differences in plan.changed.values())
    return [
        f"{number} of {counted(len(plan.runs), 'run')} finished before a change ({way}) and will be repeated"
        for way, number in ways.items()
    ]


def print_study_plans(plans: Sequence[StudyPlan], places: Sequence[str]) -> None:
    """Print every cell with its settings, its trials, its finished seeds and those to run."""
    for plan, place in zip(plans, places, strict=True):
        choices, done = {choice.row: choice for choice in plan.choices()}, plan.seeds_before()
        rows = []
        for cell in plan.cells:
            settings = [*(f"--set {text}" for text in cell.overrides), *(f"--unset {key}" for key in cell.unset)]
            trials = []
            if plan.trials is not None:
                tried = choices.get(cell.row)
                trials = [f"{tried.finished} of {tried.trials}" if tried else "none"]
            seeds = [
                ", ".join(str(seed) for seed in plan.seeds if (seed in done[cell.hash]) == is_done)
                for is_done in (True, False)
            ]
            rows.append([cell.row, ", ".join(cell.columns) or "all", cell.recipe, " ".join(settings), *trials, *seeds])
        counts = [] if plan.trials is None else [_count_runs(plan.trials, "trial")]
        with stdout_console() as out:
            out.print(Text.assemble((plan.study.name, "bold"), f" · {plan.study.title}"), soft_wrap=True)
            for line in (*counts, _count_runs(plan), *_changed_lines(plan), place):
                out.print(Text(line), soft_wrap=True)
            tuned = () if plan.trials is None else ("trials",)
            names = ("row", "columns", "recipe", "settings", *tuned, "finished", "to run")
            out.print(as_rich(plain_table(names, rows), ruled=True))


def print_outcomes(outcomes: Sequence[StudyOutcome], *, quiet: bool = False) -> None:
    """Print tables on stdout and failures on stderr, and the next command unless `quiet`."""
    for outcome in outcomes:
        plan = outcome.plan
        filled = [(cell, outcome.results[cell.hash]) for cell in plan.cells]
        table = own_table(StudyRuns(plan.study, [(cell, Experiment(tuple(of)) if of else None) for cell, of in filled]))
        print_tables([table.model_copy(update={"missing": (), "command": None})])  # failures are below
        if plan.trials is not None:
            with stdout_console() as out:
                out.print(Text(f"\nSettings with the best dev score of {seed_list(plan.study.tune_seeds)}:\n"))
                out.print(as_rich(choices_table(plan.choices()), ruled=True))
        sys.stdout.flush()
        err = Console(stderr=True, highlight=False, soft_wrap=True)
        if outcome.trials is not None:
            _print_failures(err, outcome.trials, "trial")
        _print_failures(err, outcome, "run")
        if plan.study.paper is not None and not quiet:
            has_name = bare_name(plan.study.path) is not None  # only such studies are in the leaderboard
            command = f"leaderboard --table {plan.study.paper}" if has_name else f"report {plan.name}"
            err.print(f"→ compare with the paper: cse {escape(command)}")


def _print_failures(err: Console, outcome: StudyOutcome, what: str) -> None:
    plan, done = outcome.plan, sum(map(len, outcome.results.values()))
    if missing := len(plan.runs) - done:
        failed = len(outcome.failures)
        err.print(
            f"{counted(len(plan.runs), what)}: {done} finished, {failed} failed, {missing - failed} missing; "
            "to retry, run the same command again"
        )
    for job, error in outcome.failures.items():
        err.print(f"[red]failed:[/red] {escape(job.label)}: {escape(str(error))}")
        if (log := _log(job)) is not None:
            err.print(f"  log: {escape(log)}")


def _log(job: Job) -> str | None:
    return next((str(log_of(run.run_id)) for run in job.same(all_runs())), None)


def write_study_plans(plans: Sequence[StudyPlan], places: Sequence[str]) -> None:
    """Write one JSON document with every cell and where its runs run."""
    every = zip(plans, places, strict=True)
    write_json({"studies": [{**_plan_document(plan, plan.seeds_before()), "place": place} for plan, place in every]})


def write_outcomes(outcomes: Sequence[StudyOutcome]) -> None:
    """Write one JSON document with every cell, its scores and all results."""
    write_json({"studies": [_outcome_document(one) for one in outcomes]})


def _outcome_document(outcome: StudyOutcome) -> dict[str, Any]:
    plan = outcome.plan
    done = {digest: {result.seed for result in same} for digest, same in outcome.results.items()}
    document, found = _plan_document(plan, done), values(plan.study, plan.cells, outcome.results)
    for cell, about in zip(plan.cells, document["cells"], strict=True):
        about["scores"] = {
            heading: {"mean": fmean(seeds), "std": stdev(seeds) if len(seeds) > 1 else None, "n": len(seeds)}
            for heading, seeds in found[cell.row].items()
            if seeds and (not cell.columns or heading in cell.columns)
        }
    if outcome.trials is not None:
        document["trials"] |= _ends(outcome.trials)
    return {**document, **_ends(outcome)}


def _ends(outcome: StudyOutcome) -> dict[str, Any]:
    results = [result for same in outcome.results.values() for result in same]
    failures = [
        {
            "row": (cell := outcome.plan.runs[job]).row,
            "columns": list(cell.columns),
            "hash": cell.hash,
            "seed": job.seed,
            "message": str(error),
            "exit_code": error.exit_code,
            "log": _log(job),
        }
        for job, error in outcome.failures.items()
    ]
    return {"ran": outcome.ran, "failures": failures, "results": [result.model_dump(mode="json") for result in results]}


def _plan_document(plan: StudyPlan, done: Mapping[str, Container[int]]) -> dict[str, Any]:
    """Return a plan as JSON values. `done`: hash of the settings → finished seeds."""
    cells = [
        {
            "row": cell.row,
            "columns": list(cell.columns),
            "recipe": cell.recipe,
            "set": list(map(str, cell.overrides)),
            "unset": list(cell.unset),
            "hash": cell.hash,
            "finished": [seed for seed in plan.seeds if seed in done[cell.hash]],
        }
        for cell in plan.cells
    ]
    trials = None
    if plan.trials is not None:
        choices = [{**asdict(one), "settings": list(map(str, one.settings))} for one in plan.choices()]
        trials = {**_size(plan.trials), "choices": choices}
    changed = [
        {"hash": plan.runs[job].hash, "seed": job.seed, "differences": list(map(str, differences))}
        for job, differences in plan.changed.items()
    ]
    study = plan.study
    about = {"study": study.name, "title": study.title, "paper": study.paper, **_size(plan)}
    return {**about, "changed": changed, "cells": cells, "trials": trials}


def _size(plan: StudyPlan) -> dict[str, Any]:
    return {"seeds": list(plan.seeds), "runs": len(plan.runs), "finished_before": len(plan.before)}
