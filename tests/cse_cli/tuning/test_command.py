"""`cse tune` as a command: output, files and errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from cse_cli.jobs.engine import Engine
from cse_cli.jobs.request import Placement
from cse_cli.recipe.files import find
from cse_cli.recipe.load import load
from cse_cli.runs.events import read_history
from cse_cli.runs.index import all_runs, finished_results
from cse_cli.runs.plans import plan_of_run
from cse_cli.runs.record import folder_of
from cse_cli.tuning.results import Search
from cse_cli.tuning.search import default_recipe, reference
from tests.support.command import cse, refused
from tests.support.records import recorded
from tests.support.shrunken import Small, recipe

Tune = Callable[..., tuple[int, str, str]]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs")]


@pytest.fixture
def file(folder: Path, parts: Small) -> str:
    return recipe(folder, parts).name


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str]) -> Tune:
    return lambda *arguments: cse("tune", *map(str, arguments), capsys=capsys)


def test_a_search_from_one_word_to_a_confirmed_recipe(file, folder, home, tune):
    code, out, err = tune(file, "--param", "temperature", "--trials", 4, "--json", "--save-best", "better.toml")
    assert code == 0, err
    document = json.loads(out)
    search = Search.model_validate({key: value for key, value in document.items() if key in Search.model_fields})
    assert [trial.state for trial in search.trials if trial.own] == ["complete"]
    assert len(search.trials) == search.config.trials == 4
    assert document["best"]["score"] == max(trial.score for trial in search.complete)
    assert "trial 0   recipe values  dev.spearman" in err
    assert "losses.info_nce.temperature: 0.01 … 0.5 on a log scale  (declared by info_nce; recipe: 0.05)" in err

    # The saved recipe has the values of the best trial.
    if not search.best.own:
        (value,) = search.best.values.values()
        assert load("better.toml").recipe.losses["info_nce"].params["temperature"] == value
    written = Path("better.toml").read_text(encoding="utf-8")
    assert written.startswith(f"# Found by `cse tune`: search {search.name}, trial {search.best.number} of 4, 20")
    assert 'extends = "small.toml"' in written

    # The same command continues the same search, which is complete.
    code, out, err = tune(file, "--param", "temperature", "--trials", 4)
    assert code == 0
    assert "all 4 trials were already done" in err
    assert out.startswith(f"{search.name} · ")
    assert "the recipe's values" in out

    assert tune("--best", search.name[:-2])[1] == out
    code, listed, _ = tune("ls")
    line = listed.splitlines()[1].split("\t")
    assert line[0] == search.name
    assert line[2:4] == ["4/4", f"{search.best.score:.2f}"]
    figures = home / "tuning" / search.name
    assert {path.name for path in figures.glob("*.png")} == {"history.png", "slice.png"}


def test_matplotlib_that_cannot_be_imported_fails_no_search(file, home, tune, monkeypatch):
    for module in ("cse_cli.tuning.plots", "cse_cli.core.plotting"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, err = tune(file, "--param", "temperature", "--trials", 1)
    assert code == 0, err
    assert "figures cannot be drawn: ModuleNotFoundError" in " ".join(err.split())
    assert "figures" not in out
    assert not list(home.glob("tuning/*/*.png"))


@pytest.mark.exhaustive
def test_a_gain_is_verified_with_new_seeds(file, tune, undrawn, monkeypatch):
    slow = ("--set", "train.learning_rate=1e-9", "--set", "train.seed=1")
    code, _, err = tune(file, "--param", "learning_rate", "--range", "0.0009..0.03", "--trials", 4, *slow)
    assert code == 0, err
    name = tune("ls")[1].splitlines()[1].split("\t")[0]
    with monkeypatch.context() as patch:
        patch.setattr("cse_cli.tuning.view.TuneScreen.stepped", stopping(at=6))
        code, _, err = tune("--best", name, "--verify-seeds", 2)
    assert (code, err.splitlines()[-1]) == (130, f"stopped. To continue: cse tune --best {name} --verify-seeds 2")
    begun = {run.name: run.run_id for run in all_runs()}
    code, out, err = tune("--best", name, "--verify-seeds", 2)
    assert code == 0, err
    assert "1/4" not in err
    assert "4/4  found values, seed 2" in err
    assert "recipe's values compared with train.learning_rate = " in out
    assert "new seeds" in out.splitlines()[-1]

    # Its runs are below the search's record, the interrupted one was resumed, and each is a result of its recipe.
    parent = next(run for run in all_runs() if run.name == name)
    names = [f"{side}, seed {seed} of {name}" for seed in (0, 2) for side in ("own", "found")]
    confirming = {run.name: run for run in all_runs() if run.about.confirms == name}
    assert sorted(confirming) == sorted(names)
    assert {run.about.parent for run in confirming.values()} == {parent.run_id}
    assert {plan_of_run(run.about).seeds for run in confirming.values()} == {(0, 2)}
    assert {run.state for run in confirming.values()} == {"FINISHED"}
    assert [confirming[name].run_id for name in names[:3]] == [begun[name] for name in names[:3]]
    assert len(finished_results()) == 4
    metrics = read_history(folder_of(parent.run_id)).metrics
    assert (parent.state, metrics["verification/seeds"]) == ("FINISHED", {2: 2.0})

    # It is stored, and its runs are not repeated.
    code, out, err = tune("--best", name, "--verify-seeds", 2)
    assert (code, err) == (0, "")
    code, out, _ = tune("--best", name, "--json")
    document = json.loads(out)
    assert document["verification"]["paired"]["dev.spearman"]["seeds"] == [0, 2]
    assert document["verdict"].startswith(("confirmed: ", "not confirmed: "))
    assert document["confirmed"] == document["verdict"].startswith("confirmed")

    # Another seed adds only its own runs, in parallel.
    given = []

    class InThisProcess(Engine):
        def __init__(self, placement):
            given.append(placement.devices)
            super().__init__(Placement(device="cpu"))

    monkeypatch.setattr("cse_cli.tuning.search.Engine", InThisProcess)
    code, _, err = tune("--best", name, "--verify-seeds", 3, "--workers", 2)
    assert code == 0, err
    assert [len(devices) for devices in given] == [2]
    assert "6/6  found values, seed 3" in err
    assert len(finished_results()) == 6
    code, _, err = tune("--best", name, "--workers", 2)
    assert (code, "remove --workers" in err) == (2, True)


def stopping(at):
    """Return a `stepped` that raises Ctrl-C at a step."""
    steps = count(1)

    def stepped(*_):
        if next(steps) == at:
            raise KeyboardInterrupt

    return stepped


BEST = ("--best", "nothing")
REFUSED = {
    "no parameter": ((), "tune.no_parameter", "--param"),
    "outside": (("--param", "temperature", "--range=-1..1"), "tune.invalid_value", "-1.0"),
    "test data": (("--param", "temperature", "--metric", "held_out.spearman"), "tune.test_metric", "--metric dev."),
    "test split set": (("--param", "temperature", "--set", "evaluators.dev.split=test"), "tune.test_metric", "'test'"),
    "no name": (("--param", "temperature", "--name", "a/b"), "tune.invalid_name", "'a/b'"),
    "two names": (("--resume", "a", "--name", "b"), "tune.exclusive_options", "--name"),
    "no search": (("--resume", "nothing"), "tune.unknown_search", "'nothing'"),
    "no best": (BEST, "tune.unknown_search", "'nothing'"),
    "best and trials": ((*BEST, "--trials", "3"), "tune.exclusive_options", "remove --trials"),
    "best and recipe": (("quickstart", *BEST), "tune.exclusive_options", "'quickstart'"),
    "list and best": (("ls", *BEST), "tune.exclusive_options", "remove --best"),
    "steps twice": (("--range", "train.steps=1..9", "--steps", "3"), "tune.exclusive_options", "remove --steps"),
    "no toml": (("--param", "temperature", "--save-best", "x.txt"), "tune.not_toml", "use x.toml"),
    "in the way": (("--param", "temperature", "--save-best", "small.toml"), "tune.file_exists", "'small.toml'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_errors_before_anything_runs(case, file, folder, home):
    with Path(file).open("a", encoding="utf-8") as text:
        text.write('[evaluators.held_out]\nname = "sts"\ndataset = "stsb_open"\nsplit = "test"\n')
    before = sorted(path.name for path in folder.iterdir())
    arguments, code, value = REFUSED[case]
    error = refused("tune", *(() if "best" in case else (file,)), *arguments)
    assert (error.code, error.exit_code) == (code, 2)
    assert value in str(error)
    assert "allow_test_selection" not in str(error)
    assert not (home / "tuning").exists()
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(("option", "value"), [("--metric", "dve.spearman"), ("--timeout", "soon"), ("--tag", "x")])
def test_errors_of_other_modules_name_the_option(option, value, file):
    error = refused("tune", file, "--param", "temperature", option, value)
    assert str(error).startswith(option)


# The recipe of `cse tune --param X` without a recipe.


def test_a_recipe_of_a_project_is_stored_with_its_path(tmp_path, monkeypatch):
    own = tmp_path / "project/recipes/mine.toml"
    own.parent.mkdir(parents=True)
    own.write_text('extends = "quickstart"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")
    assert find("mine") == own
    assert reference("mine", own) == str(own)  # the name is valid only in this directory
    assert reference("quickstart", find("quickstart")) == "quickstart"


def test_a_search_continues_in_any_directory(file, folder, tmp_path, tune, monkeypatch):
    assert tune(file, "--param", "temperature", "--trials", 1, "--name", "s")[0] == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, err = tune("--resume", "s", "--trials", 2)
    assert code == 0, err
    assert "    2/2  trial 1 " in err


def test_the_recipe_of_the_last_run_whose_file_exists(home, tmp_path, tune):
    assert (default_recipe()[0], home.exists()) == ("quickstart", False)
    _, _, err = tune("--param", "no_such_parameter")
    assert err.split("\n")[0] == "tuning quickstart (the default, because there are no runs yet)"
    own = tmp_path / "mine.toml"
    own.touch()
    recorded(recipe="mine", source=str(own))
    last = recorded(recipe="mini/simcse_en", source=str(Path("recipes/mini/simcse_en.toml").absolute()))
    recorded(recipe="deleted", source=str(tmp_path / "deleted.toml"))
    recorded(recipe="", summary="tuning", search="search")
    (home / "runs" / "half").mkdir()
    _, _, err = tune("--param", "no_such_parameter")
    assert err.split("\n")[0] == f"tuning mini/simcse_en (the recipe of the last run, {last.run_id[:8]})"
    recorded(recipe="mine", source=str(own))
    assert default_recipe()[0] == str(own)  # no name means this file
