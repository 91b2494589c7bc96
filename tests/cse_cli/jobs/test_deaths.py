"""A process that dies, fails or is stopped ends all the others within seconds, with one message; the run can go on."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from cse_cli.jobs.elastic import _end_rendezvous
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous.utils import _PeriodicTimer

from tests.support.chosen import these
from tests.support.programs import CSE, below, ended, gone, ranks, running, step, until
from tests.support.records import only_run, states
from tests.support.shrunken import recipe, small

pytestmark = pytest.mark.process

SECONDS = 20.0
"""Longest time from a death to the end of the command: 4.5 and 6.1 s on two cores with 12 processes ready to run; for
ever where nobody notices."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recipe(tmp_path, small(tmp_path), steps=20_000, evaluate_every=0, checkpoint_every=20)


def two(file: Path, *more: str, **environment: str):
    return running(*CSE, "run", file, "--device", "cpu", "--processes", 2, "--json", *more, folder=file.parent)


@pytest.mark.parametrize("rank", these([0], [0, 1]))
@pytest.mark.exhaustive
def test_a_killed_rank(rank, file):
    with two(file) as process:
        until(lambda: step() >= 40, process)
        both = ranks(process)
        assert sorted(both) == [0, 1]
        everything = below(process)
        began = time.monotonic()
        both[rank].kill()
        code, out, err = ended(process)
        took = time.monotonic() - began
        assert gone(everything)
    run = only_run()
    lines = err.rstrip().split("\n")
    assert (code, out) == (1, ""), err
    assert took < SECONDS, took
    who = f"rank {rank} of 2 (pid {both[rank].pid} on {os.uname().nodename})"
    (error,) = (line for line in lines if line.startswith("error:"))
    assert error == f"error: {who} was killed by SIGKILL (possibly out of memory)"
    assert lines[-1] == f"  → resume it: cse run --resume {run.about.short}"
    assert "Traceback" not in err
    if rank == 0:
        assert run.state == "LOST"
    else:
        assert run.state in ("FAILED", "STOPPED")

    with running(
        *CSE, "run", "--resume", run.about.short, "--device", "cpu", "--processes", 2, folder=file.parent
    ) as again:
        heard = ""
        while "resuming after step" not in heard:
            line = again.stderr.readline()
            assert line, heard
            heard += line
        assert int(heard.rpartition("resuming after step ")[2]) >= 20


def test_what_is_missing_has_the_exit_code_of_a_single_run(file):
    with two(file, "--set", "encoders.online.model=/no/such/model") as process:
        code, out, err = ended(process)
    assert (code, out) == (3, ""), err
    assert err.count("error:") == 1
    assert "/no/such/model" in err
    assert states() == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.exhaustive)]
)
def test_asked_to_stop(number, code, file):
    with two(file) as process:
        until(lambda: step() >= 40, process)
        everything = below(process)
        os.killpg(process.pid, number)  # as a terminal does: the ranks are in sessions of their own
        found, out, err = ended(process)
        assert gone(everything)
    run = only_run()
    assert (found, out) == (code, ""), err
    assert err.rstrip().split("\n")[-1] == f"stopped. To resume: cse run --resume {run.about.short}"
    assert "Traceback" not in err
    assert run.state == "STOPPED"


def test_a_signal_leaves_no_rendezvous_thread():
    name = "keeps a rendezvous alive"

    def launch() -> None:
        timer = _PeriodicTimer(timedelta(seconds=60), print)
        timer.set_name(name)
        timer.start()
        timer.itself = timer
        raise SignalException("", signal.SIGINT)

    with pytest.raises(SignalException) as caught:
        launch()
    assert name in [thread.name for thread in threading.enumerate()]
    _end_rendezvous(caught.value)
    assert name not in [thread.name for thread in threading.enumerate()]


def test_ranks_end_with_their_parent(file):
    with two(file) as process:
        until(lambda: step() >= 40, process)
        everything = below(process)
        assert len(everything) >= 2
        process.kill()
        assert gone(everything)
    assert states() == ["STOPPED"]


@pytest.mark.exhaustive
def test_a_rank_that_waits_for_ever_ends_itself(file):
    """As in a collective of NCCL: a stopped process keeps its connections, so that nothing breaks the others' wait."""
    with two(file) as process:
        until(lambda: step() >= 40, process)
        both, everything = ranks(process), below(process)
        both[1].suspend()
        time.sleep(1)  # rank 0 waits for it by now
        process.terminate()
        assert gone([both[0]], seconds=SECONDS)
        both[1].kill()
        code, out, err = ended(process)
        assert gone(everything)
    assert (code, out) == (143, ""), err
