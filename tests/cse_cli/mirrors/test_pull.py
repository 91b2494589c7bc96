"""Results of others on an MLflow server become runs here, marked as pulled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cse_cli.core.results import read_series
from cse_cli.mirrors.command import pull as pull_command
from cse_cli.mirrors.command import sync
from cse_cli.mirrors.pull import pull
from cse_cli.runs.events import read_history
from cse_cli.runs.index import finished_results, read_run
from cse_cli.runs.record import read_recipe
from tests.cse_cli.mirrors.test_mlflow import full
from tests.support.errors import refuses
from tests.support.records import recorded
from tests.support.trackers import client, there

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of a store that others have filled from their own state directory."""
    address = f"sqlite:///{tmp_path}/server.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    return address


def test_a_pulled_run_is_the_record_without_its_model(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = full()
    recorded(end="failed")
    sync()
    id_there = there(record.run_id).info.run_id
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "mine"))
    assert pull(server) == Counter(new=1)
    run = read_run(record.run_id)
    assert (run.state, run.is_result, run.about.pulled) == ("FINISHED", True, f"{server} {id_there}")
    assert [one.run_id for one in finished_results()] == [record.run_id]
    assert read_recipe(record.run_id)["train"]["steps"] == 3
    assert read_history(run.about.path).metrics["train/loss"] == {1: 1.0, 2: 0.5, 3: 1 / 3}
    assert list(read_series(run.about.path / "series")["stsb"]["gold"]) == [1.0, 2.0]
    assert not (run.about.path / "model").exists()

    assert pull(server) == Counter(known=1)
    sync()
    assert not (run.about.path / "mirrors").exists()


def test_runs_that_cannot_be_used_are_counted(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged, strange, whole = full(), full(), full()
    recorded(name="without a result")
    sync()
    place = Path(there(damaged.run_id).info.artifact_uri.removeprefix("file://"))
    result = place / "result.json"
    text = result.read_text().replace("61.004", "99.004")
    result.unlink()
    result.write_text(text)
    client().set_tag(there(strange.run_id).info.run_id, "cse.run_id", "../../" + "a" * 26)
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "mine"))
    assert pull(server) == Counter(new=1, unusable=3)
    assert [folder.name for folder in (tmp_path / "mine" / "runs").iterdir()] == [whole.run_id]


def test_own_runs_are_known(server: str) -> None:
    full()
    sync()
    assert pull(server) == Counter(known=1)


def test_without_a_server_there_is_nothing_to_pull() -> None:
    with refuses("mirrors.unusable_store", "127.0.0.1:9"):
        pull_command("http://127.0.0.1:9")
