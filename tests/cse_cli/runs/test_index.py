"""Recorded runs are found again and read, also damaged, moved and read-only ones."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from cse_cli.runs import index, lock
from cse_cli.runs.events import FILE
from cse_cli.runs.index import all_runs, find_run, finished_results, read_index, read_run
from cse_cli.runs.record import folder_of
from tests.support.errors import refuses
from tests.support.records import recorded, result


def states() -> dict[str, str]:
    return {run.name: run.state for run in all_runs()}


def test_without_a_state_directory_there_are_no_runs(home: Path) -> None:
    assert all_runs() == []
    assert finished_results() == []
    assert not home.exists()


def test_runs_are_listed_newest_first_with_their_states() -> None:
    for end in ("finished", "failed", "stopped", "pruned"):
        recorded(end=end, name=end)
    alive, dead = recorded(end=None, name="alive"), recorded(end=None, name="dead")
    dead.close()
    assert states() == {
        "dead": "LOST", "alive": "RUNNING", "pruned": "PRUNED", "stopped": "STOPPED", "failed": "FAILED",
        "finished": "FINISHED",
    }  # fmt: skip
    assert list(states()) == ["dead", "alive", "pruned", "stopped", "failed", "finished"]
    run = read_run(alive.run_id)
    assert f"process {os.getpid()}" in run.host
    alive.end("failed", "the loss is nan")
    assert (read_run(alive.run_id).reason, read_run(alive.run_id).state) == ("the loss is nan", "FAILED")


def test_a_run_that_ends_while_it_is_read_is_not_lost() -> None:
    record = recorded(end=None)
    run = read_run(record.run_id)
    record.end("finished")
    assert run.state == "FINISHED"


def test_results_are_read_and_damaged_ones_named(capsys: pytest.CaptureFixture[str]) -> None:
    recorded(result(seed=1))
    recorded(result(seed=9), end="failed")
    damaged = {what: recorded(result(seed=5), name=what) for what in ("missing", "torn", "future", "empty")}
    files = {what: record.path / "result.json" for what, record in damaged.items()}
    text = files["torn"].read_text()
    files["missing"].unlink()
    files["torn"].write_text(text[:100])
    files["future"].write_text(text.replace('"schema_version": 1', '"schema_version": 99'))
    files["empty"].write_text("")
    recorded(result(), search="s", trial=3)
    recorded(None, summary="tuning")
    recorded(result(seed=2))
    assert [one.seed for one in finished_results()] == [2, 1]
    said = capsys.readouterr().err
    assert {what for what in damaged if f"({what}): result.json" in said} == set(damaged)
    assert said.count("skipping") == len(damaged)


def test_a_damaged_run_toml_is_named_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = recorded(name="good"), recorded(name="bad")
    (bad.path / "run.toml").write_text("name = ")
    assert states() == {"good": "FINISHED"}
    assert f"skipping run {bad.run_id[:8]}" in capsys.readouterr().err
    assert list(read_index()[1]) == [bad.run_id]
    (good.path / "run.toml").unlink()
    assert (states(), list(read_index()[1])) == ({}, [bad.run_id])


def test_damaged_events_are_counted() -> None:
    record = recorded(result())
    with (record.path / FILE).open("ab") as file:
        file.write(b"nonsense\n")
    (run,) = all_runs()
    assert (run.damaged, run.state) == (1, "FINISHED")
    assert run.result is not None


def test_a_run_is_found_by_the_start_of_its_id_or_its_name() -> None:
    one, two = recorded(name="one"), recorded(name="twin")
    recorded(name="twin")
    for name in (one.run_id, one.run_id[:8], one.run_id[:8].upper(), "one"):
        assert find_run(name).run_id == one.run_id
    with refuses("runs.ambiguous_run", "twin", two.run_id[:8]):
        find_run("twin")
    with refuses("runs.unknown_run", "Did you mean 'one'"):
        find_run("onee")
    with refuses("runs.unknown_run"):
        find_run("")


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the IDs of runs whose files are read, as in a new process."""
    found: list[str] = []
    read = index.read_run

    def note(run_id: str) -> index.RecordedRun:
        found.append(run_id)
        return read(run_id)

    monkeypatch.setattr(index, "read_run", note)
    return found


def again() -> list[index.RecordedRun]:
    """Read all runs as a new process does."""
    index._known.cache_clear()
    return all_runs()


def test_a_run_is_read_once_until_it_changes(reads: list[str], home: Path) -> None:
    ids = [recorded(result(seed=seed)).run_id for seed in range(3)]
    first = again()
    assert sorted(reads) == sorted(ids)
    reads.clear()
    assert (again(), reads) == (first, [])
    assert [run.result for run in again()] == [run.result for run in first]
    with (folder_of(ids[1]) / FILE).open("a") as file:
        file.write(json.dumps({"kind": "tags", "time": 1.0, "values": {"a": "b"}}) + "\n")
    assert (next(run for run in again() if run.run_id == ids[1]).tags, reads) == ({"a": "b"}, [ids[1]])
    shutil.rmtree(folder_of(ids[0]))
    assert {run.run_id for run in again()} == set(ids[1:])


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b"\xff" * 100])
def test_a_damaged_cache_is_written_anew(content: bytes, reads: list[str], home: Path) -> None:
    record = recorded(result())
    first, file = again(), home / "cache/runs.json"
    file.write_bytes(content)
    assert again() == first
    reads.clear()
    assert (again(), reads) == (first, [])
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])  # its process was killed
    assert (again(), reads) == (first, [record.run_id])
    file.write_bytes(b"0.0" + whole[whole.index(b"\n") :])  # of another version
    assert (again(), reads) == (first, [record.run_id] * 2)


def test_the_cache_keeps_only_runs_that_ended(home: Path) -> None:
    ended, alive = recorded(), recorded(end=None)
    all_runs()
    content = (home / "cache/runs.json").read_text()
    assert (ended.run_id in content, alive.run_id in content) == (True, False)
    shutil.rmtree(ended.path)
    alive.end("finished")
    all_runs()
    assert ended.run_id not in (home / "cache/runs.json").read_text()


# --- directories that are not as usual --------------------------------------------------------------------------------


def test_a_moved_state_directory_is_read_as_it_is(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = recorded(result())
    lost = recorded(end=None)
    lost.close()
    before = all_runs()
    home.rename(tmp_path / "elsewhere")
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "elsewhere"))
    assert all_runs() == before
    assert finished_results() == [before[-1].result]
    assert (find_run(record.run_id).state, find_run(lost.run_id).state) == ("FINISHED", "LOST")


def test_a_read_only_state_directory_is_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(index, "write_atomically", refuse)
    recorded(result())
    recorded(end=None).close()
    assert [run.state for run in again()] == ["LOST", "FINISHED"]
    assert not (home / "cache" / "runs.json").exists()


def test_without_locks_a_silent_run_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    record = recorded(end=None)
    assert read_run(record.run_id).state == "RUNNING"
    old = time.time() - index.SILENT_SECONDS - 60
    for path in record.path.iterdir():
        os.utime(path, (old, old))
    assert read_run(record.run_id).state == "LOST"
    record.end("finished")
