"""What the forms of `cse tune` do: search, look at a study, list studies; and the search's record in MLflow.

Runs of trials lie below the search's run; its figures are its artifacts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

from cse_cli import tracking
from cse_cli.core.devices import choose
from cse_cli.core.paths import require_home
from cse_cli.jobs.driver import sole_driver
from cse_cli.jobs.placement import place_runs
from cse_cli.jobs.request import RunRequest
from cse_cli.tracking import location, tags
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.confirm import confirm
from cse_cli.tuning.driver import Driver
from cse_cli.tuning.lease import lease
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.observer import Ending, SearchObserver
from cse_cli.tuning.options import SearchOptions, resolve_options
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.results import (
    Confirmation,
    Search,
    importances,
    keep_confirmation,
    list_searches,
    read_search,
    read_trials,
)
from cse_cli.tuning.samplers import pruner_name
from cse_cli.tuning.save_recipe import check_file, save_recipe, tuned_recipe
from cse_cli.tuning.storage import address, folder
from cse_cli.tuning.study import (
    Study,
    budget,
    counts,
    find_study,
    load_study,
    metric,
    open_study,
    recipe_hash,
    run_of,
    set_run,
    settled,
)
from cse_cli.tuning.view import print_confirmation, print_search, print_searches, write_searches
from registry.errors import CseError, UnknownNameError


def search(options: SearchOptions) -> None:
    """Search, then print what was found.

    Raises:
        CseError: It cannot begin, or nothing came to its end.
    """
    require_home()
    with TuneScreen(quiet=options.quiet) as screen:
        config, loaded = resolve_options(options, screen.chosen)
        if options.save_best is not None:
            check_file(options.save_best, config.name)
        screen.planned(config, loaded)
        ran, ending = run_search(config, screen)
        study = load_study(options.storage, config.name)
        screen.ended(config.name, len(settled(study.get_trials(deepcopy=False))), ran, ending)
    read_search(study, options.storage).demand_best()
    _show(study, options)


def show_study(name: str, options: SearchOptions) -> None:
    """Print what a study has found, without a trial more.

    Raises:
        CseError: There is no such study, nothing in it came to its end, or options say what to search.
    """
    options.demand_no_search("--best", *([] if options.confirm is None else ["workers", "on"]))
    if options.recipe is not None:
        raise CseError("--best looks at a study, which knows its recipe", f"leave out '{options.recipe}'")
    study = find_study(options.storage, name)
    if options.save_best is not None:
        check_file(options.save_best, study.study_name)
    _show(study, options)


def list_studies(options: SearchOptions) -> None:
    """Print every study of a storage.

    Raises:
        CseError: Options say what to search, or what to do with one study.
    """
    options.demand_no_search("ls")
    if options.save_best is not None or options.confirm is not None:
        raise CseError("ls lists all studies", "name one with --best STUDY")
    searches = list_searches(options.storage)
    (write_searches if options.as_json else print_searches)(searches)
    if not searches:
        sys.stderr.write("no study yet\n  → `cse tune --param queue_length` makes one\n")


def _show(study: Study, options: SearchOptions) -> None:
    """Confirm and save the best values where that is asked for, and print the search."""
    if options.confirm is not None:
        _confirm(study, read_search(study, options.storage), options)
    found = read_search(study, options.storage)
    if options.save_best is not None:
        best, day = found.demand_best(), datetime.now().astimezone().date().isoformat()
        save_recipe(options.save_best, tuned_recipe(found, best), found, best, day)
    if options.as_json:
        write_searches(found)
    elif options.confirm is not None and found.confirmation is not None:
        print_confirmation(found, found.confirmation)
    else:
        # Drawn anew: the study may have gone on elsewhere.
        print_search(found, _draw(study, lambda text: sys.stderr.write(f"warning: {text}\n")), options.save_best)
    if options.save_best is not None:
        sys.stderr.write(f"wrote {options.save_best}\n")


def _confirm(study: Study, found: Search, options: SearchOptions) -> None:
    """Compare the best values with the recipe's own, and keep the result with the study and with its run."""
    seeds, name = options.confirm or 0, address(options.storage, found.study).driven(found.study)
    with TuneScreen(quiet=options.quiet) as screen, sole_driver("confirmation", name):
        try:
            confirmation = confirm(found, seeds, options.request(), screen).after(found.best_confirmation)
        except (KeyboardInterrupt, tracking.Terminated):
            screen.confirmation_interrupted(found.study, seeds)
            raise
        if confirmation != found.confirmation:
            keep_confirmation(study, confirmation)
            if found.run_id is not None:
                _record_confirmation(found.run_id, confirmation, screen)


def run_search(config: SearchConfig, observer: SearchObserver) -> tuple[int, Ending]:
    """Do a search's trials, in a new study or an existing one.

    Returns:
        How many trials this command did, and why no more.

    Raises:
        CseError: It cannot be done, or another process does it; the message says why.
        KeyboardInterrupt: It was stopped; the study is kept, and the same config goes on with it.
    """
    if config.on is None:
        choose(config.device)
    place = address(config.storage, config.name)
    with sole_driver("search", place.driven(config.name)):
        study = open_study(config)
        with lease(study) if place.file is None else nullcontext():
            try:
                return _drive(study, config, observer)
            except (KeyboardInterrupt, tracking.Terminated):
                observer.interrupted(config.name)
                raise


def _drive(study: Study, config: SearchConfig, observer: SearchObserver) -> tuple[int, Ending]:
    tracker, done = _open_run(study, config), len(settled(study.get_trials(deepcopy=False)))
    request = RunRequest(device=config.device, workers=config.workers, on=config.on, patience=config.patience)
    placement = place_runs(max(0, budget(study) - done), request)
    with tracking.ending(tracker or tracking.NullTracker()):
        with placement.open() as executor:
            alone = executor.one_by_one and config.on is None
            where = f"on {choose(config.device).describe()}" if alone else placement.describe()
            observer.opened(config, done, budget(study), where, executor.slots)
            driver = Driver(study, config, executor, run_of(study), observer)
            ending = driver.drive()
        if tracker is not None:
            _record_findings(tracker, study, observer)
    return driver.ran, ending


def _open_run(study: Study, config: SearchConfig) -> tracking.Tracker | None:
    """Open the search's run, made where it is new; None where another machine's store has it.

    Raises:
        TrackingError: The tracking store does not answer.
    """
    if (known := run_of(study)) is not None:
        try:
            return tracking.start("", {}, {}, known)
        except UnknownNameError:
            return None
    params = {
        "sampler": config.sampler,
        "pruner": pruner_name(config),
        "trials": str(budget(study)),
        "metric": metric(study),
        "storage": address(config.storage, config.name).shown,
        **{f"space.{parameter.name}": _range(parameter) for parameter in config.parameters},
    }
    about = {tags.TUNE: config.name, tags.SUMMARY: "tuning", tags.RECIPE: config.recipe}
    about |= {**config.tags, tags.RECIPE_HASH: recipe_hash(study)}
    place = config.experiment or location.experiment(f"tune/{config.name}")
    tracker = tracking.start(config.name, params, about, experiment=place)
    set_run(study, tracker.run_id)
    return tracker


def _range(parameter: Parameter) -> str:
    if parameter.choices is not None:
        return ", ".join(map(str, parameter.choices))
    step = "" if parameter.step is None else f" step {parameter.step:g}"
    return f"{parameter.low:g}..{parameter.high:g}{' log' if parameter.log else ''}{step}"


def _record_findings(tracker: tracking.Tracker, study: Study, observer: SearchObserver) -> None:
    """Record counts, the best score, importances and figures."""
    trials = study.get_trials(deepcopy=False)
    metrics = {f"trials/{state}": float(count) for state, count in counts(trials).items()}
    scores = [trial.score for trial in read_trials(study) if trial.state == "complete" and trial.score is not None]
    if scores:
        metrics["score/best"] = max(scores)
    metrics |= {f"importance/{name}": share for name, share in importances(study).items()}
    tracker.metrics(metrics, len(settled(trials)))
    if (figures := _draw(study, observer.warned)) is not None:
        tracker.folder(figures, "plots")


def _draw(study: Study, warned: Callable[[str], object]) -> Path | None:
    """Draw the figures of a study and return their folder; None where there are none, or they cannot be drawn."""
    figures = folder() / study.study_name
    try:
        from cse_cli.tuning.plots import draw  # matplotlib

        return figures if draw(study, figures) else None
    except Exception as error:  # a figure that fails must not fail the search
        warned(f"plots are missing: {type(error).__name__}: {error}")
        return None


def _record_confirmation(run_id: str, confirmation: Confirmation, observer: SearchObserver) -> None:
    """Record the gain with fresh seeds in the search's run, where this machine's store has it."""
    over, p = confirmation.paired[confirmation.main], confirmation.p_values[confirmation.main]
    metrics = {"confirmation/gain": over.difference, "confirmation/seeds": float(len(over.seeds))}
    if p is not None:
        metrics["confirmation/p"] = p
    try:
        tracker = tracking.start("", {}, {}, run_id)
    except UnknownNameError:
        return
    except CseError as error:
        observer.warned(f"the search's run in MLflow does not have the confirmation: {error.message}")
        return
    with tracking.ending(tracker):
        tracker.metrics(metrics, len(over.seeds))
