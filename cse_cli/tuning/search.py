"""Forms of `cse tune`: search, show and list searches, verify the best values and save them as a recipe."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import date
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any
from uuid import uuid4

import tomlkit

from cse_cli.analysis.paired_tests import shared_metrics
from cse_cli.core.console import write_json
from cse_cli.core.devices import choose
from cse_cli.core.identity import Mode
from cse_cli.core.paths import require_home
from cse_cli.core.plans import plan_of
from cse_cli.core.stats import compare_paired
from cse_cli.data.requirements import fetch
from cse_cli.jobs.engine import Engine
from cse_cli.jobs.job import Job, distinct, finished
from cse_cli.jobs.launch import run_each
from cse_cli.jobs.request import RunRequest, place_runs
from cse_cli.mirrors.mirror import Follower
from cse_cli.recipe.files import find_parent, real_path, shipped
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.overrides import Override, apply_overrides, parse_overrides
from cse_cli.recipe.requirements import requirements
from cse_cli.runs.claim import BusyError, open_run
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import ABOUT, RunRecord, folder_of, read_about
from cse_cli.runs.scores import metric_value
from cse_cli.runs.signals import Terminated, ending
from cse_cli.tuning.driver import Driver, take_record
from cse_cli.tuning.parameters import settings_of
from cse_cli.tuning.results import VERIFICATION, Search, Trial, Verification, read_search, read_searches
from cse_cli.tuning.space import search_space
from cse_cli.tuning.study import (
    RECORD,
    TRIALS,
    SearchConfig,
    Study,
    check_settings,
    dev_metric,
    directory,
    driving,
    find_study,
    identity,
    journal,
    load_study,
    open_study,
    settled,
    stored_config,
)
from cse_cli.tuning.view import Ending, TuneScreen, print_search, print_searches, print_verification, write_search
from registry.errors import CseError, StopRequested
from registry.machinery import plugins

SHIPPED = "quickstart"
"""Recipe that needs neither a network nor your own files."""
FIGURES = "figures"
"""Directory of the figures in the record of a search."""
_MADE_BY = "# Found by `cse tune`: search "
_WIDTH = 110
_LONGEST = 60
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,150}"


def search(
    given: SearchConfig, params: Sequence[str], ranges: Sequence[str], choices: Sequence[str], metric: str | None
) -> None:
    """Run a search and print its results."""
    require_home()
    with TuneScreen(quiet=given.request.quiet) as screen:
        config, loaded = _resolve(given, params, ranges, choices, metric, screen)
        if config.save_best is not None:
            check_file(config.save_best, config.name)
        screen.planned(config, loaded)
        ran, why = run_search(config, screen)
        study = load_study(config.name)
        screen.ended(config, len(settled(study.trials)), ran, why)
    read_search(study).require_best()
    _show(study, config)


def show_search(name: str, config: SearchConfig) -> None:
    """Print the results of a search without running trials."""
    _show(find_study(name), config)


def list_searches(*, as_json: bool) -> None:
    """Print every search."""
    searches = read_searches()
    if as_json:
        write_json({"searches": [one.model_dump(mode="json") for one in searches]})
    else:
        print_searches(searches)
    if not searches:
        sys.stderr.write("no searches yet\n  → start one: cse tune --param queue_length\n")


def _show(study: Study, config: SearchConfig) -> None:
    if config.save_best is not None:
        check_file(config.save_best, study.study_name)
    if config.verify_seeds is not None:
        _verify(study, config, config.verify_seeds)
    found, file = read_search(study), config.save_best
    if file is not None:
        best = found.require_best()
        save_recipe(file, tuned_recipe(found, best), found, best)
    if config.request.as_json:
        write_search(found)
    elif config.verify_seeds is not None and found.verification is not None:
        print_verification(found, found.verification)
    else:
        # Drawn again, because the search may have continued.
        files = _draw(found, directory(found.name), lambda text: sys.stderr.write(f"warning: {text}\n"))
        print_search(found, files[0].parent if files else None, file)
    if file is not None:
        sys.stderr.write(f"saved {file}\n")


def _draw(search: Search, folder: Path, warned: Callable[[str], object]) -> list[Path]:
    """Draw the figures of a search and return their files. Empty if they cannot be drawn."""
    try:
        from cse_cli.tuning.plots import draw  # matplotlib

        return draw(search, folder)
    except Exception as error:  # a figure that fails must not fail the search
        warned(f"figures cannot be drawn: {type(error).__name__}: {error}")
        return []


def _verify(study: Study, config: SearchConfig, seeds: int) -> None:
    """Verify the best values, and keep the result in the study and, if it is in this state directory, in the record."""
    found = read_search(study)
    with TuneScreen(quiet=config.request.quiet) as screen:
        try:
            verification = verify(found, seeds, config.request, screen).after(found.best_verification)
        except (KeyboardInterrupt, Terminated):
            screen.advise([f"stopped. To continue: cse tune --best {found.name} --verify-seeds {seeds}"])
            raise
        if verification == found.verification:
            return
        study.set_user_attr(VERIFICATION, verification.model_dump_json())
        run_id, over = found.run_id, verification.paired[verification.main]
        if run_id is None or not (folder_of(run_id) / ABOUT).exists():
            return
        try:
            record = open_run(run_id)
        except BusyError:
            screen.warned(f"record {run_id[:8]} of the search is in use: the verification is only in the study")
            return
        metrics = {"verification/gain": over.difference, "verification/seeds": float(len(over.seeds))}
        if over.p_adjusted is not None:
            metrics["verification/p"] = over.p_adjusted
        with closing(Follower(run_id)), closing(record):
            record.metrics(metrics, len(over.seeds))


def run_search(config: SearchConfig, screen: TuneScreen) -> tuple[int, Ending]:
    """Run the trials of a new or existing search. Return how many this process ran, and why it ended."""
    request = config.request
    if request.cluster is None:
        choose(request.device)
    base = config.load_base()
    fetch(requirements(base.recipe), screen.downloading)
    with driving(config.name):
        study = open_study(config)
        record, done = take_search_record(study, config, base), len(settled(study.trials))
        budget = stored_config(study).trials or TRIALS
        placement = place_runs(max(0, budget - done), request)
        try:
            with closing(Follower(record.run_id)), ending(record):
                record.started(device=request.device)
                space = {f"space.{parameter.name}": parameter.shown for parameter in config.parameters}
                settings = {"sampler": config.sampler, "pruner": config.used_pruner, "trials": str(budget)}
                settings |= {"metric": dev_metric(base.recipe), "storage": str(journal(config.name)), **space}
                record.event("tags", values=settings)
                with Engine(placement) as engine:
                    alone = engine.slots == 1 and request.cluster is None
                    where = f"on {choose(request.device).describe()}" if alone else placement.describe()
                    screen.opened(config, done, budget, where, engine.slots)
                    driver = Driver(study, config, engine, read_about(record.run_id), screen)
                    why = driver.drive()
                _record_findings(record, read_search(study), screen)
        except (KeyboardInterrupt, Terminated, StopRequested):
            screen.advise([f"stopped. To continue: cse tune --resume {config.name}"])
            raise
    return driver.ran, why


def take_search_record(study: Study, config: SearchConfig, base: LoadedRecipe) -> RunRecord:
    """Return the record of a search for writing."""
    if RECORD not in study.user_attrs:
        study.set_user_attr(RECORD, uuid4().hex)
    group = os.environ.get("MLFLOW_EXPERIMENT_NAME") or f"tune/{config.name}"
    job = Job(base, base.recipe.train.seed, search=config.name, run_name=config.name, tags=config.tags, group=group)
    own = {"run_id": study.user_attrs[RECORD], "recipe": "", "summary": "tuning", "seed": None}
    return take_record(job.about(None).model_copy(update=own), base)


def _record_findings(record: RunRecord, found: Search, screen: TuneScreen) -> None:
    metrics = {f"trials/{state}": float(found.count(state)) for state in ("complete", "pruned", "failed")}
    ended = int(sum(metrics.values()))
    if found.best is not None and found.best.score is not None:
        metrics["score/best"] = found.best.score
    record.metrics(metrics | {f"importance/{name}": share for name, share in found.importance.items()}, ended)
    if _draw(found, record.path / FIGURES, screen.warned):
        record.file(FIGURES)


# The verification of the best values.


@dataclass(frozen=True)
class TunedRecipe:
    """A recipe with the values of a trial.

    `changes` and `unset` have the overrides and `--unset` keys of every trial, then those of this one.
    """

    base: LoadedRecipe
    changes: tuple[str | Override, ...]
    unset: tuple[str, ...]

    def load(self, extra: Sequence[Override] = ()) -> LoadedRecipe:
        """Return the recipe with the values and further overrides."""
        return load(str(self.base.path), [*self.changes, *extra], self.unset)


def tuned_recipe(search: Search, trial: Trial | None = None) -> TunedRecipe:
    """Return the recipe in full length, with the values of a trial or with its own."""
    config = search.config
    now = config.load_base()
    if now.recipe.hash() != search.recipe_hash:
        message = f"recipe '{config.recipe}' has changed since search '{search.name}'"
        raise CseError(message, f"undo the change in {now.path}, or search again", code="tune.changed_recipe")
    found, removed = settings_of(config.parameters, {} if trial is None or trial.own else trial.values)
    return TunedRecipe(load(config.recipe), (*config.overrides, *found), (*config.unset, *removed))


def verify(search: Search, seeds: int, request: RunRequest, screen: TuneScreen) -> Verification:
    """Train the recipe in full length with its own values and with the best ones, and compare them seed by seed.

    The seeds are the first from 0 that no trial had. Finished runs are not repeated. The number of seeds is recorded as
    a plan before the first run starts.
    """
    best = search.require_best()
    if best.own:
        message = "the recipe's values are the best, so there is no gain to verify"
        raise CseError(message, "run more trials with --trials", code="tune.no_gain")
    sides = {"own": tuned_recipe(search), "found": tuned_recipe(search, best)}
    jobs = []
    for seed in islice((seed for seed in count() if seed not in search.config.seeds), seeds):
        for side, tuned in sides.items():
            loaded, name = tuned.load([Override.of("train.seed", seed)]), f"{side}, seed {seed} of {search.name}"
            jobs.append(Job(loaded, seed, parent=search.run_id or "", run_name=name, confirms=search.name))
    distinct(jobs)
    done = finished(jobs, all_runs())
    if left := [job for job in jobs if job not in done]:
        with Engine(place_runs(len(left), request)) as engine:
            screen.verify(jobs, alone=engine.slots == 1)
            for job, end in run_each(left, engine, screen):
                if isinstance(end, CseError):
                    raise end
                done[job] = end
    own, found = [done[job] for job in jobs[::2]], [done[job] for job in jobs[1::2]]
    mode: Mode = "planned" if plan_of(own).paired_with(plan_of(found)).mode == "planned" else "anytime"
    paired = {}
    for name in dict.fromkeys([search.metric, *shared_metrics([*own, *found])]):
        scores = [metric_value(result.scores, name) for result in (*own, *found)]
        known = [score for score in scores if score is not None]
        if len(known) == len(scores):
            of_seeds = [result.seed for result in own]
            paired[name] = compare_paired(of_seeds, known[: len(own)], known[len(own) :], mode)
    return Verification(trial=best.number, values=best.values, main=search.metric, paired=paired, mode=mode)


# The recipe with the best values.


def check_file(file: Path, search: str) -> None:
    """Refuse a file that must not be overwritten, before the search starts."""
    if file.suffix != ".toml":
        better = file.with_suffix(".toml") if file.name else "best.toml"
        raise CseError(f"--save-best: '{file}' does not end in .toml", f"use {better}", code="tune.not_toml")
    if not file.parent.is_dir():
        message = f"--save-best: directory '{file.parent}' does not exist"
        raise CseError(message, "create it, or use another directory", code="tune.no_directory")
    first = ""
    with suppress(OSError, ValueError), file.open(encoding="utf-8") as lines:
        first = next(lines, "")
    if file.exists() and not first.startswith(f"{_MADE_BY}{search},"):
        message = f"--save-best: '{file}' exists and does not belong to this search"
        raise CseError(message, "use another name", code="tune.file_exists")


def save_recipe(file: Path, tuned: TunedRecipe, search: Search, trial: Trial) -> None:
    """Write the recipe with the values of a trial. It extends the searched recipe."""
    check_file(file, search.name)
    expected, base = tuned.load().recipe.hash(), tuned.base
    draft = file.with_name(f".{file.stem}.draft.toml")
    path = os.path.relpath(base.path.resolve(), file.absolute().parent.resolve())
    named = find_parent(base.name, file.absolute())
    # The name if it means the same file from there, then the path.
    parents = [base.name, path] if named is not None and named.resolve() == base.path.resolve() else [path]
    steps = f", {search.config.steps} steps" if search.config.steps else ""
    own = "" if search.own is None else f" Score of the recipe's values: {search.own.score:.2f}."
    comment = [f"{_MADE_BY}{search.name}, trial {trial.number} of {len(search.trials)}, {date.today()}."]
    wrap = textwrap.TextWrapper(_WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
    comment += wrap.wrap(f"{search.metric} {trial.score:.2f} ({search.config.scored_by}{steps}).{own}")
    comment += wrap.wrap(f"{search.verdict[:1].upper()}{search.verdict[1:]}.")
    # The values are not those of the paper.
    removed = [*(["paper"] if base.recipe.paper is not None else []), *tuned.unset]
    tables: dict[str, Any] = {"remove": removed} if removed else {}
    tables |= {"title": f"{base.recipe.title}, tuned", **_changed_tables(tuned)}
    try:
        for parent in parents:
            text = "\n".join([*comment, tomlkit.dumps({"extends": parent, **tables})])
            draft.write_text(text, encoding="utf-8")
            if load(str(draft)).recipe.hash() == expected:
                draft.replace(file)
                return
    except OSError as error:
        message = f"--save-best: '{file}' cannot be written: {error}"
        raise CseError(message, "use another directory", code="tune.not_written") from error
    finally:
        draft.unlink(missing_ok=True)
    message = f"--save-best: '{file}' would load to another recipe"
    raise CseError(message, f"write it to {base.path.parent}", code="tune.not_written")


def _changed_tables(tuned: TunedRecipe) -> dict[str, Any]:
    """Return the changed tables of the recipe. Arrays are whole, because `extends` replaces them."""
    changes = parse_overrides(tuned.changes, tuned.unset)
    tables, paths = apply_overrides(tuned.base.tables, changes)
    changed: dict[str, Any] = {}
    for path, change in zip(paths, changes, strict=True):
        if change.unset:
            continue
        value, target = tables, changed
        *tail, last = map(str, takewhile(lambda key: not isinstance(key, int), path))
        for key in tail:
            value, target = value[key], target.setdefault(key, {})
        if last in value:  # `train.steps` replaces an earlier `train.epochs`
            target[last] = value[last]
    if "file" in changed.get("data", {}):
        file = tuned.load().recipe.data.file  # relative to this directory, not to that of the new file
        changed["data"]["file"] = list(file) if isinstance(file, tuple) else file
    return changed


# The settings of a search, from those that the user typed.


def _resolve(
    given: SearchConfig, params: Sequence[str], ranges: Sequence[str], choices: Sequence[str], metric: str | None,
    screen: TuneScreen,
) -> tuple[SearchConfig, LoadedRecipe]:  # fmt: skip
    """Return the complete settings of a search, and the recipe with its overrides."""
    if given.name and not re.fullmatch(_NAME, given.name):
        action = "use letters, digits, '.', '_' and '-'"
        raise CseError(f"--name: '{given.name}' is not a valid name", action, code="tune.invalid_name")
    config, reason = given, ""
    if given.resume:
        known = stored_config(load_study(given.name))
        config = known.model_copy(
            update={"trials": None, **{key: getattr(given, key) for key in given.model_fields_set}}
        )
        reason = "" if given.recipe else f"the recipe of search {given.name}"
    elif not given.recipe:
        recipe, reason = default_recipe()
        config = given.model_copy(update={"recipe": recipe})
    for file in config.plugins:
        plugins.add(file)
    screen.chosen(config.recipe, reason)
    overrides: list[str | Override] = [*config.overrides]
    update: dict[str, object] = {}
    if metric is not None:
        # Errors in the metric name the option that the user typed.
        overrides.append(replace(Override.of("evaluate.metric_for_best_model", metric), label="--metric"))
        update["overrides"] = (*given.overrides, f"evaluate.metric_for_best_model={json.dumps(metric)}")
    # First without the recipe's own check: its message recommends allow_test_selection, which does not help a search.
    dev_metric(load(config.recipe, [*overrides, "evaluate.allow_test_selection=true"], config.unset).recipe)
    loaded = load(config.recipe, overrides, config.unset)
    if params or ranges or choices or not config.parameters:
        update["parameters"] = search_space(loaded, params, ranges, choices)
    update |= {"recipe": reference(loaded.name, loaded.path), "seeds": config.seeds or (loaded.recipe.train.seed,)}
    config = config.model_copy(update=update)
    searched = {path for parameter in config.parameters for path in parameter.paths}
    if config.steps is not None and searched & {"train.steps", "train.epochs"}:
        raise CseError(
            "--steps and a parameter set the training length", "remove --steps", code="tune.exclusive_options"
        )
    check_settings(config)
    return config.model_copy(update={"name": config.name or _default_name(config, loaded)}), loaded


def _default_name(config: SearchConfig, loaded: LoadedRecipe) -> str:
    """Return a name that depends only on the question, so that the same command resumes its search."""
    question = identity(config, loaded.recipe)
    question["experiment"] = question["experiment"]["settings"]  # the rest is unknown before the download
    digest = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:6]
    names = [parameter.name.split(".") for parameter in config.parameters if parameter.when is None]
    keys = [next(key for key in reversed(name) if not key.isdigit()) for name in names]
    label = "-".join(keys) if len("-".join(keys)) <= _LONGEST else f"{len(keys)}_parameters"
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{loaded.name}-{label}-{digest}")


def default_recipe() -> tuple[str, str]:
    """Return the recipe of the newest run whose file still exists, else the shipped one, and the reason."""
    for run in all_runs():
        name, file = run.about.recipe, Path(run.about.source)
        if name and file.is_absolute() and file.is_file():
            return reference(name, file), f"the recipe of the last run, {run.about.short}"
    return SHIPPED, "the default, because there are no runs yet"


def reference(name: str, file: Path) -> str:
    """Return the name of a recipe of this installation, which is valid in every directory, else the whole path."""
    return name if real_path(file).is_relative_to(real_path(shipped())) else str(file.absolute())
