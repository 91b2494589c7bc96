"""Runs are deleted with everything below them; running runs stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cse_cli.runs import control
from cse_cli.runs.index import all_runs
from cse_cli.runs.lock import LOCK, FileLock
from cse_cli.runs.record import RunRecord
from tests.cse_cli.runs.conftest import Runs
from tests.support.records import recorded, result


def record(name: str = "run", parent: str = "") -> RunRecord:
    """Record a finished run with a model."""
    made = recorded(result(), name=name, parent=parent)
    (made.path / "model").mkdir()
    (made.path / "model/weights").write_bytes(bytes(100_000))
    return made


def names() -> list[str]:
    return [run.name for run in reversed(all_runs())]


def test_a_run_is_deleted_with_its_files(runs: Runs, home: Path) -> None:
    one = record("one")
    record("other")
    code, out, err = runs("rm", one.run_id[:8], "--yes")
    assert (code, f"{one.run_id[:8]} one FINISHED" in err) == (0, True)
    assert out.startswith("1 run removed, 10")
    assert "MLflow" in err
    assert names() == ["other"]
    assert len(list((home / "runs").iterdir())) == 1


def test_runs_are_chosen_by_recipe_and_status_or_all(runs: Runs) -> None:
    record("one")
    recorded(end="failed", name="failed").close()
    assert runs("rm", "--status", "failed", "--yes")[1].startswith("1 run removed")
    assert names() == ["one"]
    assert runs("rm", "--recipe", "no/*", "--yes")[2].startswith("no run matches")
    assert runs("rm", "--yes")[0] == runs("rm", "one", "--all", "--yes")[0] == 2
    assert names() == ["one"]
    assert runs("rm", "--all", "--yes")[1].startswith("1 run removed")
    assert names() == []


def test_a_search_is_deleted_with_its_study(runs: Runs, home: Path) -> None:
    recorded(end="finished", name="both", search="both", summary="tuning").close()
    for search in ("both", "other"):
        (home / "tuning" / search).mkdir(parents=True)
        (home / "tuning" / search / "journal.jsonl").write_text("{}")
    assert runs("rm", "both", "--yes")[0] == 0
    assert [folder.name for folder in (home / "tuning").iterdir()] == ["other"]


def test_runs_below_it_go_with_it(runs: Runs) -> None:
    search = record("search")
    trial = record("trial", search.run_id)
    record("of the trial", trial.run_id)
    record("other")
    assert runs("rm", "search", "--yes")[1].startswith("3 runs removed")
    assert names() == ["other"]


@pytest.mark.parametrize("end", ["failed", "stopped", None])
def test_a_run_that_ended_otherwise_or_is_lost_can_be_deleted(runs: Runs, end: str | None) -> None:
    recorded(end=end, name="one").close()
    assert runs("rm", "one", "--yes")[0] == 0
    assert names() == []


def test_a_running_run_stays_and_so_do_all_others_named(runs: Runs) -> None:
    record("done")
    busy = recorded(end=None, name="busy")
    code, out, err = runs("rm", "done", "busy", "--yes")
    assert (code, out) == (2, "")
    assert f"stop it first: cse runs stop {busy.run_id[:8]}" in err
    assert names() == ["done", "busy"]


def test_a_run_that_was_resumed_meanwhile_stays(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = recorded(end="stopped", name="one")
    lock = FileLock(stopped.path / LOCK)
    assert lock.acquire()
    code, _, err = runs("rm", "one", "--yes")
    assert (code, f"run {stopped.run_id[:8]} (one) is still running" in err) == (2, True)
    lock.release()
    assert names() == ["one"]


def test_a_deletion_that_is_killed_leaves_no_half_of_a_run(
    runs: Runs, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = record("one")

    def killed(_path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(control.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        control.remove(control.find_removable(["one"]))
    monkeypatch.undo()
    monkeypatch.setenv("CSE_HOME", str(home))
    assert names() == []
    (left,) = (home / "runs").iterdir()
    assert left.name == f".{one.run_id}.removed"
    record("other")
    assert runs("rm", "other", "--yes")[0] == 0
    assert list((home / "runs").iterdir()) == []


def test_nothing_is_deleted_without_an_answer(runs: Runs) -> None:
    done = record("done")
    (done.path / "best-3.pt").write_bytes(bytes(5000))
    code, _out, err = runs("rm", "done")
    assert code == 2
    assert "add --yes" in err
    assert names() == ["done"]
    assert (done.path / "best-3.pt").exists()


def test_a_file_with_another_name_frees_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/weights").write_bytes(bytes(1000))
    assert control.size([tmp_path / "one"]) == 1000
    os.link(tmp_path / "one/weights", tmp_path / "copy")
    assert control.size([tmp_path / "one"]) == 0
    assert control.size([tmp_path / "nothing"]) == 0
