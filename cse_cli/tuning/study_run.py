"""The search as a run in the tracking store: its trials' runs lie below it, its plots are its artifacts."""

from __future__ import annotations

import optuna

from cse_cli import tracking
from cse_cli.tracking import tags
from cse_cli.tuning import study as studies
from cse_cli.tuning import trials as words
from cse_cli.tuning.found import Confirmation
from cse_cli.tuning.importance import importances
from cse_cli.tuning.locks import held
from cse_cli.tuning.plan import Plan
from cse_cli.tuning.sampling import pruner_name
from cse_cli.tuning.space import Knob
from cse_cli.tuning.storage import address, folder
from cse_cli.tuning.summary import summary
from registry.errors import CseError, UnknownNameError


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
