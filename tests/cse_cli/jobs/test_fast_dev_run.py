"""`cse run --fast-dev-run`: short, marked, and never a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.jobs.request import PAIRS, RunRequest, reductions
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.runs.index import all_runs, finished_runs
from cse_cli.runs.listing import note
from cse_cli.runs.record import read_recipe
from tests.cse_cli.recipe.tiny_study import grid
from tests.support.command import cse
from tests.support.records import only_run
from tests.support.shrunken import recipe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]


def short(name: str, *given: str) -> dict[str, object]:
    return {one.path: one.value for one in reductions(load(name, given).recipe, given)}


def test_settings_become_short_unless_you_set_them(tmp_path, parts):
    whole = {"evaluate.limit": 256, "train.steps": 20, "train.evaluate_every": 10, "data.limit": 2000}
    assert short("quickstart") == whole
    own = short("quickstart", "train.steps=40", "data.limit=100")
    assert own == {"evaluate.limit": 256, "train.evaluate_every": 10}
    assert short("bert_mean_en") == {"evaluate.limit": PAIRS}  # no training
    assert short("quickstart", "train.batch_size=4096")["data.limit"] == 4096
    path = recipe(tmp_path, parts, steps=3, evaluate_every=2)  # a short recipe does not become longer
    text = path.read_text().replace("[evaluators.dev]", "limit = 7\n[evaluators.dev]")
    path.write_text(text.replace("[encoders.online]", "limit = 12\n[encoders.online]"))
    assert short(str(path)) == dict(zip(whole, (7, 3, 2, 12), strict=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", all_recipes())
def test_every_recipe_is_valid_when_short(name):
    (job,) = RunRequest(recipes=[name], fast_dev_run=True).jobs()
    assert job.loaded.recipe.evaluate.limit is not None


def test_the_run_is_marked_and_not_a_result(file, run, capsys):
    code, _, err = run(file, "--fast-dev-run", "--set", "evaluate.limit=5")
    assert code == 0
    found = only_run()
    assert (found.about.tags, found.about.limited) == ({"fast_dev_run": "true"}, True)
    assert "fast_dev_run=true, scored on a part of the data" in note(found)
    assert finished_runs() == []
    assert read_recipe(found.run_id)["evaluate"]["limit"] == 5
    assert "these scores are not results" in err
    assert f"cse plan {Path(file).absolute()}" in err.replace("\n", " ")
    assert "add seeds" not in err
    code, out, _ = cse("leaderboard", capsys=capsys)
    assert code == 0
    assert "Small" not in out


def test_a_full_run_is_another_experiment(file, run):
    run(file, "--fast-dev-run")
    code, _, err = run(file)
    assert code == 0
    assert "finished:" not in err
    assert [one.is_result for one in finished_runs()] == [True]
    assert len({one.about.experiment for one in all_runs()}) == 2


def test_every_cell_of_a_study_is_short(folder, parts, run):
    recipe(folder, parts, steps=30)
    code, _, err = run(grid(folder, "[0.05, 0.1]"), "--fast-dev-run", "--set", "train.evaluate_every=0")
    assert code == 0
    assert "leaderboard" not in err
    found = all_runs()
    assert len(found) == 2
    for one in found:
        written = read_recipe(one.run_id)
        assert (written["train"]["steps"], written["train"]["evaluate_every"]) == (20, 0)
        assert written["evaluate"]["limit"] == PAIRS
        assert one.about.tags == {"fast_dev_run": "true"}
    assert finished_runs() == []
