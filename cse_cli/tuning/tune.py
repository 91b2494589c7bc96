"""What `cse tune` does: open the study, do trials in this process or in several, record the search."""

from __future__ import annotations

import optuna

from cse_cli import tracking
from cse_cli.devices import choose, worker_devices
from cse_cli.tuning import study_run
from cse_cli.tuning import trials as words
from cse_cli.tuning.identity import base, seeds
from cse_cli.tuning.plan import Ending, Opened, Outcome, Plan, Watcher
from cse_cli.tuning.processes import Crew
from cse_cli.tuning.sampling import pruner
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import budget, open_study, run_of
from cse_cli.tuning.trial import RecipeTrial
from cse_cli.tuning.worker import Worker


def tune(plan: Plan, watcher: Watcher) -> Outcome:
    """Do a plan's trials, beginning or going on with its study; other processes may do some of them meanwhile.

    Raises:
        CseError: The plan cannot be carried out; the message says why, and nothing is lost of a study that exists.
        KeyboardInterrupt: It was stopped; the study is kept, and the same plan goes on with it.
    """
    choose(plan.device)
    study = open_study(plan)
    tracker = study_run.start(study, plan)
    run_id = None if tracker is None else tracker.run_id
    places = tuple(worker_devices(plan.device, plan.workers))
    before = len(words.settled(study.get_trials(deepcopy=False)))
    shown = address(plan.storage, plan.name).shown
    watcher.opened(Opened(plan.name, shown, before, budget(study), places, run_id))
    try:
        with tracking.ending(tracker or tracking.NullTracker()):
            ran, ending = _trials(study, plan, places, watcher)
            for told in [] if tracker is None else study_run.finish(tracker, study):
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
