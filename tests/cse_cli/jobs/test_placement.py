"""How many processes and devices a command line takes, and what it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.core.distributed import own_device
from cse_cli.core.processes import VARIABLES, ProcessRank, torchrun_rank
from cse_cli.jobs.job import Job
from cse_cli.jobs.request import Placement, RunRequest, choose_placement
from cse_cli.recipe.load import load
from tests.support.accelerators import pretend
from tests.support.command import refused
from tests.support.errors import refuses
from tests.support.shrunken import Small, recipe

TORCHRUN = dict(zip(VARIABLES, ("1", "2", "1", "127.0.0.1", "29500"), strict=True))


@pytest.fixture
def job(tmp_path: Path, parts: Small) -> Job:
    """A run with 12 sentences a batch."""
    return Job(load(str(recipe(tmp_path, parts, batch_size=12))), 3)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch):
    """Pretend that there are so many CUDA devices."""

    def there_are(count: int) -> None:
        pretend(monkeypatch, "cuda", count)

    return there_are


def placement(jobs: list[Job], device: str = "auto", processes: int | None = None, workers: int | None = None):
    return choose_placement(jobs, RunRequest(device=device, processes=processes, workers=workers))


def torchrun(monkeypatch: pytest.MonkeyPatch, **changed: str) -> None:
    for name, value in {**TORCHRUN, **changed}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("devices", "device", "processes"),
    [
        *((0, "auto", 1), (1, "auto", 1), (4, "auto", 4), (4, "cuda", 4), (4, "cpu", 1), (4, "cuda:1", 1)),
        *((5, "auto", 4), (8, "auto", 6)),  # of 12 sentences, five processes cannot have equally many
    ],
)
def test_one_run_takes_all_devices(devices, device, processes, job, cuda):
    cuda(devices)
    assert placement([job], device, None, None) == Placement(processes, device=device)
    assert placement([job], device, None, 3) == Placement(processes, workers=3, device=device)  # of data steps


@pytest.mark.parametrize(
    ("devices", "runs", "options", "expected"),
    [
        (2, 5, ("auto",), Placement(devices=("cuda:0", "cuda:1"))),
        (2, 5, ("cuda",), Placement(devices=("cuda:0", "cuda:1"))),
        (2, 5, ("auto", None, 4), Placement(devices=("cuda:0", "cuda:1", "cuda:0", "cuda:1"), workers=4)),
        (2, 5, ("auto", 2), Placement(2)),
        (2, 5, ("auto", 1), Placement(1)),
        (4, 2, ("auto",), Placement(devices=("cuda:0", "cuda:1"))),
        (0, 5, ("auto",), Placement()),  # on the CPU, runs follow each other unless asked
        (0, 5, ("auto", None, 2), Placement(devices=("auto", "auto"), workers=2)),
        (0, 2, ("cpu", None, 1), Placement(workers=1, device="cpu")),
    ],
)
def test_several_runs_take_a_device_each(devices, runs, options, expected, job, cuda):
    cuda(devices)
    assert placement([job] * runs, *options) == expected


@pytest.mark.parametrize(
    ("devices", "device", "processes", "code", "action"),
    [
        (0, "auto", 5, "jobs.indivisible_batch", "--processes 4"),
        (2, "auto", 3, "jobs.too_few_devices", "--processes 2"),
        (2, "cuda:1", 2, "jobs.too_few_devices", "--processes 1 or --device auto"),
    ],
)
def test_impossible_numbers_of_processes(devices, device, processes, code, action, job, cuda):
    cuda(devices)
    with refuses(code, f"--processes {processes}", action):
        placement([job], device, processes, None)


def test_a_process_of_torchrun_starts_none(job, cuda, monkeypatch):
    cuda(4)
    torchrun(monkeypatch)
    assert placement([job], "auto", None, None) == placement([job] * 3, "auto", None, None) == Placement()
    with refuses("jobs.option_under_torchrun", "--processes"):
        placement([job], "auto", 2, None)
    with refuses("jobs.option_under_torchrun", "--workers"):
        placement([job], "auto", None, 2)


def test_the_rank_of_torchrun_s_environment(monkeypatch):
    assert torchrun_rank() is None
    torchrun(monkeypatch)
    assert torchrun_rank() == ProcessRank(rank=1, world=2, local=1)
    monkeypatch.delenv("LOCAL_RANK")
    assert torchrun_rank() is None, "a scheduler's RANK alone means nothing"
    for name, value in (("RANK", "2"), ("RANK", "x"), ("WORLD_SIZE", "0"), ("LOCAL_RANK", "-1")):
        torchrun(monkeypatch, **{name: value})
        error = refused("run", "quickstart")
        assert (error.exit_code, f"{name}={value}" in error.message) == (2, True)


def test_each_process_has_a_device_of_its_own(cuda, monkeypatch):
    third = ProcessRank(rank=6, world=8, local=2)
    cuda(4)
    assert own_device(third, "auto") == own_device(third, "cuda") == torch.device("cuda:2")
    assert own_device(third, "cpu") is None
    with refuses("core.too_few_devices", "'cuda:1'", 8):
        own_device(third, "cuda:1")
    cuda(2)
    with refuses("core.too_few_devices", "process 2", "2 found"):
        own_device(third, "auto")
    cuda(0)
    assert own_device(third, "auto") is None
    monkeypatch.setattr("cse_cli.core.devices.world_size", lambda: 8)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 2)
    cuda(4)
    assert [choose(device, "fp32").device for device in ("auto", "cuda")] == [torch.device("cuda:2")] * 2
    assert choose("cpu").device == torch.device("cpu")
