"""`cse plan`, and what `cse run` says and asks before it begins."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from cse_cli.core.console import Screen
from cse_cli.core.formatting import duration
from cse_cli.jobs import price
from cse_cli.jobs.price import is_short, operations
from cse_cli.planning.disk_space import DiskSpace
from cse_cli.planning.probe import Probe
from cse_cli.planning.scoring import ScoringTimes
from cse_cli.recipe.load import load
from cse_cli.runs.index import recorded_ids
from cse_cli.training.build import Job
from registry.errors import CseError
from tests.cse_cli.recipe.tiny_study import grid
from tests.support.command import cse
from tests.support.programs import results
from tests.support.shrunken import recipe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]

PROBE = Probe(
    device="cpu (1 threads)",
    precision="fp32",
    build=1.0,
    tokenizing=0.0,
    step=10.0,
    scoring=ScoringTimes({"dev": 0.0}, 0.0, ()),
    write=0.0,
    rows=20,
    memory=700_000_000,
    space=DiskSpace(3_000_000, 1_000_000),
    cache=0,
    seconds=9.0,
)
LONG = ("--set", "train.steps=5000")
"""5,000 steps of ten seconds are 13.9 hours."""


@pytest.fixture
def probes(monkeypatch):
    """Replace probes by planted times, and return the names of the probed recipes."""
    names = []
    monkeypatch.setattr(price, "probe", lambda job, *_: names.append(job.loaded.name) or PROBE)
    return names


@pytest.fixture
def long(monkeypatch):
    """No run is so short that it begins without a forecast."""
    monkeypatch.setattr(price, "is_short", lambda *_: False)


@pytest.fixture
def no_training(monkeypatch):
    """Let `cse run` end before it executes anything."""

    def end(labels, *_):
        return dict.fromkeys(labels, CseError("ended")), 0

    monkeypatch.setattr("cse_cli.jobs.launch._execute", end)


def plan(*words, capsys):
    return cse("plan", *map(str, words), "--device", "cpu", capsys=capsys)


def plans(out):
    document = json.loads(out)
    assert document["schema_version"] == 1
    return document["plans"]


# `cse plan`.


def test_a_real_plan_records_nothing(file, home, capsys):
    code, out, err = plan(file, capsys=capsys)
    assert code == 0
    parts = "Small [red]one · seed 3", "preparation", "training", "3 steps of 4 sentences", "evaluation", "1 probe"
    for part in parts:
        assert part in out
    for line in ("time    about ", "disk    about ", "memory  about "):
        assert line in out
    assert "1 run, one run after the other" in out
    assert "measuring steps" in err
    assert recorded_ids() == []
    assert max(len(line) for line in out.splitlines()) <= 100


def test_json(file, probes, capsys):
    code, out, _ = plan(file, "--seeds", "2", "--json", capsys=capsys)
    (one,) = plans(out)
    assert code == 0
    assert (one["runs"], one["finished"], one["memory"]) == (2, 0, 700_000_000)
    stages = {stage["name"]: stage["seconds"] for stage in one["stages"]}
    assert stages["training"] == 2 * 3 * 10
    assert sum(stages.values()) == pytest.approx(one["seconds"])
    assert probes == ["small"]


def test_finished_runs_cost_nothing(file, run, probes, capsys):
    run(file, "--seed", "0")
    _, out, _ = plan(file, "--seeds", "2", "--json", "--set", "train.steps=3", capsys=capsys)
    (one,) = plans(out)
    assert (one["runs"], one["finished"]) == (1, 1)
    assert "earlier run" in one["stages"][0]["basis"]
    assert probes == []
    code, out, _ = plan(file, "--seeds", "1", capsys=capsys)
    assert code == 0
    assert "1 run finished, 0 to run" in out
    assert "training" not in out


def test_a_study_plans_its_open_cells(folder, parts, run, probes, capsys):
    recipe(folder, parts)
    run("small.toml", "--seed", "0", "--set", "losses.info_nce.temperature=0.1")
    code, out, _ = plan(grid(folder), "--workers", "2", "--json", capsys=capsys)
    (one,) = plans(out)
    assert code == 0
    assert (one["runs"], one["finished"]) == (2, 1)
    assert one["place"] == "2 runs in parallel: cpu, cpu"
    assert one["seconds"] < sum(stage["seconds"] for stage in one["stages"])
    assert probes == ["small"]  # the temperatures take equally long


def test_what_is_missing_is_named_and_the_exit_code_is_zero(file, capsys):
    code, out, _ = plan(file, "--set", "data.file=gone.tsv", capsys=capsys)
    assert code == 0
    assert "time    unknown: see below (1 run" in out
    assert "missing file gone.tsv: " in out
    assert "→ " in out


def test_a_download_is_named_with_its_size(capsys):
    code, out, _ = plan("simcse_en", capsys=capsys)
    assert code == 0
    assert re.search(r"\d+\.\d MB: wiki1m, bert-base-uncased", out)
    assert "time    unknown until the download" in out


# `cse run`.


def test_three_lines_before_a_long_run(file, run, probes, long, no_training):
    _, out, err = run(file, "--seeds", "2")
    assert "time    about 68 s for 2 runs, one run after the other\n" in err  # 2 · (1 + 3 · 10 + 3)
    assert "disk    about " in err
    assert "memory  about 700.0 MB for each run\n" in err
    assert "time    " not in out


def test_quiet_and_json_print_no_forecast(file, run, probes, long):
    for option in ("--quiet", "--json"):
        code, _, err = run(file, option, "--again")
        assert code == 0
        assert "memory" not in err


def test_short_runs_begin_at_once(file, run, probes):
    code, _, err = run(file)
    assert (code, probes) == (0, [])
    assert "time    " not in err


def test_twelve_hours_need_yes(file, run, probes, long, home):
    code, _, err = run(file, *LONG)
    assert code == 2
    assert "this takes about 13.9 h" in err
    assert "--yes" in err
    assert recorded_ids() == []
    code, _, err = run(file, *LONG, "--quiet")
    assert code == 2


def test_yes_starts_without_a_question(file, run, probes, long, no_training):
    _, _, err = run(file, *LONG, "--yes")
    assert "time    about 13.9 h" in err
    assert "no terminal" not in err
    assert "ended" in err


@pytest.mark.parametrize(("answer", "starts"), [("y", True), ("YES", True), ("", False), ("n", False)])
def test_a_terminal_is_asked(monkeypatch, answer, starts):
    asked = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    with Screen() as screen:
        screen.live = True
        monkeypatch.setattr(screen.console, "input", lambda text, **_: asked.append(text) or answer)
        if starts:
            price._ask(50_000.0, screen)
        else:
            with pytest.raises(CseError) as refused:
                price._ask(50_000.0, screen)
            assert (refused.value.code, refused.value.exit_code) == ("jobs.not_started", 2)
    assert asked == [f"this takes about {duration(50_000.0)}. Start? [y/N] "]


def test_the_forecast_does_not_change_a_digit(file, run, long, monkeypatch):
    monkeypatch.setattr("cse_cli.planning.forecast.earlier_runs", lambda *_: None)
    measure, probed = price.probe, []
    monkeypatch.setattr(price, "probe", lambda *given: probed.append(1) or measure(*given))
    after_probe = results(run(file, "--json")[1])[0]
    monkeypatch.setattr(price, "is_short", lambda *_: True)
    without = results(run(file, "--json", "--again")[1])[0]
    assert probed == [1]
    assert after_probe.last_state == without.last_state
    assert after_probe.scores == without.scores


def test_work_of_a_recipe_by_hand():
    short = load("mini/simcse_en", ["train.steps=100", "train.batch_size=10", "data.max_length=20"]).recipe
    weights = operations(short) / (6 * 100 * 10 * 2 * 20 + 2 * len(short.evaluators) * 10_000 * 20)
    assert 1e6 < weights < 1e7  # mini_en has 3.4 million
    assert is_short(short, 1)
    assert not is_short(short, 1000)
    limited = short.model_copy(update={"evaluate": short.evaluate.model_copy(update={"limit": 256})})
    assert operations(limited) < operations(short)


def test_unmeasured_parts_are_named(file, probes, capsys, monkeypatch):
    found = replace(PROBE, scoring=ScoringTimes({"dev": 0.0}, 0.0, ("evaluator dev",)))
    monkeypatch.setattr(price, "probe", lambda *_: found)
    assert ", without evaluator dev" in plan(file, capsys=capsys)[1]


@pytest.mark.process
def test_a_probe_in_another_process(tmp_path, parts, home):
    job = Job(load(str(recipe(tmp_path, parts))), 3, "cpu")
    found = price._probe_apart(job, 0.01, 1, [])
    assert (found.rows, found.precision) == (20, "fp32")
    assert found.step > 0
    assert recorded_ids() == []
