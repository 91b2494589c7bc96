"""What the forms of `cse tune` do: search, show a study, list studies."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from datetime import datetime

from cse_cli.core.devices import choose
from cse_cli.core.paths import require_home
from cse_cli.data.requirements import fetch
from cse_cli.jobs.placement import place_runs
from cse_cli.jobs.request import RunRequest
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.recipe.requirements import requirements
from cse_cli.runs.record import STOP, RunRecord, last_end
from cse_cli.runs.signals import Terminated, ending
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.confirm import confirm
from cse_cli.tuning.driver import Driver
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.observer import Ending, SearchObserver
from cse_cli.tuning.options import SearchOptions, resolve_options
from cse_cli.tuning.owner import is_searched
from cse_cli.tuning.record import (
    draw_figures,
    mirrored,
    record_confirmation,
    record_findings,
    record_question,
    take_search_record,
)
from cse_cli.tuning.results import Search, keep_confirmation, list_searches, read_search
from cse_cli.tuning.save_recipe import check_file, save_recipe, tuned_recipe
from cse_cli.tuning.storage import address, folder
from cse_cli.tuning.study import Study, budget, find_study, load_study, open_study, settled
from cse_cli.tuning.view import print_confirmation, print_search, print_searches, write_searches
from registry.errors import CseError, StopRequested


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
        # Drawn anew: another process may have continued the study.
        files = draw_figures(study, folder() / study.study_name, lambda text: sys.stderr.write(f"warning: {text}\n"))
        print_search(found, files[0].parent if files else None, options.save_best)
    if options.save_best is not None:
        sys.stderr.write(f"wrote {options.save_best}\n")


def _confirm(study: Study, found: Search, options: SearchOptions) -> None:
    """Compare the best values with the recipe's own, and keep the result in the study and in the record."""
    seeds = options.confirm or 0
    with TuneScreen(quiet=options.quiet) as screen:
        try:
            confirmation = confirm(found, seeds, options.request(), screen).after(found.best_confirmation)
        except (KeyboardInterrupt, Terminated):
            screen.confirmation_interrupted(found.study, seeds)
            raise
        if confirmation != found.confirmation:
            keep_confirmation(study, confirmation)
            if found.run_id is not None:
                record_confirmation(found.run_id, confirmation, screen.warned)


def run_search(config: SearchConfig, observer: SearchObserver) -> tuple[int, Ending]:
    """Do the trials of a search, in a new study or an existing one.

    Returns:
        The number of trials that this process did, and why it did no more.

    Raises:
        CseError: If it cannot be done.
        KeyboardInterrupt: If it was stopped. The study is kept, and the same config continues it.
    """
    if config.on is None:
        choose(config.device)
    base = config.load_base()
    fetch(requirements(base.recipe), observer.downloading)
    study = open_study(config)
    try:
        return _drive(study, config, base, observer)
    except (KeyboardInterrupt, Terminated, StopRequested):
        observer.interrupted(config.name)
        raise


def _drive(study: Study, config: SearchConfig, base: LoadedRecipe, observer: SearchObserver) -> tuple[int, Ending]:
    done = len(settled(study.get_trials(deepcopy=False)))
    about, taken = take_search_record(study, config, base)
    record = taken or RunRecord(about, None)
    request = RunRequest(device=config.device, workers=config.workers, on=config.on, patience=config.patience)
    placement = place_runs(max(0, budget(study) - done), request)
    with mirrored(about) if taken else nullcontext(), ending(record):
        if taken:  # a request to stop from before is void
            (about.path / STOP).unlink(missing_ok=True)
        record.started(device=config.device)
        record_question(record, study, config)
        with placement.open() as executor:
            alone = executor.one_by_one and config.on is None
            where = f"on {choose(config.device).describe()}" if alone else placement.describe()
            observer.opened(config, done, budget(study), where, executor.slots)
            driver = Driver(study, config, executor, about, observer)
            why = driver.drive()
        _finish(record if taken else take_search_record(study, config, base)[1], study, config, observer)
    return driver.ran, why


def _finish(record: RunRecord | None, study: Study, config: SearchConfig, observer: SearchObserver) -> None:
    """Record what was found and end the record, unless another process still searches: the last one ends it."""
    if record is None:
        return
    place = address(config.storage, config.name)
    if is_searched(study.get_trials(deepcopy=False), place, config.name):
        record.close()
    elif last_end(record.run_id) != "finished":
        record_findings(record, study, observer.warned)
        record.end("finished")
    else:
        record.close()
