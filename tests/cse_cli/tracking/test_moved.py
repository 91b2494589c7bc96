"""A state directory that was moved, renamed or copied works on; databases that are not its own stay as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from cse_cli import tracking
from cse_cli.core.run_status import RunStatus
from cse_cli.tracking.reader import details, finished_results, list_runs
from cse_cli.tracking.store import open_store
from cse_cli.tracking.unsent import Change, Unsent, sync
from tests.cse_cli.tracking.stores import fresh_store, result


def record(home: Path, seed: int = 1) -> str:
    """Record a run with a result, a folder and a model."""
    tracker = tracking.start("a run", {}, {"cse.recipe": "r"}, experiment="e")
    model = home / "runs" / tracker.run_id / "model"
    model.mkdir(parents=True)
    (model / "weights").write_text("1 2 3")
    tracker.text("result.json", result(seed=seed).model_dump_json())
    tracker.model(model, "a run", {})
    tracker.finish("FINISHED")
    return tracker.run_id


def move(home: Path, monkeypatch: pytest.MonkeyPatch, place: str = "else where") -> Path:
    new = home.parent / place
    home.rename(new)
    monkeypatch.setenv("CSE_HOME", str(new))
    return new


def at_work(run_id: str) -> None:
    """Say that a run is at work, on another machine."""
    fields = {"recipe": "r", "seed": 1, "device": "cpu", "started": "2026-11-21T00:00:00+00:00", "step": 1, "steps": 2}
    RunStatus(run_id, host="another", pid=1, process_started=0.0, updated="", **fields).write()  # type: ignore[arg-type]


def test_a_moved_state_directory_works_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh_store(home)
    first = record(home)
    new = move(home, monkeypatch)
    assert [one.seed for one in finished_results()] == [1]
    assert capsys.readouterr().err == (
        f"the state directory has moved from {home} to {new}: the artifacts of 1 run are found here from now on\n"
    )
    record(new, seed=2)
    assert {one.seed for one in finished_results()} == {1, 2}
    assert details(first).artifact_folder == str(new / "artifacts" / first / "artifacts")
    (address,) = details(first).models
    downloaded = MlflowClient(open_store().uri).get_logged_model(address.removeprefix("models:/")).artifact_location
    assert downloaded.startswith((new / "artifacts" / "models").as_uri())
    assert capsys.readouterr().err == ""  # told once
    assert not home.exists()


def test_a_copy_is_a_state_directory_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_store(home)
    first = record(home)
    copy = Path(shutil.copytree(home, home.parent / "copy"))
    before = (home / "mlflow.db").read_bytes()
    monkeypatch.setenv("CSE_HOME", str(copy))
    assert details(first).artifact_folder == str(copy / "artifacts" / first / "artifacts")
    assert (home / "mlflow.db").read_bytes() == before


def test_a_link_to_the_state_directory_is_no_other_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_store(home)
    record(home)
    before = (home / "mlflow.db").read_bytes()
    (link := home.parent / "link").symlink_to(home)
    monkeypatch.setenv("CSE_HOME", str(link))
    assert len(finished_results()) == 1
    assert (home / "mlflow.db").read_bytes() == before


@pytest.mark.parametrize("other", ["a database of one's own", "artifacts kept elsewhere", "a lone database"])
def test_what_has_not_moved_stays_as_it_is(other: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if other == "a database of one's own":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}.db")
        file = Path(f"{home}.db")
    else:
        file = home / "mlflow.db"
    store = open_store()
    if other == "artifacts kept elsewhere":
        store.client.create_experiment("e", str(home.parent / "elsewhere"), {"cse.runs": "true"})
    run = tracking.start("a run", {}, {}, experiment="e")
    run.text("result.json", result().model_dump_json())
    if other == "a lone database":  # its artifacts are where they were
        (copy := home.parent / "copy").mkdir()
        file = Path(shutil.copy(file, copy / "mlflow.db"))
        monkeypatch.setenv("CSE_HOME", str(copy))
    elif other == "a database of one's own":
        home.rename(moved := home.parent / "moved")
        monkeypatch.setenv("CSE_HOME", str(moved))
    before = store.client.get_run(run.run_id).info.artifact_uri
    assert open_store().client.get_run(run.run_id).info.artifact_uri == before


def test_a_run_at_work_is_waited_for_and_results_are_read_meanwhile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_store(home)
    record(home)
    new = move(home, monkeypatch)
    at_work("f" * 32)
    before = (new / "mlflow.db").read_bytes()
    assert len(finished_results()) == 1
    assert (new / "mlflow.db").read_bytes() == before


def test_what_waits_to_be_sent_goes_to_the_moved_database(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_store(home)
    tracker = tracking.start("a run", {}, {})
    (figures := home / "figures").mkdir()
    (figures / "a.svg").write_text("<svg/>")
    Unsent(tracker.run_id).keep(open_store().uri, Change(folders={"figures": figures}, status="FINISHED", ended=1))
    new = move(home, monkeypatch)
    assert [(sent.records, sent.refused) for sent in sync()] == [(2, None)]
    (run,) = list_runs()
    assert run.status == "FINISHED"
    assert (new / "artifacts" / run.run_id / "artifacts" / "figures" / "a.svg").read_text() == "<svg/>"
    assert not home.exists()


def test_changes_that_an_earlier_version_kept_are_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fresh_store(home)
    tracker = tracking.start("a run", {}, {})
    unsent = Unsent(tracker.run_id)
    (kept := unsent.folder / "folders" / "figures").mkdir(parents=True)
    (kept / "a.svg").write_text("<svg/>")
    change = {"folders": {"figures": str(kept)}, "status": "FINISHED", "ended": 1}
    (unsent.folder / "changes.json").write_text(json.dumps({"uri": store.uri, "change": change}))
    assert [(sent.records, sent.refused) for sent in sync()] == [(2, None)]
    assert (home / "artifacts" / tracker.run_id / "artifacts" / "figures" / "a.svg").exists()
