"""Recorded runs are found again and read, damaged ones included."""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import psutil
import pytest
from sqlalchemy import event

from cse_cli import tracking
from cse_cli.tracking.listing import summary
from cse_cli.tracking.reader import (
    SILENCE,
    _search,
    close_run,
    details,
    find_run,
    finished_results,
    is_gone,
    list_names,
    list_runs,
)
from cse_cli.tracking.store import Store
from registry.errors import CseError, UnknownNameError
from tests.cse_cli.tracking.stores import killed, result


def record(name: str, text: str | None, status: tracking.Status = "FINISHED") -> str:
    tracker = tracking.start(name, {}, {"cse.recipe": name, "cse.seed": "7"})
    if text is not None:
        tracker.text("result.json", text)
    tracker.finish(status)
    return tracker.run_id


def test_where_no_store_is_there_are_no_runs_and_none_is_made(home: Path) -> None:
    assert finished_results() == []
    assert list_runs() == []
    assert not home.exists()


def test_all_runs_of_a_database_are_read_as_mlflow_reads_them_and_in_as_few_queries_as_one(store: Store) -> None:
    def queries() -> list[str]:
        asked: list[str] = []
        database = store.client._tracking_client.store.engine
        listener = partial(_keep, asked)
        event.listen(database, "before_cursor_execute", listener)
        list_names()
        event.remove(database, "before_cursor_execute", listener)
        return asked

    record("failed", None, "FAILED")
    of_one = queries()
    for seed in range(4):
        record(f"run {seed}", result(seed=seed).model_dump_json())
    store.client.delete_run(record("deleted", None))
    alive = tracking.start("alive", {"a": "1"}, {"of": "a person"})
    assert queries() == of_one
    assert not any("params" in query or "metrics" in query for query in of_one)
    assert list_names() == list(_search(store, "attributes.start_time > 0"))
    assert [run.name for run in list_names()] == ["alive", *(f"run {seed}" for seed in (3, 2, 1, 0)), "failed"]
    assert list_names()[0].tags["of"] == "a person"
    alive.finish("FINISHED")


def _keep(asked: list[str], _connection: object, _cursor: object, statement: str, *_: object) -> None:
    asked.append(statement)


def test_results_of_finished_runs_are_read_and_damaged_ones_named(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record("one", result(seed=1).model_dump_json())
    record("failed", result(seed=9).model_dump_json(), "FAILED")
    empty = record("empty", None)
    torn = record("torn", result().model_dump_json()[:100])
    future = record("future", result().model_dump_json().replace('"schema_version":1', '"schema_version":99'))
    record("two", result(seed=2).model_dump_json())
    assert [one.seed for one in finished_results()] == [2, 1]
    said = capsys.readouterr().err
    assert f"{empty[:8]} (empty) is left out: result.json cannot be read" in said
    assert f"{torn[:8]} (torn) is left out: result.json is not a result of this version" in said
    assert f"{future[:8]} (future)" in said
    assert "schema_version" in said
    assert said.count("left out") == 3


def test_the_line_of_a_run_says_what_it_scored(store: Store) -> None:
    record("one", result().model_dump_json())
    (run,) = list_runs()
    line = summary(run)
    assert (line.recipe, line.seed, line.status, line.dev, line.seconds) == (
        "mini/simcse_en",
        "1",
        "FINISHED",
        70,
        12.5,
    )
    assert line.test == (61.0 + 63.0) / 2
    assert line.note == ""


def test_the_average_is_the_seven_tasks_where_all_are_there(store: Store) -> None:
    tasks = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
    scores = {name: {"spearman": float(i)} for i, name in enumerate(tasks)} | {"other": {"spearman": 99.0}}
    record("one", result(scores=scores, test_selected=True).model_dump_json())
    line = summary(list_runs()[0])
    assert line.test == 3.0
    assert line.note == "chosen on test data"


def test_a_run_without_result_is_listed_by_its_tags(store: Store) -> None:
    record("broken", None, "FAILED")
    line = summary(list_runs()[0])
    assert (line.recipe, line.seed, line.status, line.dev, line.test) == ("broken", "7", "FAILED", None, None)


def test_runs_come_newest_first_and_limited(store: Store) -> None:
    for name in ("a", "b", "c"):
        record(name, None, "KILLED")
        time.sleep(0.002)
    assert [run.name for run in list_runs()] == ["c", "b", "a"]
    assert [run.name for run in list_runs(limit=2)] == ["c", "b"]


def test_a_run_is_found_by_the_start_of_its_id_or_by_its_name(store: Store) -> None:
    one, two, _ = record("one", None), record("twin", None), record("twin", None)
    assert find_run(one) == find_run(one[:8]) == find_run(one[:8].upper()) == find_run("one") == one
    with pytest.raises(UnknownNameError, match="'twin' may be 2 runs") as caught:
        find_run("twin")
    assert two[:8] in str(caught.value)
    with pytest.raises(UnknownNameError, match="Did you mean 'one'"):
        find_run("onee")
    with pytest.raises(UnknownNameError, match="no run ''"):
        find_run("")


def test_details_hold_curves_in_order_and_single_values_apart(store: Store) -> None:
    tracker = tracking.start("run", {"b": "2", "a": "1"}, {})
    for step in (3, 1, 2):
        tracker.metrics({"loss": float(step)}, step)
    tracker.metrics({"final": 5.0}, 3)
    tracker.text("deep/a.txt", "x")
    tracker.finish("FINISHED")
    about = details(tracker.run_id)
    assert about.curves == {"loss": [(1, 1.0), (2, 2.0), (3, 3.0)]}
    assert about.metrics == {"final": 5.0, "loss": 3.0}
    assert list(about.params) == ["a", "b"]
    assert about.artifacts == ["deep/a.txt"]
    assert Path(about.artifact_folder, "deep/a.txt").exists()


def test_a_run_whose_process_is_gone_is_told_and_can_be_closed(store: Store) -> None:
    alive, dead = tracking.start("alive", {}, {}).run_id, killed(tracking.start("dead", {}, {}))
    assert {run.run_id: run.status for run in list_runs()} == {alive: "RUNNING", dead: "GONE"}
    assert close_run(dead).status == "KILLED"
    with pytest.raises(CseError, match="closed already: KILLED"):
        close_run(dead)
    with pytest.raises(CseError, match=f"seems alive: process {os.getpid()}"):
        close_run(alive)
    assert close_run(alive, force=True).status == "KILLED"


@pytest.mark.parametrize("tags", [{"cse.process_started": "1.0"}, {"cse.pid": "999999999"}, {"cse.host": "elsewhere"}])
def test_neither_a_clock_that_was_set_nor_another_container_makes_a_run_seem_gone(
    store: Store, tags: dict[str, str]
) -> None:
    alive = tracking.start("alive", {}, {**tags, "cse.heartbeat": "2025-01-01T00:00:00+00:00"})
    assert [run.status for run in list_runs()] == ["RUNNING"]
    with pytest.raises(CseError, match=f"run {alive.run_id[:8]} is still going on: process"):
        tracking.start("", {}, {}, alive.run_id)
    alive.finish("FINISHED")
    tracking.start("", {}, {}, alive.run_id).finish("FINISHED")


def test_a_process_id_used_again_is_another_process() -> None:
    run = "an earlier version's run, which held no lock"
    me = {"cse.host": socket.gethostname(), "cse.pid": str(os.getpid())}
    born = psutil.Process().create_time()
    assert not is_gone(run, me)
    assert not is_gone(run, {**me, "cse.process_started": f"{born:.2f}"})
    assert is_gone(run, {**me, "cse.process_started": f"{born - 100:.2f}"})


def test_on_another_machine_the_heartbeat_decides() -> None:
    now = datetime.now(UTC)
    elsewhere = {"cse.host": "elsewhere", "cse.pid": "1", "cse.heartbeat": now.isoformat(timespec="seconds")}
    assert not is_gone("", elsewhere, now + SILENCE - timedelta(minutes=1))
    assert is_gone("", elsewhere, now + SILENCE + timedelta(minutes=1))
    assert not is_gone("", {}, now)
