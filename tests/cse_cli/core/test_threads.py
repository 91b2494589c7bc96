"""Threads follow what a container gives and what others leave free, unless their number was set by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cse_cli import doctor
from cse_cli.core import threads as cores


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in cores.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cores, "schedulable_cores", lambda: 8)
    monkeypatch.setattr(cores, "busy_cores", lambda: 0.2)
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
        (TWO, {}, None, 8),
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
    assert cores.usable_threads() == allowed


def test_torch_takes_no_more_than_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container(tmp_path, monkeypatch, TWO, {"pod/cpu.max": "300000 100000"})
    assert cores.limit_torch_threads() == torch.get_num_threads() == 3
    torch.set_num_threads(2)
    assert cores.limit_torch_threads() == 2, "fewer than are given stay"


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
    assert check.text.startswith("3, 8 cores available, CPU quota of 3 cores, other processes use 0.2")


@pytest.mark.parametrize(
    ("busy", "quota", "free"),
    [(0.4, "max", 8), (0.6, "max", 7), (5.9, "max", 2), (8.0, "max", 1), (5.0, "300000", 3), (6.0, "300000", 2)],
)
def test_a_process_uses_the_cores_that_others_leave_free(
    busy: float, quota: str, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container(tmp_path, monkeypatch, TWO, {"pod/cpu.max": f"{quota} 100000"})
    monkeypatch.setattr(cores, "busy_cores", lambda: busy)
    assert cores.limit_torch_threads() == torch.get_num_threads() == free


def test_only_other_processes_count_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(100.0, 7.0, 50.0), (104.0, 9.0, 58.0), (105.0, 10.0, 58.5)])
    monkeypatch.setattr(cores.CoreUse, "_now", lambda self: next(times))
    use = cores.CoreUse()
    assert use.read() == (0.5, 1.5)
    assert use.read() == (1.0, 0.0)  # the times of processes and of cores are rounded differently


def test_workers_share_the_free_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container(tmp_path, monkeypatch, TWO, {})
    monkeypatch.setattr(cores, "busy_cores", lambda: 2.0)
    own = cores.worker_environment(3, "cpu")
    assert own["OMP_NUM_THREADS"] == "2"
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert cores.thread_setting() is None, "the user did not set it"
    assert cores.free_threads() == 2, "the other workers do not count as busy"
    assert cores.worker_environment(2, "cpu")["OMP_NUM_THREADS"] == "1"


def test_workers_keep_the_number_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert cores.worker_environment(3, "cpu")["OMP_NUM_THREADS"] == "5"


def test_a_resumed_run_has_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container(tmp_path, monkeypatch, TWO, {"pod/cpu.max": "400000 100000"})
    monkeypatch.setattr(cores, "busy_cores", lambda: 6.0)
    with cores.torch_threads_restored():
        assert cores.limit_torch_threads() == 2
        assert cores.resume_torch_threads(3) == torch.get_num_threads() == 3
        assert cores.resume_torch_threads(6) == 4, "the quota"
        monkeypatch.setenv("MKL_NUM_THREADS", "1")
        assert cores.resume_torch_threads(3) == 4
    assert torch.get_num_threads() == 8


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "GOMP_SPINCOUNT=1000, KMP_BLOCKTIME=0"),
        ({"OMP_WAIT_POLICY": "active"}, "OMP_WAIT_POLICY=active"),
        ({"KMP_BLOCKTIME": "200"}, "KMP_BLOCKTIME=200"),
    ],
)
def test_the_package_limits_waiting_without_torch(given: dict[str, str], expected: str) -> None:
    program = "import sys, cse_cli.core.threads as own; print(own.waiting_setting(), 'torch' in sys.modules)"
    environment = {k: v for k, v in os.environ.items() if k not in cores.WAITING_VARIABLES}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment | given)
    assert done.stdout == f"{expected} False\n"
