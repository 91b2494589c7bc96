"""The methods that `cse compare` and `cse report` get by name: recipes, seeds of one, runs, and rows of a study."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, product
from string import ascii_uppercase

from cse_cli.analysis.elsewhere import is_elsewhere, read_elsewhere, with_mean
from cse_cli.analysis.experiments import Experiment, FinishedRuns, by_seed, group, last_finished
from cse_cli.analysis.leaderboard import chosen_by_dev
from cse_cli.analysis.origins import is_of_recipe, recipe_today
from cse_cli.analysis.tables import StudyRuns, study_runs
from cse_cli.core.formatting import counted
from cse_cli.core.identity import SHORT
from cse_cli.core.results import Result
from cse_cli.recipe.cells import paper_table
from cse_cli.recipe.files import all_recipes, all_studies, bare_file, recipe_name
from cse_cli.recipe.study import find_study, load_study
from cse_cli.runs.index import RecordedRun, all_runs, find_run
from cse_cli.runs.record import read_about
from registry.errors import CseError, UnknownNameError, suggestion

BEST_OF = (
    "it has the best dev score of {} configurations of its recipe on these seeds. If you chose it by this score, the "
    "test finds too much, so run new seeds together first"
)
NONE_FINISHED = "no run with the current settings has finished"


def find_methods(
    names: Sequence[str], finished: FinishedRuns, *, pairwise: bool = False
) -> tuple[list[Experiment], list[str]]:
    """Return the methods with these names, and remarks on methods that are left out.

    Args:
        names: Prefixes of run IDs, names or paths of recipes, `recipe@seed`, studies, which stand for their rows, or
            results made elsewhere.
        finished: Finished runs.
        pairwise: Whether no method is the one that all others are compared with.
    """
    found: list[tuple[Experiment, str]] = []
    notes: list[str] = []
    for name in names:
        if is_elsewhere(name) and find_study(name) is None and not names_recipe(name, finished.results):
            found += [(method, f"{method.name} ({name})") for method in read_elsewhere(name)]
        elif find_study(name) is None:
            found.append((find_method(name, finished.results), name))
        else:
            runs = study_runs(load_study(name), finished)
            rows, remarks = rows_with_runs(runs, name, needs_first=not found and not pairwise)
            found += [(row, f"{name} · {row.name}") for row in rows]
            notes += remarks
    methods, remarks = with_mean(lettered(found))
    return methods, [*notes, *remarks]


def lettered(found: Sequence[tuple[Experiment, str]]) -> list[Experiment]:
    """Return at least two methods with different letters and names. An error if two share a run."""
    if len(found) < 2:
        message, action = f"not {len(found)}", "name at least two: `cse compare mini/simcse_en mini/ifcl_en`"
        if found and (only := found[0][0]).study:
            message, action = f"and only row '{only.name}' of the study has them", f"run `{only.command('')}`"
        message = f"cse compare requires at least two methods with finished runs, {message}"
        raise CseError(message, action, code="compare.wrong_count")
    times = Counter(method.name for method, _ in found)
    named = [method if times[method.name] == 1 else replace(method, name=longer) for method, longer in found]
    letters = (
        "".join(letter) for length in count(1) for letter in product(ascii_uppercase, repeat=length)
    )  # A … Z, AA …
    methods = [replace(method, letter=letter) for letter, method in zip(letters, named, strict=False)]
    owner: dict[str | None, Experiment] = {}
    for method in methods:
        for run in method.results:
            if run.run_id and owner.setdefault(run.run_id, method) is not method:
                raise CseError(
                    f"{owner[run.run_id].name} and {method.name} share run {run.run_id[:8]}",
                    "compare different runs: `cse runs ls` lists them",
                    code="compare.same_run",
                )
    return methods


def find_method(name: str, results: Sequence[Result]) -> Experiment:
    """Return the runs of a recipe, of one seed of it (`recipe@seed`), or one run by its ID or name."""
    recipe, at, seed = name.rpartition("@")
    if at and seed.isdecimal():
        every = _method_of_recipe(recipe, results)
        if int(seed) not in every.runs:
            seeds = ", ".join(map(str, every.seeds))
            message = f"{every.name} has no finished run with seed {seed}, only with {seeds}"
            raise _no_run(message, f"run `cse run {recipe} --seed {seed}`")
        return replace(every, name=f"{every.name}@{int(seed)}", results=(every.runs[int(seed)],))
    if names_recipe(name, results):
        return _method_of_recipe(name, results)
    known = all_runs()
    if not names_run(name, known):
        named = {*all_recipes(), *all_studies(), *(recipe_name(result.recipe) for result in results)}
        near = suggestion(name, [*sorted(named), *(name for run in known for name in (run.name, run.about.short))])
        raise UnknownNameError(
            f"'{name}' is not a recipe, a run or a study.{near}",
            "run `cse list recipes`, `cse list studies` or `cse runs ls`; the path of a recipe ends in .toml",
            code="compare.unknown_method",
        )
    run = find_run(name, known)
    found = next((result for result in results if result.run_id == run.run_id), None)
    if found is None:
        message = f"run {run.about.short} has no scores: {run.state}"
        raise _no_run(message, "compare a finished run: `cse runs ls` lists them")
    return Experiment((found,), name=f"{run.about.short} ({recipe_name(found.recipe)})")


def _no_run(message: str, action: str) -> CseError:
    return CseError(message, action, code="compare.no_finished_run")


def names_recipe(name: str, results: Iterable[Result]) -> bool:
    """Return whether `name` is the path or name of a recipe, or `recipe@seed`."""
    _, at, seed = name.rpartition("@")
    if (at and seed.isdecimal()) or name.endswith(".toml") or bare_file(name, study=False):
        return True
    return any(is_of_recipe(run, name) for run in results)


def names_run(text: str, known: Iterable[RecordedRun]) -> bool:
    """Return whether a text is the prefix of a run's ID or the name of a run."""
    return any(run.run_id.startswith(text.lower()) or run.name == text for run in known)


def _method_of_recipe(argument: str, results: Sequence[Result]) -> Experiment:
    """Return the newest experiment with the recipe's current settings, or with those of its last run."""
    notes: list[str] = []
    named = [result for result in results if is_of_recipe(result, argument)]
    today, why = None, NONE_FINISHED
    try:
        today = recipe_today(argument).settings
    except CseError as error:
        if not named:
            raise
        why = "the recipe does not exist" if isinstance(error, UnknownNameError) else f"it cannot be read: {error}"
    runs = [result for result in results if result.recipe_hash == today]
    if not runs and not named:
        raise _no_run(f"recipe '{argument}' has no finished run", f"run `cse run {argument} --seeds 5`")
    if not runs:
        # A try with other settings is not the recipe.
        last = last_finished([run for run in named if run.run_id and not read_about(run.run_id).changes] or named)
        notes.append(f"{why}: {_runs_of(last)}")
        runs = [run for run in named if run.recipe_hash == last.recipe_hash]
    last = last_finished(runs)
    for other in {run.experiment: run for run in runs if run.experiment != last.experiment}.values():
        differing = "; ".join(map(str, other.identity.differences(last.identity)))
        notes.append(f"runs of another experiment with the same settings are omitted: {differing}")
    own = by_seed(run for run in runs if run.experiment == last.experiment)
    for best in chosen_by_dev(group(FinishedRuns(named, status="current")), every=False):
        if best.latest.experiment == last.experiment and not best.fresh:
            notes.append(BEST_OF.format(best.best_of))
    return Experiment(tuple(own.values()), notes=tuple(notes), name=recipe_name(argument))


def _runs_of(last: Result) -> str:
    return f"using the runs of {last.finished:%Y-%m-%d}, hash {last.recipe_hash[:SHORT]}"


def rows_with_runs(runs: StudyRuns, argument: str, *, needs_first: bool = True) -> tuple[list[Experiment], list[str]]:
    """Return each row of a study that has finished runs, without letters, and remarks on the other rows.

    `argument` is the name of the study in commands. `needs_first` is whether the first row must have runs.
    """
    if len(runs.study.columns) > 1:
        show = f"cse report {argument}"
        if paper_table(runs.study) is not None:
            show = f"cse leaderboard --table {runs.study.paper}` or `{show}"
        raise CseError(
            f"study '{argument}' has separate runs for its columns, so a row is not one method",
            f"show its table with `{show}`, or name the runs to compare: `cse runs ls` lists them",
            code="compare.study_with_columns",
        )
    missing = runs.rows_without_runs()
    if len(missing) == len(runs.rows):
        raise _no_run(f"no run of study '{argument}' has finished", f"run `cse run {argument}`")
    if needs_first and (name := runs.rows[0]) in missing:
        message = f"all rows of '{argument}' are compared with its first one, '{name}', which has no finished run"
        raise _no_run(message, f"run `cse run {argument} --row {shlex.quote(name)}`, or name another method first")
    choices = {choice.row: choice for choice in runs.choices}
    methods: list[Experiment] = []
    notes: list[str] = []
    rows: dict[str, str] = {}
    for cell, found in runs.cells:
        if found is None:
            continue
        first = rows.setdefault(found.latest.experiment, cell.row)
        if first != cell.row:
            notes.append(f"{cell.row} has the same runs as {first} and is not compared")
            continue
        remarks, choice = [], choices.get(cell.row)
        if found.status == "changed":
            remarks.append(f"{NONE_FINISHED}: {_runs_of(found.latest)}")
        remarks += [f"the newest of several experiments: {note}" for note in found.notes]
        if choice is not None and choice.finished < choice.trials:
            tried = f"only {choice.finished} of {choice.trials} trials have finished"
            remarks.append(f"{tried}, so its settings may change")
        methods.append(replace(found, notes=tuple(remarks), name=cell.row, study=argument))
    for some, what in (
        (missing, f"without finished runs, `cse run {argument}`"),
        (runs.outdated, "whose recipe has changed since its trials, which do not count"),
    ):
        notes += [f"{counted(len(some), 'row')} {what}: {', '.join(some)}"] if some else []
    return methods, notes
