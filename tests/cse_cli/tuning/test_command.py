"""`cse tune` from the outside: what is asked, what is refused, what is printed and left behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from cse_cli.jobs.executor import SerialExecutor
from cse_cli.recipe.load import load
from cse_cli.runs.events import read_history
from cse_cli.runs.index import all_runs, finished_results
from cse_cli.runs.record import folder_of
from cse_cli.tuning.results import Search
from tests.cse_cli.jobs.running import cse
from tests.shrunken import Small, recipe

Tune = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("few_pairs")


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
    assert len(search.trials) == search.budget == 4
    assert document["best"]["score"] == max(trial.score for trial in search.complete)
    assert "trial 0   the recipe's own  dev.spearman" in err
    assert "losses.info_nce.temperature: 0.01 … 0.5 on a log scale  (declared by info_nce; now 0.05)" in err

    # The saved recipe is the one that was tried, and says so.
    if not search.best.own:
        saved = load("better.toml")
        assert saved.recipe.losses["info_nce"].params["temperature"] == search.best.values[search.parameters[0].name]
    written = Path("better.toml").read_text(encoding="utf-8")
    assert written.startswith(f"# Found by `cse tune`: study {search.study}, trial {search.best.number} of 4, 20")
    assert 'extends = "small.toml"' in written

    # The same command goes on with the same study, here to nothing more.
    code, out, err = tune(file, "--param", "temperature", "--trials", 4)
    assert code == 0
    assert "all 4 trials were done before" in err
    assert out.startswith(f"{search.study} · ")
    assert "over the recipe's own" in out or "the recipe's own values" in out

    # Looked at by the beginning of its name, and in the list.
    beginning = search.study[:-2]
    assert tune("--best", beginning)[1] == out
    code, listed, _ = tune("ls")
    line = listed.splitlines()[1].split("\t")
    assert line[0] == search.study
    assert line[2:4] == ["4/4", f"{search.best.score:.2f}"]
    figures = home / "tuning" / search.study
    assert {path.name for path in figures.glob("*.png")} == {"history.png", "slice.png"}


def test_matplotlib_that_cannot_be_imported_fails_no_search(file, home, tune, monkeypatch):
    monkeypatch.delitem(sys.modules, "cse_cli.tuning.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    code, out, err = tune(file, "--param", "temperature", "--trials", 1)
    assert code == 0, err
    assert "plots are missing: ModuleNotFoundError" in " ".join(err.split())
    assert "figures" not in out
    assert not list(home.glob("tuning/*/*.png"))


@pytest.mark.exhaustive
def test_a_gain_is_put_to_the_test_with_fresh_seeds(file, tune, undrawn, monkeypatch):
    code, _, err = tune(
        file, "--param", "learning_rate", "--range", "0.0009..0.03", "--trials", 4, "--set", "train.learning_rate=1e-9"
    )
    assert code == 0, err
    study = tune("ls")[1].splitlines()[1].split("\t")[0]
    with monkeypatch.context() as patch:
        patch.setattr("cse_cli.tuning.live.TuneScreen.stepped", stopping(at=6))
        code, _, err = tune("--best", study, "--confirm", 2)
    assert (code, err.splitlines()[-1]) == (130, f"stopped; cse tune --best {study} --confirm 2 goes on")
    begun = {run.name: run.run_id for run in all_runs()}
    code, out, err = tune("--best", study, "--confirm", 2)
    assert code == 0, err
    assert "1/4" not in err
    assert "4/4  found values, seed 1" in err
    assert "own values against train.learning_rate = " in out
    assert "fresh seeds" in out.splitlines()[-1]

    # Its runs lie below the search's, the interrupted one was taken up again, and each is a result of its recipe.
    parent = next(run for run in all_runs() if run.name == study)
    names = [f"{side}, seed {seed} of {study}" for seed in (0, 1) for side in ("own", "found")]
    confirming = {run.name: run for run in all_runs() if run.about.confirms == study}
    assert sorted(confirming) == sorted(names)
    assert {run.about.parent for run in confirming.values()} == {parent.run_id}
    assert {run.about.plan.seeds for run in confirming.values()} == {(0, 1)}
    assert {run.state for run in confirming.values()} == {"FINISHED"}
    assert [confirming[name].run_id for name in names[:3]] == [begun[name] for name in names[:3]]
    assert len(finished_results()) == 4
    metrics = read_history(folder_of(parent.run_id)).metrics
    assert (parent.state, metrics["confirmation/seeds"]) == ("FINISHED", {2: 2.0})

    # It is remembered, and its runs are not repeated.
    code, out, err = tune("--best", study, "--confirm", 2)
    assert (code, err) == (0, "")
    code, out, _ = tune("--best", study, "--json")
    document = json.loads(out)
    assert document["confirmation"]["paired"]["dev.spearman"]["seeds"] == [0, 1]
    assert document["verdict"].startswith(("confirmed: ", "not confirmed: "))
    assert document["confirmed"] == document["verdict"].startswith("confirmed")

    # Another seed adds only its own runs, here at once.
    given = []

    def spread(placement):
        given.append(placement.devices)
        return SerialExecutor()

    monkeypatch.setattr("cse_cli.jobs.placement.Placement.open", spread)
    code, _, err = tune("--best", study, "--confirm", 3, "--workers", 2)
    assert code == 0, err
    assert [len(devices) for devices in given] == [2]
    assert "6/6  found values, seed 2" in err
    assert len(finished_results()) == 6
    code, _, err = tune("--best", study, "--workers", 2)
    assert (code, "leave out --workers" in err) == (2, True)


def stopping(at):
    """Return a `stepped` that is stopped as by Ctrl-C, once it has been told of so many steps."""
    told = count(1)

    def stepped(*_):
        if next(told) == at:
            raise KeyboardInterrupt

    return stepped


REFUSED = {
    "no parameter": ((), "no parameter to tune is named"),
    "misspelt": (("--param", "temprature"), "no 'temprature'. Did you mean 'losses.info_nce.temperature'"),
    "a table": (("--param", "losses.info_nce"), "'losses.info_nce' is a table, not a value"),
    "free text": (("--param", "encoders.online.model"), "needs a range: it takes any text"),
    "an array": (("--param", "freeze"), "encoders.online.freeze is an array"),
    "the seed": (("--param", "seed"), "'train.seed' is not tuned"),
    "the measure": (("--param", "dev.split"), "it changes how models are scored"),
    "empty": (("--param", "temperature", "--range", "0.5..0.1"), "the range is empty, as 0.5 is not less than 0.1"),
    "outside": (("--param", "temperature", "--range=-1..1"), "cannot be -1.0: should be greater than 0"),
    "test data": (("--param", "temperature", "--metric", "held_out.spearman"), "tuning takes dev metrics only"),
    "test data set": (
        ("--param", "temperature", "--set", "evaluate.select=held_out.spearman"), "tuning takes dev metrics only"
    ),
    "test split set": (("--param", "temperature", "--set", "evaluators.dev.split=test"), "'dev.spearman' scores split"),
    "no metric": (("--param", "temperature", "--metric", "dve.spearman"), "--metric: unknown evaluator 'dve'. Did you"),
    "no storage": (("--param", "temperature", "--storage", "redis://me:secret@host/db"), "'redis' is not supported"),
    "no patience": (("--param", "temperature", "--patience", "long"), "--patience: 'long' is not a duration"),
    "no duration": (("--param", "temperature", "--timeout", "soon"), "--timeout: 'soon' is not a duration"),
    "no sampler": (("--param", "temperature", "--sampler", "tpee"), "Did you mean 'tpe'?"),
    "no name": (("--param", "temperature", "--name", "a/b"), "'a/b' cannot name a file"),
    "no study": (("--join", "nothing"), "no study 'nothing'"),
    "no best": (("--best", "nothing"), "no study 'nothing'"),
    "best and search": (("--best", "nothing", "--trials", "3"), "--best and --trials exclude each other"),
    "length twice": (("--param", "train.steps", "--range", "1..9", "--steps", "3"), "the length of training is tuned"),
    "no toml": (("--param", "temperature", "--save-best", "x.txt"), "does not end in .toml"),
    "no file": (("--param", "temperature", "--save-best", ""), "--save-best best.toml"),
    "in the way": (("--param", "temperature", "--save-best", "small.toml"), "exists, and is not from this study"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_before_anything_runs(case, file, folder, home, tune):
    with Path(file).open("a", encoding="utf-8") as text:
        text.write('[evaluators.held_out]\nname = "sts"\ndataset = "graded_pairs"\nsplit = "test"\n')
    before = sorted(path.name for path in folder.iterdir())
    arguments, message = REFUSED[case]
    code, out, err = tune(*(() if "best" in case else (file,)), *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert "allow_test_selection" not in err
    assert "secret" not in err
    assert not (home / "tuning").exists()
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_name_that_may_be_several_lists_them(capsys, tune):
    code, _, err = tune("quickstart", "--param", "temperature")
    assert code == 2
    assert "'temperature' may be 2 parameters" in err
    assert "losses.identical.temperature, losses.fraternal.temperature" in err


def test_an_empty_list_says_how_to_begin(tune):
    code, out, err = tune("ls")
    assert (code, out.count("\n")) == (0, 1)
    assert "cse tune --param queue_length" in err
