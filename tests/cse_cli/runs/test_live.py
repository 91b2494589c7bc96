"""Runs at work: seen on one screen, stopped and listened to from another process, taken up again where they stopped."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from cse_cli.core import run_log
from cse_cli.core.console import RunInfo, SilentObserver
from cse_cli.core.run_folder import RunFolder, find
from cse_cli.core.run_status import RunStatus, read_status
from cse_cli.recipe.load import load
from cse_cli.tracking import at_work, live_view
from cse_cli.tracking.reader import list_runs
from cse_cli.tracking.store import Store
from cse_cli.training.build import Job
from cse_cli.training.run import execute
from registry.errors import StopRequested
from tests.cse_cli.jobs.running import cse
from tests.shrunken import Small, recipe

Runs = Callable[..., tuple[int, str, str]]
HERE = socket.gethostname().partition(".")[0]


@pytest.fixture
def runs(capsys: pytest.CaptureFixture[str]) -> Runs:
    return lambda *arguments: cse("runs", *arguments, capsys=capsys)


def at_work_now(run_id: str, **changes: object) -> RunStatus:
    """Leave the files of a run that is at work in this process."""
    RunFolder(run_id, "mini/simcse_en", Path("x.toml"), {"train": {"seed": 3}}).create()
    info = RunInfo("mini/simcse_en", "SimCSE", 3, "cuda:1 (NVIDIA H100)", "bf16", run_id, "/home", 2000, 0, 10)
    made = replace(RunStatus.of(info), step=1200, seconds_left=90.0, metric="dev.spearman", dev=70.127, **changes)
    made.write()
    return made


def gone(run_id: str) -> RunStatus:
    return at_work_now(run_id, pid=999_999_999)


# --- one screen -------------------------------------------------------------------------------------------------------


def test_a_pipe_gets_one_table(runs):
    at_work_now("aaaa1111", last_line="step 1200/2000  loss 0.5")
    gone("bbbb2222")
    code, out, err = runs("ls", "--live")
    head, *lines = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert head == ["run", "recipe", "seed", "place", "step", "dev", "left", "last line"]
    assert sorted(lines) == [
        [
            "aaaa1111",
            "mini/simcse_en",
            "3",
            f"{HERE} cuda:1",
            "1,200/2,000",
            "70.13",
            "90 s",
            "step 1200/2000 loss 0.5",
        ],
        ["bbbb2222", "mini/simcse_en", "3", f"{HERE} cuda:1", "1,200/2,000", "70.13", "gone", ""],
    ]


def test_a_program_gets_one_document(runs):
    status = at_work_now("aaaa1111")
    gone("bbbb2222")
    document = json.loads(runs("ls", "--live", "--json")[1])
    found = {run["run_id"]: run for run in document["runs"]}
    assert document["schema_version"] == 1
    assert {run_id: run["gone"] for run_id, run in found.items()} == {"aaaa1111": False, "bbbb2222": True}
    assert (found["aaaa1111"]["pid"], found["aaaa1111"]["dev"]) == (status.pid, 70.127)


def test_nothing_at_work(runs, home):
    assert runs("ls", "--live") == (0, "\t".join(live_view._COLUMNS) + "\n", "no run is at work\n")
    assert json.loads(runs("ls", "--live", "--json")[1]) == {"schema_version": 1, "runs": []}
    assert not home.exists()


def screen(statuses: list[RunStatus], height: int = 24, width: int = 80) -> list[str]:
    written = io.StringIO()
    Console(file=written, width=width, height=height).print(live_view.live_screen(statuses, height))
    return written.getvalue().rstrip("\n").split("\n")


def test_a_screen_of_80_columns_has_every_run_and_what_it_said_last():
    long = "step 120,000/2,000,000  loss 0.0512  dev 70.13  1,234 sentences/s  172,800 s left [b]"
    one = at_work_now("aaaa1111", host="gpu-node-07.cluster.example.org", last_line=long)
    lines = screen([one, gone("bbbb2222")])
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("1 run at work, 1 gone · ")
    assert lines[0].endswith(" · q ends")
    assert lines[1].split() == ["run", "recipe", "seed", "place", "step", "dev", "left"]
    assert lines[2].split() == [
        "aaaa1111",
        "mini/simcse_en",
        "3",
        "gpu-node-07",
        "cuda:1",
        "1,200/2,000",
        "70.13",
        "90",
        "s",
    ]
    assert lines[3].endswith("gone")
    assert lines[5].startswith("aaaa1111  step 120,000/2,000,000  loss")
    assert lines[5].endswith("…")


def test_a_low_screen_says_how_many_more_there_are():
    lines = screen([at_work_now(f"{number}aaa1111") for number in range(9)], height=8)
    assert len(lines) <= 8
    assert lines[-1] == "and 5 more"


def test_a_run_without_a_word_for_long_says_so():
    late = replace(at_work_now("aaaa1111"), updated=(datetime.now(UTC) - timedelta(minutes=12)).isoformat())
    assert screen([late])[2].endswith("silent 12 min")


def test_an_empty_screen():
    assert screen([])[0].startswith("0 runs at work · ")


# --- stop -------------------------------------------------------------------------------------------------------------


def test_asked_without_waiting(runs, home):
    at_work_now("aaaa1111")
    at_work_now("bbbb2222")
    assert runs("stop", "aaaa", "bb", "--no-wait") == (
        0,
        "aaaa1111 mini/simcse_en seed 3: asked to stop\nbbbb2222 mini/simcse_en seed 3: asked to stop\n",
        "",
    )
    assert all((home / "runs" / run_id / "stop").exists() for run_id in ("aaaa1111", "bbbb2222"))


def test_what_cannot_be_stopped_is_told_and_nothing_is_asked(runs, home):
    at_work_now("aaaa1111")
    gone("bbbb2222")
    at_work_now("cccc3333")
    find("cccc3333").close()
    RunFolder("dddd4444", "r", Path("x.toml"), {"train": {"seed": 3}}).create()
    for asked, says in {
        "aaaa1112": "no run with an id starting with 'aaaa1112' in",
        "bbbb": "run bbbb2222 is not at work: its process 999999999 is gone\n  → `cse run --resume bbbb2222` goes on",
        "cccc": "run cccc3333 is finished\n  → `cse runs show cccc3333` shows its scores",
        "dddd": "run dddd4444 is not at work\n  → `cse run --resume dddd4444` goes on with it",
    }.items():
        code, out, err = runs("stop", "aaaa", asked)
        assert (code, out) == (2, "")
        assert says in err
    assert "Did you mean 'aaaa1111'?" in runs("stop", "aaaa1112")[2]
    assert not list((home / "runs").glob("*/stop"))


def test_waiting_tells_how_each_ended(runs, home, monkeypatch):
    for run_id in ("aaaa1111", "bbbb2222"):
        at_work_now(run_id)

    def later(_seconds: float) -> None:
        find("bbbb2222").close()
        (home / "runs" / "aaaa1111" / "status.json").unlink(missing_ok=True)

    monkeypatch.setattr(at_work.time, "sleep", later)
    code, out, _ = runs("stop", "aaaa", "bbbb")
    assert code == 0
    assert out == "aaaa1111 mini/simcse_en seed 3: stopped\nbbbb2222 mini/simcse_en seed 3: had come to its end\n"


def test_waiting_has_an_end(runs, monkeypatch):
    at_work_now("aaaa1111")
    monkeypatch.setattr(at_work.wait_until_stopped, "__defaults__", (0.0,))
    code, out, err = runs("stop", "aaaa")
    assert (code, out) == (1, "")
    assert err.startswith(
        "asked; waiting 0 s at most\nerror: still at work after 0 s: aaaa1111 mini/simcse_en seed 3\n  → each ends"
    )


# --- logs -------------------------------------------------------------------------------------------------------------


def test_the_log_is_printed_as_it_is(runs, home):
    at_work_now("aaaa1111")
    (home / "runs/aaaa1111/log.txt").write_text("one [b]\nzwei ä\n", encoding="utf-8")
    assert runs("logs", "aa") == (0, "one [b]\nzwei ä\n", "")


def test_following_ends_with_the_run_and_prints_its_last_words(runs, home, monkeypatch):
    at_work_now("aaaa1111")
    log = home / "runs/aaaa1111/log.txt"
    log.write_text("one\n", encoding="utf-8")

    def later(_seconds: float) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write("finished\n")
        find("aaaa1111").close()

    monkeypatch.setattr(at_work.time, "sleep", later)
    assert runs("logs", "aa", "-f") == (0, "one\nfinished\n", "")


def test_following_ends_with_ctrl_c(runs, home, monkeypatch):
    at_work_now("aaaa1111")
    (home / "runs/aaaa1111/log.txt").write_text("one\n", encoding="utf-8")

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(at_work.time, "sleep", interrupt)
    assert runs("logs", "aa", "--follow") == (0, "one\n", "")


def test_a_run_without_a_log_and_no_run(runs):
    at_work_now("aaaa1111")
    code, out, err = runs("logs", "aaaa")
    assert (code, out) == (3, "")
    assert "run aaaa1111 has no log\n  → a log begins with the first step" in err
    assert runs("logs", "x")[0] == 2


# --- a real run -------------------------------------------------------------------------------------------------------


class AsksToStop(SilentObserver):
    """Asks its run to stop once it is told of a step."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.run_id = ""

    def started(self, run: RunInfo) -> None:
        self.run_id = run.run_id

    def stepped(self, step: int, loss: float, rate: float) -> None:
        if step == self.at:
            (find(self.run_id).path / "stop").touch()


@pytest.mark.exhaustive
def test_a_stopped_run_is_recorded_as_killed_and_goes_on_as_if_nothing_had_happened(
    store: Store, parts: Small, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    loaded = load(str(recipe(tmp_path, parts, steps=40, evaluate_every=0, checkpoint_every=10)))
    monkeypatch.setattr(run_log, "STATUS_EVERY", 0.0)
    asks = AsksToStop(at=20)
    with pytest.raises(StopRequested) as caught:
        execute(Job(loaded, 3, "cpu"), asks)
    assert caught.value.next_action == f"go on with: cse run --resume {asks.run_id[:8]}"
    assert [(run.run_id, run.status) for run in list_runs()] == [(asks.run_id, "KILLED")]
    assert read_status(asks.run_id) is None

    broken = execute(Job(loaded, 3, "cpu", find(asks.run_id)), SilentObserver())
    whole = execute(Job(loaded, 3, "cpu"), SilentObserver())
    assert (broken.run_id, broken.last_state) == (asks.run_id, whole.last_state)
    assert broken.scores == whole.scores
    told = (home / "runs" / asks.run_id / "log.txt").read_text(encoding="utf-8")
    assert "stopped; go on with: cse run --resume" in told
    assert "going on after step 20" in told or "going on after step 10" in told
    assert told.rstrip().endswith("finished")
    assert {"status.json", "stop", "checkpoint.pt"}.isdisjoint(path.name for path in find(asks.run_id).path.iterdir())
