"""What the forms of `cse tune` do: search, look at a study, list studies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from cse_cli import tracking
from cse_cli.completion import remember
from cse_cli.devices import worker_devices
from cse_cli.render.tune import print_confirmation, print_search, print_searches, write_json
from cse_cli.render.tune_screen import TuneScreen
from cse_cli.tuning.asking import Wanted, planned
from cse_cli.tuning.confirm import best_of, confirm, found
from cse_cli.tuning.found import Search
from cse_cli.tuning.save_best import demand_room, save
from cse_cli.tuning.storage import folder
from cse_cli.tuning.study import Study, load_study
from cse_cli.tuning.study_run import record_confirmation
from cse_cli.tuning.summary import every, find, keep, summary
from cse_cli.tuning.tune import tune
from registry.errors import CseError


@dataclass(frozen=True)
class Afterwards:
    """What is done with what was found.

    Args:
        save_best: File for a recipe with the best values.
        confirm: With how many fresh seeds they are compared with the recipe's own.
        as_json: Print one JSON document.
    """

    save_best: Path | None = None
    confirm: int | None = None
    as_json: bool = False


def search(wanted: Wanted, afterwards: Afterwards) -> None:
    """Search, then print what was found.

    Raises:
        CseError: It cannot begin, or nothing came to its end.
    """
    ready = planned(wanted)
    if afterwards.save_best is not None:
        demand_room(afterwards.save_best, ready.plan.name)
    remember()
    with TuneScreen() as screen:
        screen.planned(ready)
        outcome = tune(ready.plan, screen)
        screen.ended(outcome)
    study = load_study(wanted.storage, outcome.name)
    best_of(summary(study, wanted.storage))
    _after(study, wanted, afterwards)


def look(name: str, wanted: Wanted, afterwards: Afterwards) -> None:
    """Print what a study has found, without a trial more.

    Raises:
        CseError: There is no such study, nothing in it came to its end, or options say what to search.
    """
    _demand_no_search("--best", wanted if afterwards.confirm is None else replace(wanted, workers=None))
    if wanted.recipe is not None:
        raise CseError("--best looks at a study, which knows its recipe", f"leave out '{wanted.recipe}'")
    study = find(name, wanted.storage)
    if afterwards.save_best is not None:
        demand_room(afterwards.save_best, study.study_name)
    _after(study, wanted, afterwards)


def ls(wanted: Wanted, afterwards: Afterwards) -> None:
    """Print every study of a storage.

    Raises:
        CseError: Options say what to search, or what to do with one study.
    """
    _demand_no_search("ls", wanted)
    if afterwards.save_best is not None or afterwards.confirm is not None:
        raise CseError("ls lists all studies", "name one with --best STUDY")
    searches = every(wanted.storage)
    (write_json if afterwards.as_json else print_searches)(searches)
    if not searches:
        sys.stderr.write("no study yet\n  → `cse tune --param queue_length` makes one\n")


def _demand_no_search(form: str, wanted: Wanted) -> None:
    if said := wanted.said:
        raise CseError(f"{form} and --{said[0]} exclude each other: nothing is searched", f"leave out --{said[0]}")


def _after(study: Study, wanted: Wanted, afterwards: Afterwards) -> None:
    if afterwards.confirm is not None:
        places = worker_devices(wanted.device, wanted.workers)
        _confirm(summary(study, wanted.storage), study, afterwards.confirm, places)
    result = summary(study, wanted.storage)
    if afterwards.save_best is not None:
        best = best_of(result)
        save(afterwards.save_best, found(result, best), result, best, _today())
    if afterwards.as_json:
        write_json(result)
    elif afterwards.confirm is not None and result.confirmation is not None:
        print_confirmation(result, result.confirmation)
    else:
        print_search(result, _figures(result), afterwards.save_best)
    if afterwards.save_best is not None:
        sys.stderr.write(f"wrote {afterwards.save_best}\n")


def _confirm(search: Search, study: Study, seeds: int, places: Sequence[str]) -> None:
    """Put the best values to the test, and keep what comes of it with the study and with its run."""
    with TuneScreen() as screen:
        try:
            came = confirm(search, seeds, places, screen)
        except (KeyboardInterrupt, tracking.Terminated):
            screen.left_confirming(search.study, seeds)
            raise
        if came == search.confirmation:
            return
        keep(study, came)
        for told in [] if search.run_id is None else record_confirmation(search.run_id, came):
            screen.warned(told)


def figures_of(study: str) -> Path:
    """Return the folder of a study's figures; it need not exist."""
    return folder() / study


def _figures(result: Search) -> Path | None:
    """Return where the figures are, drawn anew: a study may have gone on elsewhere."""
    from cse_cli.tuning.plots import draw

    return figures_of(result.study) if draw(result, figures_of(result.study)) else None


def _today() -> str:
    return datetime.now().astimezone().date().isoformat()
