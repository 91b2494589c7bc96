"""Studies: the plan of their runs, one per experiment and seed, and their results as tables and as JSON."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
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
from cse_cli.data.identity import identify_known
from cse_cli.jobs.job import Job, Task, finished, planned
from cse_cli.jobs.request import RunRequest, parse_tags, reduced
from cse_cli.recipe.cells import Cell, cell_tag, cells, values
from cse_cli.recipe.files import bare_name
from cse_cli.recipe.schema import PROSE
from cse_cli.recipe.study import Study, load_study, only_rows
from cse_cli.recipe.trials import Choice, Trial, choices_table, choose, trials, tuned
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import log_of
from registry.errors import CseError

Key = tuple[str, int]
"""Hash of a cell's settings, and seed."""


@dataclass(frozen=True, eq=False)
class StudyRun:
    """Run of a study. `cell` is the first cell that it fills. Others may have the same recipe."""

    cell: Cell
    seed: int
    task: Task = field(repr=False)

    @property
    def key(self) -> Key:
        """Hash of the cell's settings, and seed."""
        return self.cell.hash, self.seed

    @property
    def label(self) -> str:
        """Name of the run in messages."""
        return f"{self.cell.label} · seed {self.seed}"

    def log(self) -> Path | None:
        """Return the newest log of the run, or None if it has not started."""
        newest = next(iter(self.task.same(all_runs())), None)
        return None if newest is None else log_of(newest.run_id)


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a study.

    Args:
        name: Name or path in the command.
        runs: Runs in the order of seeds, so that an unfinished study has complete tables of few seeds.
        before: Results of finished runs.
        changed: Differences of runs that are finished only with other text, weights or code.
        tuning: Trials that choose the settings of rows. None if no row is tuned.
    """

    name: str
    study: Study
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    runs: tuple[StudyRun, ...]
    before: dict[Key, Result] = field(repr=False)
    changed: dict[Key, list[Difference]] = field(default_factory=dict, repr=False)
    tuning: TuningPlan | None = field(default=None, repr=False)

    @property
    def open(self) -> list[StudyRun]:
        """Runs that are not finished."""
        return [run for run in self.runs if run.key not in self.before]

    @property
    def left(self) -> int:
        """Number of trials and runs that are not finished."""
        return len(self.open) + (0 if self.tuning is None else self.tuning.plan.left)

    @property
    def tasks(self) -> list[Task]:
        """Tasks of the trials and of the rows."""
        first = [] if self.tuning is None else self.tuning.plan.tasks
        return [*first, *(run.task for run in self.runs)]

    def results(self) -> dict[str, list[Result]]:
        """Return the results that are recorded now: hash of the settings → results in the order of seeds."""
        results: dict[str, list[Result]] = {cell.hash: [] for cell in self.cells}
        recorded = all_runs()
        for run in sorted(self.runs, key=lambda run: run.seed):
            if (found := run.task.result(recorded)) is not None:
                results[run.cell.hash].append(found)
        return results


@dataclass(frozen=True)
class StudyOutcome:
    """Outcome of a study.

    Args:
        results: Hash of the settings → results in the order of seeds.
        ran: Number of executed runs.
        trials: Outcome of the trials, if rows are tuned.
    """

    plan: StudyPlan
    results: dict[str, list[Result]] = field(repr=False)
    ran: int
    failures: dict[StudyRun, CseError]
    trials: StudyOutcome | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TuningPlan:
    """Plan of the trials of a study. The cells of `plan` are those of `trials`, in the same order."""

    plan: StudyPlan
    trials: tuple[Trial, ...]

    def choices(self) -> list[Choice]:
        """Return the settings that the trials recorded by now choose."""
        return choose(self.plan.study, self.trials, self.plan.results())


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
        raise CseError(
            f"seed {both[0]} is a seed of the trials that tune the rows of '{name}', so it is not fresh",
            "use other seeds",
            code="study.seed_not_fresh",
        )
    tried = trials(study, request.overrides, request.unset)
    first = _plan(name, study, [trial.cell for trial in tried], study.tune_seeds, request)
    tuning = TuningPlan(first, tuple(replace(one, cell=cell) for one, cell in zip(tried, first.cells, strict=True)))
    decided = tuned(study, tuning.choices(), undecided=undecided)
    plan = _plan(name, decided, cells(decided, request.overrides, request.unset), seeds, request)
    return replace(plan, tuning=tuning)


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
            raise CseError(
                f"cells '{one.label}' and '{cell.label}' differ only in directories with the same name: {differing[0]}",
                "rename one of the directories",
                code="jobs.ambiguous_cells",
            )
    known = {digest: identify_known(cell.load(seeds[0]).recipe) for digest, cell in different.items()}
    pairs = [(cell, seed) for seed in seeds for cell in different.values()]
    group, tasks = os.environ.get("MLFLOW_EXPERIMENT_NAME") or study.name, list[Task]()
    for cell, seed in pairs:
        job = Job(cell.load(seed), seed, study=cell_tag(study, cell), group=group)
        tasks.append(Task(request.labeled(job, several=True), known[cell.hash]))
    runs = tuple(StudyRun(*pair, task) for pair, task in zip(pairs, planned(tasks), strict=True))
    recorded = all_runs()
    done = finished([run.task for run in runs], recorded)
    before = {run.key: done[run.task] for run in runs if run.task in done}
    changed = {run.key: changes for run in runs if run.task not in done and (changes := run.task.changes(recorded))}
    return StudyPlan(name, study, tuple(made), tuple(seeds), runs, before, changed)


def plan_lines(plan: StudyPlan, cells: str = "cell") -> list[str]:
    """Return the title of a study and its numbers of runs, in Rich's markup. `cells` is what a cell is."""
    title = f"[bold]{escape(plan.study.name)}[/bold] · {escape(plan.study.title)}"
    return [title, f"  {_count_runs(plan, cells)}", *(f"  {escape(line)}" for line in _changed_lines(plan))]


def _count_runs(plan: StudyPlan, cells: str = "cell") -> str:
    """Return the numbers of cells, seeds and runs, and of finished runs."""
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
        choices = {} if plan.tuning is None else {choice.row: choice for choice in plan.tuning.choices()}
        rows = []
        for cell in plan.cells:
            settings = [*(f"--set {text}" for text in cell.overrides), *(f"--unset {key}" for key in cell.unset)]
            done = [str(seed) for seed in plan.seeds if (cell.hash, seed) in plan.before]
            left = [str(seed) for seed in plan.seeds if (cell.hash, seed) not in plan.before]
            columns = ", ".join(cell.columns) or "all"
            tried = choices.get(cell.row)
            trials = () if plan.tuning is None else (f"{tried.finished} of {tried.trials}" if tried else "none",)
            rows.append((cell.row, columns, cell.recipe, " ".join(settings), *trials, ", ".join(done), ", ".join(left)))
        counts = [] if plan.tuning is None else [_count_runs(plan.tuning.plan, "trial")]
        with stdout_console() as out:
            out.print(Text.assemble((plan.study.name, "bold"), f" · {plan.study.title}"), soft_wrap=True)
            for line in (*counts, _count_runs(plan), *_changed_lines(plan), place):
                out.print(Text(line), soft_wrap=True)
            tuned = () if plan.tuning is None else ("trials",)
            names = ("row", "columns", "recipe", "settings", *tuned, "finished", "to run")
            out.print(as_rich(plain_table(names, rows), ruled=True))


def print_outcomes(outcomes: Sequence[StudyOutcome], *, quiet: bool = False) -> None:
    """Print tables on stdout and failures on stderr, and the next command unless `quiet`."""
    for outcome in outcomes:
        plan = outcome.plan
        filled = [(cell, outcome.results[cell.hash]) for cell in plan.cells]
        table = own_table(StudyRuns(plan.study, [(cell, Experiment(tuple(of)) if of else None) for cell, of in filled]))
        print_tables([table.model_copy(update={"missing": (), "command": None})])  # failures are below
        if plan.tuning is not None:
            with stdout_console() as out:
                out.print(Text(f"\nSettings with the best dev score of {seed_list(plan.study.tune_seeds)}:\n"))
                out.print(as_rich(choices_table(plan.tuning.choices()), ruled=True))
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
    for run, error in outcome.failures.items():
        err.print(f"[red]failed:[/red] {escape(run.label)}: {escape(str(error))}")
        if (log := run.log()) is not None:
            err.print(f"  log: {escape(str(log))}")


def write_study_plans(plans: Sequence[StudyPlan], places: Sequence[str]) -> None:
    """Write one JSON document with every cell and where its runs run."""
    every = zip(plans, places, strict=True)
    write_json({"studies": [{**_plan_tables(plan, plan.before), "place": place} for plan, place in every]})


def write_outcomes(outcomes: Sequence[StudyOutcome]) -> None:
    """Write one JSON document with every cell, its scores and all results."""
    write_json({"studies": [_outcome_tables(one) for one in outcomes]})


def _outcome_tables(outcome: StudyOutcome) -> dict[str, Any]:
    results = [result for same in outcome.results.values() for result in same]
    tables = _plan_tables(outcome.plan, {(result.recipe_hash, result.seed) for result in results})
    found = values(outcome.plan.study, outcome.plan.cells, outcome.results)
    for cell, about in zip(outcome.plan.cells, tables["cells"], strict=True):
        shown = {k: v for k, v in found[cell.row].items() if not cell.columns or k in cell.columns}
        about["scores"] = {
            heading: {"mean": fmean(seeds), "std": stdev(seeds) if len(seeds) > 1 else None, "n": len(seeds)}
            for heading, seeds in shown.items()
            if seeds
        }
    if outcome.trials is not None:
        tables["trials"] |= _ends(outcome.trials)
    return {**tables, **_ends(outcome)}


def _ends(outcome: StudyOutcome) -> dict[str, Any]:
    results = [result for same in outcome.results.values() for result in same]
    return {
        "ran": outcome.ran,
        "failures": [_failure_table(*failure) for failure in outcome.failures.items()],
        "results": [result.model_dump(mode="json") for result in results],
    }


def _plan_tables(plan: StudyPlan, done: Container[Key]) -> dict[str, Any]:
    cells = [
        {
            "row": cell.row,
            "columns": list(cell.columns),
            "recipe": cell.recipe,
            "set": list(map(str, cell.overrides)),
            "unset": list(cell.unset),
            "hash": cell.hash,
            "finished": [seed for seed in plan.seeds if (cell.hash, seed) in done],
        }
        for cell in plan.cells
    ]
    trials = None
    if (tuning := plan.tuning) is not None:
        trials = {
            "seeds": list(tuning.plan.seeds),
            "runs": len(tuning.plan.runs),
            "finished_before": len(tuning.plan.before),
            "choices": [{**asdict(one), "settings": list(map(str, one.settings))} for one in tuning.choices()],
        }
    return {
        "study": plan.study.name,
        "title": plan.study.title,
        "paper": plan.study.paper,
        "seeds": list(plan.seeds),
        "runs": len(plan.runs),
        "finished_before": len(plan.before),
        "changed": [
            {"hash": hash_, "seed": seed, "differences": list(map(str, differences))}
            for (hash_, seed), differences in plan.changed.items()
        ],
        "cells": cells,
        "trials": trials,
    }


def _failure_table(run: StudyRun, error: CseError) -> dict[str, Any]:
    log = run.log()
    return {
        "row": run.cell.row,
        "columns": list(run.cell.columns),
        "hash": run.cell.hash,
        "seed": run.seed,
        "message": str(error),
        "exit_code": error.exit_code,
        "log": None if log is None else str(log),
    }
