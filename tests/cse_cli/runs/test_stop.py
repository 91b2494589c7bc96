"""Runs are stopped and their logs followed from another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.runs import stop
from tests.cse_cli.runs.conftest import Runs
from tests.support.records import recorded, result


def stops(home: Path) -> set[str]:
    return {path.parent.name for path in (home / "runs").glob("*/stop")}


def test_a_request_without_waiting(runs: Runs, home: Path) -> None:
    one, two = recorded(end=None, name="one"), recorded(end=None, name="two")
    code, out, err = runs("stop", one.run_id[:8], "two", "--no-wait")
    assert (code, err) == (0, "")
    assert out == f"{one.run_id[:8]} one: requested to stop\n{two.run_id[:8]} two: requested to stop\n"
    assert stops(home) == {one.run_id, two.run_id}


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("finished", "is not running: FINISHED\n  → cse runs show"),
        ("failed", "is not running: FAILED\n  → cse run --resume"),
        (None, "is not running: LOST\n  → cse run --resume"),
    ],
)
def test_what_is_not_running_is_named_and_nothing_stops(runs: Runs, home: Path, end: str | None, message: str) -> None:
    recorded(end=None, name="one")
    recorded(result(), end=end, name="other").close()
    code, out, err = runs("stop", "one", "other")
    assert (code, out, stops(home)) == (2, "", set())
    assert message in err


def test_waiting_prints_how_each_ended(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = recorded(end=None, name="one"), recorded(end=None, name="two")

    def later(_seconds: float) -> None:
        one.end("stopped")
        two.end("finished")

    monkeypatch.setattr(stop.time, "sleep", later)
    code, out, _ = runs("stop", "one", "two")
    assert (code, out) == (0, f"{one.run_id[:8]} one: stopped\n{two.run_id[:8]} two: finished\n")


def test_waiting_has_an_end(runs: Runs, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(end=None, name="one")
    monkeypatch.setattr(stop.wait_until_stopped, "__defaults__", (0.0,))
    code, out, err = runs("stop", "one")
    assert (code, out) == (1, "")
    assert f"still running after 0 s: {run.run_id[:8]} one" in err
    assert stops(home) == {run.run_id}


# --- logs -------------------------------------------------------------------------------------------------------------


def test_the_log_is_printed_as_it_is(runs: Runs) -> None:
    run = recorded(name="one")
    (run.path / "log.txt").write_text("one [b]\nzwei ä\n", encoding="utf-8")
    assert runs("logs", "one") == (0, "one [b]\nzwei ä\n", "")


def test_following_ends_with_the_run_after_its_last_lines(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(end=None, name="one")
    (run.path / "log.txt").write_text("one\n")

    def later(_seconds: float) -> None:
        with (run.path / "log.txt").open("a") as file:
            file.write("finished\n")
        run.end("finished")

    monkeypatch.setattr(stop.time, "sleep", later)
    assert runs("logs", "one", "-f") == (0, "one\nfinished\n", "")


def test_following_ends_with_ctrl_c(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(end=None, name="one")
    (run.path / "log.txt").write_text("one\n")

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stop.time, "sleep", interrupt)
    assert runs("logs", "one", "--follow") == (0, "one\n", "")


# --- a real run -------------------------------------------------------------------------------------------------------
