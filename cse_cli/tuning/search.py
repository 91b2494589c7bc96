"""What the forms of `cse tune` do: search, look at a study, list studies.

What `cse tune` does: open the study, do trials in this process or in several, record the search.

The search as a run in the tracking store: its trials' runs lie below it, its plots are its artifacts.

Watchers of a search that need no screen.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import optuna

from cse_cli import tracking
from cse_cli.core.console import Silent
from cse_cli.core.devices import choose, worker_devices
from cse_cli.recipe.completion import remember
from cse_cli.tracking import location as tags
from cse_cli.tuning import study as studies
from cse_cli.tuning import study as words
from cse_cli.tuning.config import Ended, Ending, Opened, Outcome, Plan, Value, Watcher
from cse_cli.tuning.confirm import best_of, confirm, found
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.objective import RecipeTrial
from cse_cli.tuning.options import Wanted, planned
from cse_cli.tuning.results import Confirmation, Search, every, find, importances, keep, summary
from cse_cli.tuning.samplers import pruner, pruner_name
from cse_cli.tuning.save_recipe import demand_room, save
from cse_cli.tuning.space import Knob
from cse_cli.tuning.storage import address, folder, held
from cse_cli.tuning.study import Study, base, budget, load_study, open_study, run_of, seeds
from cse_cli.tuning.view import print_confirmation, print_search, print_searches, write_json
from cse_cli.tuning.workers import Crew, Worker
from registry.errors import CseError, UnknownNameError


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
        outcome = run_search(ready.plan, screen)
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


def run_search(plan: Plan, watcher: Watcher) -> Outcome:
    """Do a plan's trials, beginning or going on with its study; other processes may do some of them meanwhile.

    Raises:
        CseError: The plan cannot be carried out; the message says why, and nothing is lost of a study that exists.
        KeyboardInterrupt: It was stopped; the study is kept, and the same plan goes on with it.
    """
    choose(plan.device)
    study = open_study(plan)
    tracker = start(study, plan)
    run_id = None if tracker is None else tracker.run_id
    places = tuple(worker_devices(plan.device, plan.workers))
    before = len(words.settled(study.get_trials(deepcopy=False)))
    shown = address(plan.storage, plan.name).shown
    watcher.opened(Opened(plan.name, shown, before, budget(study), places, run_id))
    try:
        with tracking.ending(tracker or tracking.NullTracker()):
            ran, ending = _trials(study, plan, places, watcher)
            for told in [] if tracker is None else finish(tracker, study):
                watcher.warned(told)
    except (KeyboardInterrupt, tracking.Terminated):
        watcher.left(plan.name)
        raise
    counts = words.counts(study.get_trials(deepcopy=False))
    return Outcome(plan.name, plan.storage, ran, counts, ending, run_id)


def work(plan: Plan, parent: str | None, watcher: Watcher) -> tuple[int, Ending]:
    """Do one process's share of a study that exists; return how many trials came to their end, and why no more."""
    return _share(open_study(plan), plan, parent, watcher)


def _trials(study: optuna.Study, plan: Plan, places: tuple[str, ...], watcher: Watcher) -> tuple[int, Ending]:
    if len(places) == 1:
        return _share(study, plan, run_of(study), watcher)
    crew = Crew(plan, places, run_of(study), watcher)
    crew.work(study)
    done = len(words.settled(study.get_trials(deepcopy=False)))
    return crew.ran, "budget" if done >= budget(study) else "exhausted" if plan.timeout is None else "timeout"


def _share(study: optuna.Study, plan: Plan, parent: str | None, watcher: Watcher) -> tuple[int, Ending]:
    loaded = base(plan)
    train = loaded.recipe.train
    study.pruner = pruner(plan, train.steps, train.evaluate_every)
    objective = RecipeTrial(plan, seeds(plan, loaded.recipe), parent, watcher)
    worker = Worker(study, plan, objective, watcher)
    ending = worker.work()
    return worker.ran, ending


def start(study: optuna.Study, plan: Plan) -> tracking.Tracker | None:
    """Open the search's run, made where it is new; None where another process of this machine has it open.

    Raises:
        TrackingError: The tracking store does not answer.
    """
    with held(address(plan.storage, plan.name).lock(f"{plan.name}/run")):
        if (known := studies.run_of(study)) is not None:
            try:
                return tracking.start("", {}, {}, known)
            except UnknownNameError:
                return None  # the machine that made the study has a tracking store of its own
            except CseError as error:
                if error.exit_code != CseError.exit_code:
                    raise
                return None  # another process has it
        tracker = tracking.start(plan.name, _params(study, plan), _tags(study, plan))
        studies.set_run(study, tracker.run_id)
        return tracker


def finish(tracker: tracking.Tracker, study: optuna.Study) -> list[str]:
    """Record what the search has found so far; return what the user should be told."""
    trials = study.get_trials(deepcopy=False)
    counted = len(words.settled(trials))
    complete = [trial.value for trial in trials if words.state(trial) == "complete" and trial.value is not None]
    metrics = {f"trials/{state}": float(count) for state, count in words.counts(trials).items()}
    if complete:
        metrics["score/best"] = max(complete)
    metrics |= {f"importance/{name}": share for name, share in importances(study).items()}
    tracker.metrics(metrics, counted)
    return _record_plots(tracker, study)


def record_confirmation(run_id: str, confirmation: Confirmation) -> list[str]:
    """Record what fresh seeds say of the search's best values; return what the user should be told."""
    over = confirmation.paired[confirmation.main]
    metrics = {"confirmation/gain": over.difference, "confirmation/seeds": float(len(over.seeds))}
    if over.p is not None:
        metrics["confirmation/p"] = over.p
    try:
        tracker = tracking.start("", {}, {}, run_id)
    except UnknownNameError:
        return []  # the machine that made the study has a tracking store of its own
    except CseError as error:
        return [f"the search's run in MLflow does not have the confirmation: {error.message}"]
    with tracking.ending(tracker):
        tracker.metrics(metrics, len(over.seeds))
    return []


def _record_plots(tracker: tracking.Tracker, study: optuna.Study) -> list[str]:
    from cse_cli.tuning.plots import draw  # matplotlib: only where a search has come to its end

    place = folder() / study.study_name
    try:
        if draw(summary(study), place):
            tracker.folder(place, "plots")
    except Exception as error:  # a plot that fails costs no search its end
        return [f"plots are missing: {type(error).__name__}: {error}"]
    return []


def _params(study: optuna.Study, plan: Plan) -> dict[str, str]:
    return {
        "sampler": plan.sampler,
        "pruner": pruner_name(plan),
        "trials": str(studies.budget(study)),
        "metric": studies.metric(study),
        "storage": address(plan.storage, plan.name).shown,
        **{f"space.{knob.name}": _range(knob) for knob in plan.knobs},
    }


def _range(knob: Knob) -> str:
    if knob.choices is not None:
        return ", ".join(str(choice) for choice in knob.choices)
    step = "" if knob.step is None else f" step {knob.step:g}"
    return f"{knob.low:g}..{knob.high:g}{' log' if knob.log else ''}{step}"


def _tags(study: optuna.Study, plan: Plan) -> dict[str, str]:
    return {
        tags.TUNE: plan.name,
        tags.SUMMARY: "tuning",
        tags.RECIPE: plan.recipe,
        tags.RECIPE_HASH: studies.recipe_hash(study),
    }


class SilentWatcher(Silent):
    """Says nothing."""

    def opened(self, study: Opened) -> None:
        """Say nothing."""

    def trial_began(self, number: int, values: Mapping[str, Value], budget: int) -> None:
        """Say nothing."""

    def trial_ended(self, trial: Ended) -> None:
        """Say nothing."""

    def repeats(self, number: int, lost: int) -> None:
        """Say nothing."""

    def waits(self, count: int) -> None:
        """Say nothing."""

    def left(self, name: str) -> None:
        """Say nothing."""


class Lines(SilentWatcher):
    """Writes a line on stderr for what a log should have."""

    def trial_began(self, number: int, values: Mapping[str, Value], budget: int) -> None:
        """Write its values."""
        chosen = ", ".join(f"{name}={value}" for name, value in values.items()) or "the recipe itself"
        self._write(f"trial {number} of {budget}: {chosen}")

    def trial_ended(self, trial: Ended) -> None:
        """Write what came of it."""
        score = "" if trial.score is None else f" {trial.score:.4f}"
        why = "" if trial.reason is None else f": {trial.reason}"
        self._write(f"trial {trial.number}: {trial.state}{score}{why}")

    def repeats(self, number: int, lost: int) -> None:
        """Write which trial is done again."""
        self._write(f"trial {number} repeats trial {lost}, whose process is gone")

    def warned(self, text: str) -> None:
        """Write the warning."""
        self._write(f"warning: {text}")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
