"""Forms of `cse tune`: search, show a search, list searches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from datetime import datetime

from cse_cli.core.devices import choose
from cse_cli.core.paths import require_home
from cse_cli.data.requirements import fetch
from cse_cli.jobs.placement import place_runs
from cse_cli.mirrors import follow
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.recipe.requirements import requirements
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import STOP, RunRecord, last_end
from cse_cli.runs.signals import Terminated, ending
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.driver import Driver
from cse_cli.tuning.live import Ending, TuneScreen
from cse_cli.tuning.owner import is_searched
from cse_cli.tuning.record import (
    draw_figures,
    record_findings,
    record_settings,
    record_verification,
    take_search_record,
)
from cse_cli.tuning.resolve import resolve
from cse_cli.tuning.results import VERIFICATION, read_search, read_searches
from cse_cli.tuning.save_recipe import check_file, save_recipe, tuned_recipe
from cse_cli.tuning.storage import address, directory, resume_command
from cse_cli.tuning.study import Study, budget, find_study, load_study, open_study, settled, stored_config
from cse_cli.tuning.verify import verify
from cse_cli.tuning.view import print_search, print_searches, print_verification, write_search, write_searches
from registry.errors import CseError, StopRequested


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
                screen.unfinished(name, trials, resume_command(config.storage, name))
        screen.planned(config, loaded)
        ran, why = run_search(config, screen)
        study = load_study(config.storage, config.name)
        screen.ended(config, len(settled(study.get_trials(deepcopy=False))), ran, why)
    read_search(study, config.storage).require_best()
    _show(study, config)


def stopped_searches(config: SearchConfig) -> Iterator[tuple[str, str]]:
    """Yield name and trials of every other search of the same parameters that was stopped, the newest first."""
    searched = {parameter.name for parameter in config.parameters}
    for run in all_runs():
        if run.about.summary == "tuning" and run.state in ("STOPPED", "LOST") and run.about.search != config.name:
            with suppress(CseError):  # in another storage
                study = load_study(config.storage, run.about.search)
                if {parameter.name for parameter in stored_config(study).parameters} == searched:
                    done = len(settled(study.get_trials(deepcopy=False)))
                    yield run.about.search, f"{done} of {budget(study)} trials"


def show_search(name: str, config: SearchConfig) -> None:
    """Print the results of a search without running trials."""
    study = find_study(config.storage, name)
    if config.save_best is not None:
        check_file(config.save_best, study.study_name)
    _show(study, config)


def list_searches(storage: str | None, *, as_json: bool) -> None:
    """Print every search of a storage."""
    searches = read_searches(storage)
    (write_searches if as_json else print_searches)(searches)
    if not searches:
        sys.stderr.write("no searches yet\n  → start one: cse tune --param queue_length\n")


def _show(study: Study, config: SearchConfig) -> None:
    """Verify and save the best values if requested, and print the search."""
    if config.verify_seeds is not None:
        _verify(study, config, config.verify_seeds)
    found, file = read_search(study, config.storage), config.save_best
    if file is not None:
        best, day = found.require_best(), datetime.now().astimezone().date().isoformat()
        save_recipe(file, tuned_recipe(found, best), found, best, day)
    if config.request.as_json:
        write_search(found)
    elif config.verify_seeds is not None and found.verification is not None:
        print_verification(found, found.verification)
    else:
        # Drawn again, because another process may have continued the search.
        files = draw_figures(study, directory() / study.study_name, lambda text: sys.stderr.write(f"warning: {text}\n"))
        print_search(found, files[0].parent if files else None, file)
    if file is not None:
        sys.stderr.write(f"saved {file}\n")


def _verify(study: Study, config: SearchConfig, seeds: int) -> None:
    """Verify the best values, and keep the result in the study and in the record."""
    found = read_search(study, config.storage)
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
        CseError: If it cannot run.
        KeyboardInterrupt: If it was stopped. The same config continues it.
    """
    if config.request.cluster is None:
        choose(config.request.device)
    base = config.load_base()
    fetch(requirements(base.recipe), screen.downloading)
    study = open_study(config)
    try:
        return _drive(study, config, base, screen)
    except (KeyboardInterrupt, Terminated, StopRequested):
        screen.interrupted(resume_command(config.storage, config.name))
        raise


def _drive(study: Study, config: SearchConfig, base: LoadedRecipe, screen: TuneScreen) -> tuple[int, Ending]:
    done, request = len(settled(study.get_trials(deepcopy=False))), config.request
    about, taken = take_search_record(study, config, base)
    record = taken or RunRecord(about, None)
    placement = place_runs(max(0, budget(study) - done), request)
    with closing(follow(about)) if taken else nullcontext(), ending(record):
        if taken:  # an earlier request to stop is void
            (about.path / STOP).unlink(missing_ok=True)
        record.started(device=request.device)
        record_settings(record, study, config)
        with placement.open() as executor:
            alone = executor.one_by_one and request.cluster is None
            where = f"on {choose(request.device).describe()}" if alone else placement.describe()
            screen.opened(config, done, budget(study), where, executor.slots)
            driver = Driver(study, config, executor, about, screen)
            why = driver.drive()
        _finish(record if taken else take_search_record(study, config, base)[1], study, config, screen)
    return driver.ran, why


def _finish(record: RunRecord | None, study: Study, config: SearchConfig, screen: TuneScreen) -> None:
    """Record the findings and end the record. If another process still searches, it does this."""
    if record is None:
        return
    searched = is_searched(study.get_trials(deepcopy=False), address(config.storage, config.name), config.name)
    if searched or last_end(record.run_id) == "finished":
        record.close()
    else:
        record_findings(record, study, screen.warned)
        record.end("finished")
