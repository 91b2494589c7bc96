"""The number of threads follows from the machine and the settings of the user. Only `cse` sets how threads wait."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cse_cli.cli import doctor
from cse_cli.core import threads as cores


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in cores.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cores, "schedulable_cores", lambda: 8)
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    yield
    torch.set_num_threads(before)


def container(folder: Path, monkeypatch: pytest.MonkeyPatch, own: str, files: dict[str, str]) -> None:
    monkeypatch.setattr(cores, "_OWN", folder / "own")
    monkeypatch.setattr(cores, "_GROUPS", folder)
    (folder / "own").write_text(own)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


TWO = "0::/pod/box\n"
ONE = "4:memory:/pod\n3:cpu,cpuacct:/pod\n"


@pytest.mark.parametrize(
    ("own", "files", "quota", "allowed"),
    [
        (TWO, {"pod/box/cpu.max": "250000 100000\n"}, 2.5, 2),
        (TWO, {"pod/box/cpu.max": "max 100000\n"}, None, 8),
        (TWO, {"pod/cpu.max": "300000 100000\n", "pod/box/cpu.max": "max 100000\n"}, 3.0, 3),
        (TWO, {"pod/cpu.max": "50000 100000\n"}, 0.5, 1),
        (TWO, {"pod/cpu.max": "9900000 100000\n"}, 99.0, 8),
        (ONE, {"cpu/pod/cpu.cfs_quota_us": "400000", "cpu/pod/cpu.cfs_period_us": "100000"}, 4.0, 4),
        (ONE, {"cpu/pod/cpu.cfs_quota_us": "-1", "cpu/pod/cpu.cfs_period_us": "100000"}, None, 8),
        ("", {}, None, 8),
    ],
)
def test_the_quota_of_a_container_is_found(
    own: str, files: dict[str, str], quota: float | None, allowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container(tmp_path, monkeypatch, own, files)
    assert cores.core_quota() == quota
    assert cores.usable_threads() == cores.limit_torch_threads() == torch.get_num_threads() == allowed
    torch.set_num_threads(1)
    assert cores.limit_torch_threads() == 1


def test_a_number_set_by_hand_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container(tmp_path, monkeypatch, TWO, {"pod/cpu.max": "300000 100000"})
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert cores.limit_torch_threads() == 8
    (check,) = [check for check in doctor.examine() if check.about == "threads"]
    assert check.state == "note"
    assert check.text == "8, set by OMP_NUM_THREADS=8, 8 cores available, CPU quota of 3 cores"


def test_doctor_says_how_many_a_run_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container(tmp_path, monkeypatch, TWO, {"pod/cpu.max": "300000 100000"})
    (check,) = [check for check in doctor.examine() if check.about == "threads"]
    assert check.state == "ok"
    assert check.text == "3, 8 cores available, CPU quota of 3 cores. To change the number, set OMP_NUM_THREADS"


def test_workers_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container(tmp_path, monkeypatch, TWO, {"pod/cpu.max": "600000 100000"})
    own = cores.worker_environment(3, "cpu")
    assert own["OMP_NUM_THREADS"] == "2"
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert cores.thread_setting() is None, "the user did not set it"
    assert cores.usable_threads() == 2
    assert cores.worker_environment(2, "cpu")["OMP_NUM_THREADS"] == "1"
    assert cores.resume_torch_threads(5) == 5, "a run that began with more threads"


def test_workers_keep_the_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "OMP_NUM_THREADS": "5",
        "OMP_WAIT_POLICY": "active",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "9",
    }.items():
        monkeypatch.setenv(name, value)
    assert cores.worker_environment(3, "cpu") == dict(os.environ)


def test_a_resumed_run_has_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container(tmp_path, monkeypatch, TWO, {"pod/cpu.max": "400000 100000"})
    with cores.torch_threads_restored():
        assert cores.limit_torch_threads() == 4
        assert cores.resume_torch_threads(3) == torch.get_num_threads() == 3
        assert cores.resume_torch_threads(6) == 4, "the quota"
        monkeypatch.setenv("MKL_NUM_THREADS", "1")
        assert cores.resume_torch_threads(3) == 4
    assert torch.get_num_threads() == 8


NAMES = (*cores.WAITING_VARIABLES, *cores.KERNELS)


def output(program: str, given: dict[str, str]) -> str:
    """Return what a program prints if the user sets no variable of OpenMP and oneDNN but these."""
    environment = {k: v for k, v in os.environ.items() if k not in NAMES}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment | given, check=True
    ).stdout


def test_an_import_changes_nothing_of_the_program() -> None:
    program = "import os; before = dict(os.environ); import cse_cli; print(dict(os.environ) == before)"
    assert output(program, {}) == "True\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "GOMP_SPINCOUNT=1000 KMP_BLOCKTIME=0 ONEDNN_PRIMITIVE_CACHE_CAPACITY=64"),
        ({"OMP_WAIT_POLICY": "active"}, "OMP_WAIT_POLICY=active ONEDNN_PRIMITIVE_CACHE_CAPACITY=64"),
        (
            {"KMP_BLOCKTIME": "200", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "9"},
            "KMP_BLOCKTIME=200 ONEDNN_PRIMITIVE_CACHE_CAPACITY=9",
        ),
    ],
)
def test_the_command_limits_libraries_before_torch_is_imported(given: dict[str, str], expected: str) -> None:
    program = (
        "import os, sys, cse_cli.app\n"
        "from cse_cli.core.threads import KERNELS, WAITING_VARIABLES as names\n"
        "names = (*names, *KERNELS)\n"
        "def run(): print(*(f'{n}={os.environ[n]}' for n in names if n in os.environ), 'torch' in sys.modules)\n"
        "cse_cli.app.run = run\n"
        "from cse_cli.__main__ import main\n"
        "main()\n"
    )
    assert output(program, given) == f"{expected} False\n"


def test_processes_that_a_program_starts_limit_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    assert (cores.WAITING | cores.KERNELS).items() <= cores.worker_environment(1, "cpu").items()
    assert not set(NAMES) & set(os.environ)
