"""`cse run` where torchrun has started the processes: on one machine, and on two."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cse_cli.core.paths import runs
from cse_cli.core.results import Result
from tests.support.command import cse
from tests.support.ports import unused_port
from tests.support.programs import TORCHRUN, below, ended, gone, ranks, results, running, step, until
from tests.support.records import points, states
from tests.support.shrunken import recipe, small

pytestmark = pytest.mark.process

SAME = ["--set", "encoders.online.dropout=0.0", "--set", "train.batch_size=8"]
"""Dropout draws another mask in each process; nothing else depends on how many there are."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recipe(tmp_path, small(tmp_path), steps=8, evaluate_every=8)


def node(number: int, port: int) -> list[object]:
    """Return the command of a launcher, of two on two machines."""
    where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    return [*TORCHRUN, "--nnodes", 2, "--nproc-per-node", 1, "--node-rank", number, "--rdzv-id", "test", *where, *RUN]


RUN = ["-m", "cse_cli", "run"]
ALONE = [*TORCHRUN, "--standalone", "--nproc-per-node", 2, *RUN]


def weights(result: Result) -> dict[str, torch.Tensor]:
    (saved,) = (runs() / str(result.run_id) / "model").rglob("*.safetensors")
    return load_file(saved)


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return the largest difference of a weight."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_two_machines_train_to_the_weights_of_one_process(file, tmp_path, capsys):
    """A process each, and a home of their own: the second one needs nothing of the first one's disk."""
    port = unused_port()
    options = [*SAME, "--device", "cpu", "--json"]
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(
                running(
                    *node(number, port), file, *options, folder=tmp_path, **({"CSE_HOME": str(other)} if number else {})
                )
            )
            for number, other in enumerate([tmp_path, tmp_path / "other"])
        )
        code, out, err = ended(first)
        other_code, other_out, other_err = ended(second)
    assert (code, other_code) == (0, 0), err + other_err
    assert other_out == ""
    assert "small · Small" in err
    assert "small · Small" not in other_err
    assert not (tmp_path / "other" / "runs").exists()
    (two,) = results(out)

    code, out, err = cse("run", str(file), *options, "--again", capsys=capsys)
    assert code == 0, err
    (one,) = results(out)

    before = load_file(tmp_path / "tiny" / "model.safetensors")
    began = {name.removeprefix("bert."): weight for name, weight in before.items()}
    assert difference(weights(one), {name: began[name] for name in weights(one)}) > 1e-4, "nothing was learned"
    assert difference(weights(one), weights(two)) <= 1e-5
    losses = [points(str(each.run_id), "train/loss") for each in (one, two)]
    assert [at for at, _ in losses[0]] == [1, 8]
    assert losses[1] == [(at, pytest.approx(loss, abs=1e-5)) for at, loss in losses[0]]
    assert (one.recipe_hash, one.fingerprints) == (two.recipe_hash, two.fingerprints)
    assert states() == ["FINISHED", "FINISHED"]


@pytest.mark.exhaustive
def test_two_processes_of_one_launcher_do_seeds_together(file):
    with running(*ALONE, file, "--device", "cpu", "--seeds", "2", "--json", folder=file.parent) as process:
        code, out, err = ended(process)
    assert code == 0, err
    assert [one.seed for one in results(out)] == [0, 1]
    assert err.count("· seed 0") == 1
    assert err.count("· seed 1") == 1
    assert states() == ["FINISHED", "FINISHED"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["gone"], "unknown recipe or study 'gone'"),
        pytest.param(
            ["studies/mini/ifcl_queue_length"], "is a study, which cannot share runs", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_what_is_refused_is_said_once(options, says, file):
    with running(*ALONE, *options, folder=file.parent) as process:
        code, out, err = ended(process)
    assert code != 0
    assert out == ""
    assert err.count(says) == 1, err
    assert "in run_member" not in err


def test_a_killed_machine_ends_the_other(file, tmp_path):
    port = unused_port()
    options = ["--device", "cpu", "--set", "train.steps=20000", "--set", "train.evaluate_every=0", "--json"]
    with ExitStack() as stack:
        both = [
            stack.enter_context(running(*node(number, port), file, *options, folder=tmp_path)) for number in range(2)
        ]
        until(lambda: step() >= 20, *both)
        everything = [each for process in both for each in below(process)]
        (last,) = (one for process in both for rank, one in ranks(process).items() if rank == 1)
        last.kill()
        assert gone(everything, seconds=20)
        told = [ended(process) for process in both]
    assert all(code != 0 for code, _, _ in told)
    said = "".join(err for _, _, err in told)
    assert f"error: rank 1 of 2 (pid {last.pid} on {os.uname().nodename}) ended without a message" in said
    assert states() in (["FAILED"], ["STOPPED"])


@pytest.mark.exhaustive
def test_ctrl_c_at_the_launcher(file):
    options = ["--device", "cpu", "--set", "train.steps=20000", "--set", "train.evaluate_every=0"]
    with running(*ALONE, file, *options, folder=file.parent) as process:
        until(lambda: step() >= 20, process)
        everything = below(process)
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
        assert gone(everything)
    assert code != 0
    assert err.count("stopped. To resume: cse run --resume") == 1
    assert states() == ["STOPPED"]
