"""A process that dies, fails or is stopped ends all the others within seconds, with one message; the run can go on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from cse_cli.runs.events import read_history
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


@pytest.mark.exhaustive
def test_a_run_fails_if_another_rank_than_the_first_is_killed(file):
    with two(file) as process:
        until(lambda: step() >= 40, process)
        both, everything = ranks(process), below(process)
        assert sorted(both) == [0, 1]
        began = time.monotonic()
        both[1].kill()
        code, out, err = ended(process)
        took = time.monotonic() - began
        assert gone(everything)
    run = only_run()
    lines = err.rstrip().split("\n")
    assert (code, out) == (1, ""), err
    assert took < SECONDS, took
    (error,) = (line for line in lines if line.startswith("error:"))
    who = f"rank 1 of 2 (pid {both[1].pid} on {os.uname().nodename})"
    assert error == f"error: {who} ended without a message: killed, or crashed"
    assert lines[-1] == "  → resume from the last checkpoint with `cse run --resume`"
    assert "Traceback" not in err
    assert run.state in ("FAILED", "STOPPED")


@pytest.mark.exhaustive
def test_a_run_goes_on_after_its_first_rank_was_killed(file):
    with two(file) as process:
        until(lambda: step() >= 40, process)
        ranks(process)[0].kill()
        until(lambda: len(read_history(only_run().about.path).starts) == 2, process)
        process.terminate()
        ended(process)
    first, second = read_history(only_run().about.path).starts
    assert (first.data["step"], second.data["step"] >= 20) == (0, True)


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
