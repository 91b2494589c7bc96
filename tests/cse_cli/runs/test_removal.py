"""Runs are removed, and what is left of them is collected; what is at work or elsewhere stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from cse_cli import tracking
from cse_cli.core.run_folder import RunFolder
from cse_cli.tracking import location
from cse_cli.tracking.files import link_folder, size_freed
from cse_cli.tracking.reader import list_names
from cse_cli.tracking.removal import find_garbage
from cse_cli.tracking.repair import repair
from cse_cli.tracking.store import Store
from tests.cse_cli.jobs.running import cse
from tests.cse_cli.tracking.stores import killed

Runs = Callable[..., tuple[int, str, str]]
WEIGHTS = 100_000


@pytest.fixture
def runs(capsys: pytest.CaptureFixture[str]) -> Runs:
    return lambda *arguments: cse("runs", *arguments, capsys=capsys)


def record(home: Path, name: str = "run", parent: str | None = None, **more: str) -> str:
    """Record a finished run with a model and a left-over checkpoint."""
    tracker = tracking.start(name, {}, {**more}, parent=parent)
    folder = RunFolder(tracker.run_id, name, Path("x.toml"), {"train": {"seed": 1}}, {}, location.uri())
    folder.create()
    (folder.path / "model").mkdir()
    (folder.path / "model" / "weights").write_bytes(bytes(WEIGHTS))
    tracker.text("resolved.toml", "a = 1")
    tracker.metrics({"eval/avg": 50.0}, 3)
    tracker.model(folder.path / "model", name, {})
    tracker.finish("FINISHED")
    folder.close()
    (folder.path / "best-3.pt").write_bytes(bytes(5000))
    return tracker.run_id


def test_a_removed_run_is_in_no_list_and_is_deleted_for_good_by_gc(store: Store, home: Path, runs: Runs) -> None:
    one, other = record(home), record(home)
    code, out, err = runs("rm", one[:8], "--yes")
    assert (code, one[:8] in err) == (0, True)
    assert out.startswith("1 run removed, ")
    assert [run.run_id for run in list_names()] == [other]
    assert not (home / "runs" / one).exists()
    assert store.client.search_logged_models(list(store.experiments()))[0].source_run_id == other
    assert (home / "artifacts" / one).exists()  # until it is collected, MLflow can restore it

    code, out, _ = runs("gc", "--dry-run")
    assert code == 0
    assert f"removed run {one[:8]} (run): 100." in out
    assert f"checkpoints of finished run {other[:8]}: 5.0 kB" in out
    assert (home / "artifacts" / one).exists()

    assert runs("gc", "--yes")[0] == 0
    assert not (home / "artifacts" / one).exists()
    assert list((home / "artifacts/models").glob("*/artifacts/model.sentence_transformer/weights")) != []
    assert len(list((home / "artifacts/models").iterdir())) == 1
    assert not list((home / "runs" / other).glob("*.pt"))
    with pytest.raises(MlflowException):
        store.client.get_run(one)
    assert store.client.get_run(other).info.status == "FINISHED"
    assert runs("gc")[1] == "nothing to delete\n"


def test_runs_below_a_removed_one_go_with_it(store: Store, home: Path, runs: Runs) -> None:
    search = record(home, "search")
    trial = record(home, "trial", search)
    record(home, "of the trial", trial)
    other = record(home, "other")
    assert runs("rm", "search", "--yes")[1].startswith("3 runs removed")
    assert [run.run_id for run in list_names()] == [other]


def test_a_run_at_work_stays_and_so_do_all_others_named(store: Store, home: Path, runs: Runs) -> None:
    done = record(home)
    at_work = tracking.start("busy", {}, {}).run_id
    code, out, err = runs("rm", done[:8], "busy", "--yes")
    assert (code, out) == (2, "")
    assert f"run {at_work[:8]} (busy) is at work\n  → `cse runs stop {at_work[:8]}`" in err
    assert len(list_names()) == 2


def test_nothing_is_removed_where_nobody_can_be_asked(store: Store, home: Path, runs: Runs) -> None:
    done = record(home)
    for command in (["rm", done[:8]], ["gc"]):
        code, _out, err = runs(*command)
        assert code == 2
        assert "--yes does it without asking" in err
    assert len(list_names()) == 1
    assert (home / "runs" / done / "best-3.pt").exists()


def test_only_folders_that_this_store_should_know_are_orphans(store: Store, home: Path) -> None:
    def folder(run_id: str, of: str) -> None:
        made = RunFolder(run_id, "r", Path("x.toml"), {"train": {"seed": 1}}, {}, of)
        made.create()
        (made.path / "finished").touch()  # without a result: `cse doctor --repair` has nothing to record

    folder("a" * 32, location.uri())
    folder("b" * 32, "http://another:5000")
    folder("c" * 32, "")  # an older version did not say
    beginning = home / "runs" / ("d" * 32)
    beginning.mkdir()
    assert [one.what for one in find_garbage()[0]] == ["folder without a run aaaaaaaa"]
    old = time.time() - 7200
    os.utime(beginning, (old, old))
    assert [one.paths[0].name[0] for one in find_garbage()[0]] == ["a", "d"]


def test_folders_of_lost_runs_stay_for_the_repair(store: Store, home: Path, runs: Runs) -> None:
    lost = record(home)
    store.client._tracking_client.store.engine.dispose()  # as in the new process of a command
    (home / "mlflow.db").unlink()
    code, out, err = runs("gc", "--yes")
    assert (code, out) == (4, "")
    assert "mlflow.db is gone; the folders of 1 run are there\n  → `cse doctor --repair`" in err

    record(home, "of the new database")
    code, out, err = runs("gc", "--yes")
    assert (code, "without a run" in out) == (0, False)
    assert "folders of 1 run that the store has lost stay\n  → `cse doctor --repair`" in err
    list(repair())
    assert lost in [run.run_id for run in list_names()]


def test_a_run_that_is_gone_can_be_removed(store: Store, home: Path, runs: Runs) -> None:
    run_id = killed(tracking.start("dead", {}, {}))
    assert runs("rm", run_id, "--yes")[0] == 0
    assert list_names() == []


def test_a_file_is_on_the_disk_once_and_free_when_its_last_name_goes(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/weights").write_bytes(bytes(1000))
    link_folder(tmp_path / "one", tmp_path / "two")
    link_folder(tmp_path / "one", tmp_path / "two")  # again
    assert (tmp_path / "one/weights").stat().st_ino == (tmp_path / "two/weights").stat().st_ino
    assert size_freed([tmp_path / "one"]) == 0
    assert size_freed([tmp_path / "one", tmp_path / "two"]) == 1000
    assert size_freed([tmp_path / "nothing"]) == 0


def test_files_are_copied_where_no_link_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "one").mkdir()
    (tmp_path / "one/weights").write_bytes(b"123")
    link_folder(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two/weights").read_bytes() == b"123"
