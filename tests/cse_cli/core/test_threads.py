"""Threads follow what a container gives, unless their number was set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cse_cli import doctor
from cse_cli.core import devices as cores


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
    assert check.text.startswith("3, 8 cores available, CPU quota of 3 cores")
