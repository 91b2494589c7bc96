"""Forms of `cse tune`: search, show a search, list searches."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from cse_cli.core.devices import choose
from cse_cli.core.paths import require_home
from cse_cli.data.requirements import fetch
from cse_cli.jobs.engine import Engine
from cse_cli.jobs.placement import place_runs
from cse_cli.mirrors.mirror import Follower
from cse_cli.recipe.files import real_path, shipped
from cse_cli.recipe.load import LoadedRecipe, Override, load
from cse_cli.recipe.requirements import requirements
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import read_about
from cse_cli.runs.signals import Terminated, ending
from cse_cli.tuning.best import check_file, save_recipe, tuned_recipe, verify
from cse_cli.tuning.config import SearchConfig, dev_metric
from cse_cli.tuning.driver import Driver
from cse_cli.tuning.live import Ending, TuneScreen
from cse_cli.tuning.record import (
    draw_figures,
    record_findings,
    record_settings,
    record_verification,
    take_search_record,
)
from cse_cli.tuning.results import VERIFICATION, read_search, read_searches
from cse_cli.tuning.samplers import check_names
from cse_cli.tuning.space import search_space
from cse_cli.tuning.study import (
    Study,
    budget,
    directory,
    driving,
    find_study,
    identity,
    load_study,
    open_study,
    settled,
    stored_config,
)
from cse_cli.tuning.view import print_search, print_searches, print_verification, write_search, write_searches
from registry import plugins
from registry.errors import CseError, StopRequested

SHIPPED = "quickstart"
"""Recipe that needs neither a network nor your own files."""
_LONGEST = 60
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,150}"


def search(
    given: SearchConfig, params: Sequence[str], ranges: Sequence[str], choices: Sequence[str], metric: str | None
) -> None:
    """Run a search and print its results."""
    require_home()
    with TuneScreen(quiet=given.request.quiet) as screen:
        config, loaded = resolve(given, params, ranges, choices, metric, screen.chosen)
        if config.save_best is not None:
            check_file(config.save_best, config.name)
        if not given.recipe:
            for name, trials in stopped_searches(config):
                screen.unfinished(name, trials, f"cse tune --resume {name}")
        screen.planned(config, loaded)
        ran, why = run_search(config, screen)
        study = load_study(config.name)
        screen.ended(config, len(settled(study.get_trials(deepcopy=False))), ran, why)
    read_search(study).require_best()
    _show(study, config)


def stopped_searches(config: SearchConfig) -> Iterator[tuple[str, str]]:
    """Yield name and trials of every other search of the same parameters that was stopped, the newest first."""
    searched = {parameter.name for parameter in config.parameters}
    for run in all_runs():
        if run.about.summary == "tuning" and run.state in ("STOPPED", "LOST") and run.about.search != config.name:
            with suppress(CseError):  # its journal was deleted
                study = load_study(run.about.search)
                if {parameter.name for parameter in stored_config(study).parameters} == searched:
                    done = len(settled(study.get_trials(deepcopy=False)))
                    yield run.about.search, f"{done} of {budget(study)} trials"


def show_search(name: str, config: SearchConfig) -> None:
    """Print the results of a search without running trials."""
    study = find_study(name)
    if config.save_best is not None:
        check_file(config.save_best, study.study_name)
    _show(study, config)


def list_searches(*, as_json: bool) -> None:
    """Print every search."""
    searches = read_searches()
    (write_searches if as_json else print_searches)(searches)
    if not searches:
        sys.stderr.write("no searches yet\n  → start one: cse tune --param queue_length\n")


def _show(study: Study, config: SearchConfig) -> None:
    """Verify and save the best values if requested, and print the search."""
    if config.verify_seeds is not None:
        _verify(study, config, config.verify_seeds)
    found, file = read_search(study), config.save_best
    if file is not None:
        best, day = found.require_best(), datetime.now().astimezone().date().isoformat()
        save_recipe(file, tuned_recipe(found, best), found, best, day)
    if config.request.as_json:
        write_search(found)
    elif config.verify_seeds is not None and found.verification is not None:
        print_verification(found, found.verification)
    else:
        # Drawn again, because the search may have continued.
        files = draw_figures(study, directory(found.name), lambda text: sys.stderr.write(f"warning: {text}\n"))
        print_search(found, files[0].parent if files else None, file)
    if file is not None:
        sys.stderr.write(f"saved {file}\n")


def _verify(study: Study, config: SearchConfig, seeds: int) -> None:
    """Verify the best values, and keep the result in the study and in the record."""
    found = read_search(study)
    with TuneScreen(quiet=config.request.quiet) as screen:
        try:
            verification = verify(found, seeds, config.request, screen).after(found.best_verification)
        except (KeyboardInterrupt, Terminated):
            screen.interrupted(f"cse tune --best {found.name} --verify-seeds {seeds}")
            raise
        if verification != found.verification:
            study.set_user_attr(VERIFICATION, verification.model_dump_json())
            if found.run_id is not None:
                record_verification(found.run_id, verification, screen.warned)


def run_search(config: SearchConfig, screen: TuneScreen) -> tuple[int, Ending]:
    """Run the trials of a new or existing search.

    Returns:
        Number of trials that this process ran, and the reason why it ended.

    Raises:
        CseError: If it cannot run, or another process runs it.
        KeyboardInterrupt: If it was stopped. The same config continues it.
    """
    if config.request.cluster is None:
        choose(config.request.device)
    base = config.load_base()
    fetch(requirements(base.recipe), screen.downloading)
    with driving(config.name):
        study, request = open_study(config), config.request
        record, done = take_search_record(study, config, base), len(settled(study.get_trials(deepcopy=False)))
        placement = place_runs(max(0, budget(study) - done), request)
        try:
            with closing(Follower(record.run_id)), ending(record):
                record.started(device=request.device)
                record_settings(record, study, config)
                with Engine(placement) as engine:
                    alone = engine.slots == 1 and request.cluster is None
                    where = f"on {choose(request.device).describe()}" if alone else placement.describe()
                    screen.opened(config, done, budget(study), where, engine.slots)
                    driver = Driver(study, config, engine, read_about(record.run_id), screen)
                    why = driver.drive()
                record_findings(record, study, screen.warned)
                record.end("finished")
        except (KeyboardInterrupt, Terminated, StopRequested):
            screen.interrupted(f"cse tune --resume {config.name}")
            raise
    return driver.ran, why


def resolve(
    given: SearchConfig,
    params: Sequence[str],
    ranges: Sequence[str] = (),
    choices: Sequence[str] = (),
    metric: str | None = None,
    chosen: Callable[[str, str], None] = lambda _recipe, _why: None,
) -> tuple[SearchConfig, LoadedRecipe]:
    """Return the complete settings of a search, and the recipe with its overrides."""
    if given.name and not re.fullmatch(_NAME, given.name):
        message = f"--name: '{given.name}' is not a valid name"
        raise CseError(message, "use letters, digits, '.', '_' and '-'", code="tune.invalid_name")
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
    chosen(config.recipe, reason)
    loaded = _load(config, metric)
    update: dict[str, object] = {"recipe": reference(loaded.name, loaded.path)}
    if metric is not None:
        update["overrides"] = (*given.overrides, f"evaluate.metric_for_best_model={json.dumps(metric)}")
    if params or ranges or choices or not config.parameters:
        update["parameters"] = search_space(loaded, params, ranges, choices)
    config = config.model_copy(update={**update, "seeds": config.seeds_of(loaded.recipe)})
    searched = {path for parameter in config.parameters for path in parameter.paths}
    if config.steps is not None and searched & {"train.steps", "train.epochs"}:
        message = "--steps sets the training length, which is also searched"
        raise CseError(message, "remove --steps", code="tune.exclusive_options")
    check_names(config)
    return config.model_copy(update={"name": config.name or _default_name(config, loaded)}), loaded


def _load(config: SearchConfig, metric: str | None) -> LoadedRecipe:
    """Return the recipe, which has a dev metric. Errors in the metric name the option that the user typed."""
    overrides: list[str | Override] = [*config.overrides]
    if metric is not None:
        overrides.append(replace(Override.of("evaluate.metric_for_best_model", metric), label="--metric"))
    # First without the recipe's own check: its message recommends allow_test_selection, which does not help a search.
    dev_metric(load(config.recipe, [*overrides, "evaluate.allow_test_selection=true"], config.unset).recipe)
    return load(config.recipe, overrides, config.unset)


def _default_name(config: SearchConfig, loaded: LoadedRecipe) -> str:
    """Return a name that depends only on the question, so that the same command resumes its search."""
    question = identity(loaded.recipe, config.parameters, config.seeds, config.steps)
    question["experiment"] = question["experiment"]["settings"]  # the rest is unknown before the download
    digest = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:6]
    keys = []
    for parameter in config.parameters:
        if parameter.when is None:
            keys.append(next(key for key in reversed(parameter.name.split(".")) if not key.isdigit()))
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
