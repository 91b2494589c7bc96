"""Forms of `cse tune`: search, show a search, list searches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cse_cli.core.console import Downloading, Warned
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
from cse_cli.tuning.driver import Driver
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.observer import Ending, SearchObserver
from cse_cli.tuning.owner import is_searched
from cse_cli.tuning.record import (
    draw_figures,
    mirrored,
    record_findings,
    record_settings,
    record_verification,
    take_search_record,
)
from cse_cli.tuning.resolve import resolve
from cse_cli.tuning.results import VERIFICATION, read_search, read_searches
from cse_cli.tuning.save_recipe import check_file, save_recipe, tuned_recipe
from cse_cli.tuning.storage import address, directory
from cse_cli.tuning.study import Study, budget, find_study, load_study, open_study, settled
from cse_cli.tuning.verify import verify
from cse_cli.tuning.view import print_search, print_searches, print_verification, write_search, write_searches
from registry.errors import StopRequested


@dataclass(frozen=True)
class Output:
    """Options for the results of a search.

    Args:
        save_best: File for a recipe with the best values.
        verify_seeds: Number of new seeds for a verification.
        as_json: Whether to print one JSON document.
        quiet: Whether to print only results and errors.
    """

    save_best: Path | None = None
    verify_seeds: int | None = None
    as_json: bool = False
    quiet: bool = False


def search(
    given: SearchConfig,
    params: Sequence[str],
    ranges: Sequence[str],
    choices: Sequence[str],
    metric: str | None,
    output: Output,
) -> None:
    """Run a search and print its results.

    Raises:
        CseError: If it cannot start, or no trial is complete.
    """
    require_home()
    with TuneScreen(quiet=output.quiet) as screen:
        config, loaded = resolve(given, params, ranges, choices, metric, screen.chosen)
        if output.save_best is not None:
            check_file(output.save_best, config.name)
        screen.planned(config, loaded)
        ran, why = run_search(config, screen)
        study = load_study(config.storage, config.name)
        screen.ended(config.name, len(settled(study.get_trials(deepcopy=False))), ran, why)
    read_search(study, config.storage).require_best()
    _show(study, config.storage, config.request, output)


def show_search(name: str, config: SearchConfig, output: Output) -> None:
    """Print the results of a search without running trials.

    Raises:
        CseError: If the search does not exist, or has no complete trial for the options.
    """
    study = find_study(config.storage, name)
    if output.save_best is not None:
        check_file(output.save_best, study.study_name)
    _show(study, config.storage, config.request, output)


def list_searches(storage: str | None, *, as_json: bool) -> None:
    """Print every search of a storage."""
    searches = read_searches(storage)
    (write_searches if as_json else print_searches)(searches)
    if not searches:
        sys.stderr.write("no searches yet\n  → start one: cse tune --param queue_length\n")


def _show(study: Study, storage: str | None, request: RunRequest, output: Output) -> None:
    """Verify and save the best values if requested, and print the search."""
    if output.verify_seeds is not None:
        _verify(study, storage, request, output)
    found = read_search(study, storage)
    if output.save_best is not None:
        best, day = found.require_best(), datetime.now().astimezone().date().isoformat()
        save_recipe(output.save_best, tuned_recipe(found, best), found, best, day)
    if output.as_json:
        write_search(found)
    elif output.verify_seeds is not None and found.verification is not None:
        print_verification(found, found.verification)
    else:
        # Drawn again, because another process may have continued the search.
        files = draw_figures(study, directory() / study.study_name, lambda text: sys.stderr.write(f"warning: {text}\n"))
        print_search(found, files[0].parent if files else None, output.save_best)
    if output.save_best is not None:
        sys.stderr.write(f"saved {output.save_best}\n")


def _verify(study: Study, storage: str | None, request: RunRequest, output: Output) -> None:
    """Verify the best values, and keep the result in the study and in the record."""
    found, seeds = read_search(study, storage), output.verify_seeds or 0
    with TuneScreen(quiet=output.quiet) as screen:
        try:
            verification = verify(found, seeds, request, screen).after(found.best_verification)
        except (KeyboardInterrupt, Terminated):
            screen.verification_interrupted(found.name, seeds)
            raise
        if verification != found.verification:
            study.set_user_attr(VERIFICATION, verification.model_dump_json())
            if found.run_id is not None:
                record_verification(found.run_id, verification, screen.warned)


def run_search(config: SearchConfig, observer: SearchObserver) -> tuple[int, Ending]:
    """Run the trials of a new or existing search.

    Returns:
        Number of trials that this process ran, and the reason why it ended.

    Raises:
        CseError: If it cannot run.
        KeyboardInterrupt: If it was stopped. The same config continues it.
    """
    if config.cluster is None:
        choose(config.device)
    base = config.load_base()
    fetch(requirements(base.recipe), lambda *file: observer.observe(Downloading(*file)))
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
    placement = place_runs(max(0, budget(study) - done), config.request)
    with mirrored(about) if taken else nullcontext(), ending(record):
        if taken:  # an earlier request to stop is void
            (about.path / STOP).unlink(missing_ok=True)
        record.started(device=config.device)
        record_settings(record, study, config)
        with placement.open() as executor:
            alone = executor.one_by_one and config.cluster is None
            where = f"on {choose(config.device).describe()}" if alone else placement.describe()
            observer.opened(config, done, budget(study), where, executor.slots)
            driver = Driver(study, config, executor, about, observer)
            why = driver.drive()
        _finish(record if taken else take_search_record(study, config, base)[1], study, config, observer)
    return driver.ran, why


def _finish(record: RunRecord | None, study: Study, config: SearchConfig, observer: SearchObserver) -> None:
    """Record the findings and end the record. If another process still searches, it does this."""
    if record is None:
        return
    searched = is_searched(study.get_trials(deepcopy=False), address(config.storage, config.name), config.name)
    if searched or last_end(record.run_id) == "finished":
        record.close()
    else:
        record_findings(record, study, lambda text: observer.observe(Warned(text)))
        record.end("finished")
