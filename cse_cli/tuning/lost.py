"""Trials whose process is gone: found, marked, and repeated with the same values. Called with the study's lock held."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

import optuna
import psutil
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from cse_cli.tracking.liveness import lives
from cse_cli.tuning import trials as words

OWNER: Final = "owner"
"""User attribute: host, process id and start time of the process that does, or did, a trial."""
_KEPT = (words.OWN, words.RUNS, words.RUN, words.SCORES)
"""What a repeated trial takes over: whether it is the recipe's own, and the runs it may go on with."""


def sign(trial: Trial) -> None:
    """Write whose trial it is, so that others can tell whether its process still lives."""
    process = psutil.Process()
    trial.set_user_attr(OWNER, [host(), process.pid, f"{process.create_time():.2f}"])
    # The heartbeat's own thread may come later than a kill; a trial without any would never count as silent.
    if (beat := getattr(trial.study._storage, "record_heartbeat", None)) is not None:
        beat(trial._trial_id)


def sweep(study: optuna.Study) -> list[tuple[int, int]]:
    """Fail the trials whose process is gone and queue them again; return numbers: the new one, the lost one.

    What is to be repeated is told from the trials themselves, so that a kill in the middle of this loses none, and
    doing it again repeats none twice.
    """
    fail_stale_trials(study)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if _is_gone(trial):
            with suppress(UpdateFinishedTrialError):
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
    repeated = []
    for trial in words.lost(study.get_trials(deepcopy=False)):
        kept = {key: trial.user_attrs[key] for key in _KEPT if key in trial.user_attrs}
        attributes = {**kept, words.RETRY_OF: trial.number, words.LOSSES: words.losses(trial)}
        study.enqueue_trial(words.fixed(trial), user_attrs=attributes)
        repeated.append((study.get_trials(deepcopy=False)[-1].number, trial.number))
    return repeated


def _is_gone(trial: FrozenTrial) -> bool:
    """Tell whether no process can be at a running trial, as far as this machine knows."""
    if OWNER not in trial.user_attrs:
        return True  # taken under the lock that is ours now, and never signed
    place, process, started = trial.user_attrs[OWNER]
    if place != host():
        return False  # its heartbeat tells
    return process == os.getpid() or not lives(process, started)


def host() -> str:
    """Return this machine, or container: where process ids mean the same processes."""
    try:
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()
