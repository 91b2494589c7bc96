"""MLflow's real migrations, which all other tests replace by a copy of a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.mirrors import store
from cse_cli.mirrors.command import sync
from tests.cse_cli.mirrors.test_mlflow import full
from tests.support.databases import migrate
from tests.support.trackers import points, there


@pytest.mark.process
def test_mlflow_creates_a_database_that_holds_a_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def real(new: Path) -> None:
        calls.append(new)
        assert not new.exists() or new.stat().st_size == 0  # no copy of a database with tables
        migrate(new)

    monkeypatch.setattr(store, "migrate", real)  # instead of `quick_databases`
    record = full()
    sync()
    assert len(calls) == 1
    assert (home / "mlflow.db").exists()
    assert there(record.run_id).info.status == "FINISHED"
    assert points(record.run_id, "train/loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
