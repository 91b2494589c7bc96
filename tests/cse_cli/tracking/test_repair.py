"""A database that is lost or damaged is told in one message, and made again from the runs' folders."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cse_cli import tracking
from cse_cli.core.run_folder import RunFolder
from cse_cli.tracking import repair as repairs
from cse_cli.tracking.reader import details, finished_results, list_runs
from cse_cli.tracking.repair import damage, repair
from cse_cli.tracking.store import Store, open_store
from registry.errors import CseError
from tests.chosen import these
from tests.cse_cli.jobs.running import cse
from tests.cse_cli.tracking.stores import fresh_store, points, result


def record(home: Path, seed: int, status: tracking.Status = "FINISHED", **tags: str) -> str:
    """Record a run with all that a run records."""
    tracker = tracking.start(f"r seed {seed}", {"train.seed": str(seed)}, {"cse.recipe": "r", **tags}, experiment="e")
    own = home / "runs" / tracker.run_id
    for name in ("model", "series"):
        (own / name).mkdir(parents=True)
        (own / name / "modules.json").write_text(f"{name} {seed}")
    for step in (10, 20):
        tracker.metrics({"train/loss": seed / step, "eval/avg": 50.0 + seed}, step)
    tracker.dataset("stsb", "digest", "evaluation", "stsb")
    tracker.text("result.json", result(seed=seed).model_dump_json())
    tracker.model(own / "model", "r", {"seed": str(seed)})
    tracker.folder(own / "series", "series")
    tracker.finish(status)
    (own / "run.json").write_text("{}")
    return tracker.run_id


def everything() -> list[Any]:
    """Return all that can be read of all runs."""
    client = open_store().client
    runs = list_runs()
    inputs = [[each.dataset.name for each in client.get_run(run.run_id).inputs.dataset_inputs] for run in runs]
    losses = [points(client, run.run_id, "train/loss") for run in runs]
    return [runs, [details(run.run_id) for run in runs], [one.seed for one in finished_results()], inputs, losses]


def close(store: Store) -> None:
    """Close the database in this process, as it is in the new one of a command."""
    store.client._tracking_client.store.engine.dispose()


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def overwrite(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[8192:200_000] = b"\xff" * (200_000 - 8192)
    file.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda file: os.truncate(file, 0),
    "cut": cut,
    "overwritten": overwrite,
    "no database": lambda file: file.write_text("not a database, and longer than the hundred bytes of a header" * 3),
}


@pytest.mark.parametrize("how", these(["gone"], DAMAGE))
def test_a_lost_database_loses_no_run(how: str, home: Path) -> None:
    store = fresh_store(home)
    for seed in (1, 2, 3):
        record(home, seed)
    record(home, 4, "KILLED")
    before = everything()
    close(store)
    DAMAGE[how](home / "mlflow.db")
    *_, said = repair()
    assert said == f"{home / 'mlflow.db'} is whole; 4 runs recorded again from their folders"
    assert everything() == before
    assert list(repair()) == [f"{home / 'mlflow.db'} is whole; 0 runs recorded again from their folders"]
    kept = list(home.glob("mlflow.db.damaged-*"))
    assert len(kept) == (how not in ("gone",))
    new = record(home, 5)
    assert list_runs()[0].run_id == new


def test_results_are_there_again_where_artifacts_are_lost_as_well(home: Path) -> None:
    store = fresh_store(home)
    run_id = record(home, 1)
    close(store)
    (home / "mlflow.db").unlink()
    shutil.rmtree(home / "artifacts")
    list(repair())
    assert [one.seed for one in finished_results()] == [1]
    assert (home / "artifacts" / run_id / "artifacts" / "series" / "modules.json").read_text() == "series 1"


def test_what_has_not_been_lost_stays_as_it_is(home: Path) -> None:
    store = fresh_store(home)
    removed, kept = record(home, 1), record(home, 2)
    store.client.set_tag(kept, "note", "mine")
    store.client.delete_run(removed)
    assert list(repair()) == [f"{home / 'mlflow.db'} is whole; 0 runs recorded again from their folders"]
    (run,) = list_runs()
    assert run.tags["note"] == "mine"


def test_a_copy_is_made_of_every_so_many_runs_and_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairs, "BACKUP_EVERY", 2)
    store = fresh_store(home)
    store.client.create_experiment("somebody's own")
    first = record(home, 1)
    assert not (home / "mlflow.db.backup").exists()
    store.client.set_tag(first, "note", "only in the database")
    record(home, 2)
    assert damage(home / "mlflow.db.backup") is None
    record(home, 3)
    before = everything()
    close(store)
    cut(home / "mlflow.db")
    said = list(repair())
    assert [line.partition(":")[0].rpartition(" ")[0] for line in said[:1]] == [f"{home / 'mlflow.db'} is"]
    assert "the copy of " in said[1]
    assert said[2].endswith("1 run recorded again from their folders")
    assert everything() == before
    assert open_store().client.get_experiment_by_name("somebody's own") is not None


def test_a_damaged_database_is_never_the_copy(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh_store(home)
    record(home, 1)
    monkeypatch.setattr(repairs, "BACKUP_EVERY", 1)
    monkeypatch.setattr(repairs, "damage", lambda *_: "row 1 missing from index runs_1")
    repairs.back_up_sometimes()
    assert "is damaged: row 1 missing from index runs_1\n  → `cse doctor --repair`" in capsys.readouterr().err
    assert not list(home.glob("mlflow.db.backup*"))


def test_runs_at_work_and_other_databases_are_not_repaired(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cse_cli.tracking.test_moved import at_work

    fresh_store(home)
    at_work("f" * 32)
    with pytest.raises(CseError, match="runs are at work: ffffffff"):
        list(repair())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@tracking:5000")
    with pytest.raises(CseError, match=r"runs are recorded in http://.*tracking:5000, and cse repairs only") as caught:
        list(repair())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("how", ["cut", "overwritten", "no database"])
@pytest.mark.parametrize("command", [("runs", "ls"), ("leaderboard",), ("runs", "close", "a")])
def test_damage_is_one_message(
    how: str, command: tuple[str, ...], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = fresh_store(home)
    record(home, 1)
    close(store)
    capsys.readouterr()
    DAMAGE[how](home / "mlflow.db")
    code, out, err = cse(*command, capsys=capsys)
    assert (code, out) == (4, "")
    assert err.startswith(f"error: the tracking store sqlite:///{home}/mlflow.db is damaged: ")
    assert "`cse doctor --repair`" in " ".join(err.split())
    assert "sqlalche" not in err.lower()
    assert "Traceback" not in err


def test_a_database_that_is_gone_is_told_and_repaired(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fresh_store(home)
    run_id = record(home, 1)
    close(store)
    (home / "mlflow.db").unlink()
    for command in (("runs", "ls"), ("runs", "show", run_id), ("leaderboard",)):
        code, out, err = cse(*command, capsys=capsys)
        assert (code, out) == (4, "")
        assert " ".join(err.split()) == (
            f"error: the tracking store {home}/mlflow.db is gone; the folders of 1 run are there "
            "→ `cse doctor --repair` records them again"
        )
    code, out, _ = cse("doctor", "--repair", capsys=capsys)
    assert (code, out) == (0, f"{home}/mlflow.db is whole; 1 run recorded again from their folders\n")
    assert cse("runs", "ls", capsys=capsys)[1].count(run_id[:8]) == 1


def test_bits_that_flip_are_found(home: Path) -> None:
    fresh_store(home)
    file = home / "mlflow.db"
    assert damage(file) is None
    with closing(sqlite3.connect(file)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'runs'").fetchone()
    content = bytearray(file.read_bytes())
    content[(page - 1) * 4096] ^= 1
    file.write_bytes(content)
    assert damage(file) is not None


def test_results_of_an_earlier_version_are_put_back_and_its_trials_are_not(home: Path) -> None:
    store = fresh_store(home)
    finished, trial, cut_off = record(home, 1), record(home, 2, **{"cse.tune": "a search"}), record(home, 3, "KILLED")
    before = finished_results()
    for run_id, seed in ((finished, 1), (trial, 2), (cut_off, 3)):
        folder = RunFolder(run_id, "r", home / "r.toml", {"train": {"seed": seed}}, {}, store.uri)
        folder.create()
        (folder.path / "record.json").unlink()
        if run_id != cut_off:
            folder.close()
    shutil.rmtree(home / "runs" / trial / "model")  # a trial has none
    close(store)
    (home / "mlflow.db").unlink()
    list(repair())
    assert {run.run_id: run.status for run in list_runs()} == {finished: "FINISHED", cut_off: "KILLED"}
    assert finished_results() == before
    found = details(finished)
    assert found.metrics["eval/avg"] == 51.0
    assert found.curves["train/loss"] == [(10, 0.1), (20, 0.05)]
    assert "series/modules.json" in found.artifacts
    assert len(found.models) == 1


@pytest.mark.parametrize("column", ["experiments.artifact_location", "runs.name", "experiments.name"])
def test_text_that_is_none_is_damage(column: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fresh_store(home)
    record(home, 1)
    close(store)
    table, name = column.split(".")
    with closing(sqlite3.connect(home / "mlflow.db")) as connection, connection:
        connection.execute(f"UPDATE {table} SET {name} = CAST(x'66ff99' || {name} AS TEXT)")
    code, out, err = cse("runs", "ls", capsys=capsys)
    assert (code, out) == (4, "")
    assert "is damaged: " in " ".join(err.split())
