"""Runs count as the same experiment only with the same settings, text, weights and code."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from cse_cli.core.results import read_series
from cse_cli.runs.index import all_runs
from cse_cli.runs.plans import plan_of_run
from cse_cli.training.trainer import Trainer
from registry import LOSSES
from tests.cse_cli.jobs.conftest import Run
from tests.cse_cli.recipe.tiny_study import grid
from tests.support.records import only_run, states
from tests.support.shrunken import Small

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs", "undrawn")]

LOSS = '''
"""A loss of a plug-in."""

import torch
from registry import LOSSES
from registry.types import Loss, Sentences


@LOSSES.register("plugged")
class Plugged(Loss):
    """Spread the embeddings."""

    def forward(self, anchor: Sentences) -> torch.Tensor:
        """Return the loss."""
        z = torch.nn.functional.normalize(anchor, dim=-1)  # unit sphere
        return (2.0 * (z @ z.T)).exp().mean().log()
'''
Change = Callable[[], object]


@pytest.fixture
def parts(folder: Path, parts: Small) -> Small:
    """Return the tiny parts with copies of text and models in the current directory, which a test may change."""
    shutil.copy(parts.text, folder / "t.tsv")
    shutil.copytree(parts.models["bert"], folder / "model")
    return Small(Path("t.tsv"), parts.translations, parts.vectors, {"bert": Path("model")}, parts.decoder)


@pytest.fixture
def plugged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what installs the plug-in's loss with this source, as a new process would find it."""
    before = {loss.name: loss for loss in LOSSES}  # iterating imports them all

    def install(source: str) -> None:
        (folder / "plug").mkdir(exist_ok=True)
        path = folder / "plug" / "plugged_loss.py"
        path.write_text(source)
        monkeypatch.setattr(LOSSES, "_entries", dict(before))
        spec = importlib.util.spec_from_file_location("plugged_loss", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "plugged_loss", module)
        exec(compile(source, str(path), "exec"), module.__dict__)

    return install


def reweigh(model: Path) -> None:
    """Change the weights in the directory of a model."""
    weights = {name: tensor * 1.5 for name, tensor in load_file(model / "model.safetensors").items()}
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture(params=["text", "model", "loss"])
def change(
    request: pytest.FixtureRequest, with_plug_in: None, folder: Path, file: str, plugged: Callable[[str], None]
) -> tuple[str, Change]:
    """Return how a change of a part is named, and the change."""
    return {
        "text": ("text ", lambda: (folder / "t.tsv").write_text("text\n" + "a cat sees\nthe dog\n" * 10)),
        "model": ("weights of encoders.online ", lambda: reweigh(folder / "model")),
        "loss": ("code of losses.plugged", lambda: plugged(LOSS.replace("2.0", "3.0"))),
    }[request.param]


def test_a_changed_part_is_another_experiment(change, file, run):
    named, act = change
    assert run(file)[0] == 0
    act()
    code, _, err = run(file)
    assert code == 0
    assert "is finished" not in err
    second, first = all_runs()
    (difference,) = first.about.identity.differences(second.about.identity)
    assert str(difference).startswith(named)
    assert first.result.last_state != second.result.last_state


def test_a_run_is_not_resumed_with_a_changed_part(change, file, run, monkeypatch):
    named, act = change
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "run", interrupted)
        assert run(file)[0] == 130
    act()
    code, out, err = run("--resume", only_run().run_id)
    assert (code, out) == (2, "")
    lines = err[err.index("error: ") :].split("\n")
    assert f"cannot resume run {only_run().about.short}" in lines[0]
    assert lines[1].startswith(f"  {named}")
    assert lines[2].startswith("  → ")
    assert states() == ["STOPPED"]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def with_plug_in(folder: Path, file: str, plugged: Callable[[str], None]) -> None:
    """Add the plug-in's loss to the recipe."""
    with (folder / file).open("a") as end:
        end.write('[losses.plugged]\nviews = { anchor = "anchor" }\n')
    plugged(LOSS)


# Studies.


@pytest.fixture
def study(with_plug_in: None, folder: Path, plugged: Callable[[str], None], run: Run) -> str:
    """Return a finished study of three cells, and change the code of the plug-in's loss."""
    name = grid(folder)
    assert run(name)[0] == 0
    plugged(LOSS.replace("2.0", "3.0"))
    return name


def test_a_study_runs_again_what_other_code_made(study, run):
    code, out, err = run(study, "--dry-run")
    assert code == 0
    assert "3 of 3 runs" in out
    assert "code of losses.plugged" in out
    code, _, err = run(study)
    assert code == 0
    assert "3 of 3 runs" in err
    assert "code of losses.plugged" in err
    assert "3 runs: 0 finished, 3 to run" in err
    assert states() == ["FINISHED"] * 6
    assert "3 runs: 3 finished, 0 to run" in run(study)[2]


# Data that selected no state.

PAIRS = ["score\tsentence1\tsentence2", *(f"{place % 5}\ta cat sees\tthe dog {'runs ' * place}" for place in range(8))]


@pytest.fixture
def with_test(folder: Path, file: str) -> Callable[[], None]:
    """Add pairs of a file to the recipe, and return what changes them."""
    with (folder / file).open("a") as end:
        end.write('[evaluators.test]\nname = "sts"\nfile = "test.tsv"\n')
    (folder / "test.tsv").write_text("\n".join(PAIRS))
    return lambda: (folder / "test.tsv").write_text("\n".join(PAIRS[:-2])) and None


def test_other_test_data_score_the_model_again(with_test, file, run, monkeypatch):
    assert run(file, "--seeds", "2")[0] == 0
    with_test()
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "run", interrupted)
        code, _, err = run(file, "--seeds", "2")
    assert code == 0
    *again, first = [run for run in all_runs() if run.about.seed == 0]
    assert err.count("only test data have changed since run ") == 2
    assert first.about.short in err
    (second,) = again
    assert second.about.scores_again == first.run_id
    assert plan_of_run(second.about) == plan_of_run(first.about) is not None
    old, new = first.result, second.result
    assert new.scored_on["dev"] == old.scored_on["dev"]
    assert new.scored_on["test"] != old.scored_on["test"]
    assert (new.scores["dev"], new.untrained["dev"]) == (old.scores["dev"], old.untrained["dev"])
    assert new.scores["test"] != old.scores["test"]
    for part in ("curve", "steps", "selected_step", "last_state", "seconds"):
        assert getattr(new, part) == getattr(old, part)
    assert new.fingerprints["training"] == old.fingerprints["training"]
    series = [read_series(one.about.path / "series")["test"]["cosine"] for one in (second, first)]
    assert series[0].tolist() == series[1][:6].tolist()
    assert run(file, "--seeds", "2")[0] == 0
    assert len(all_runs()) == 4


@pytest.mark.parametrize("why", ["asked", "dev", "no model"])
def test_a_model_is_trained_again_if_it_cannot_be_scored_again(why, with_test, folder, file, run):
    with (folder / file).open("a") as end:
        end.write('[evaluators.own]\nname = "sts"\nfile = "own.tsv"\nsplit = "dev"\n')
    (folder / "own.tsv").write_text("\n".join(PAIRS))
    set_ = ("--set", "evaluate.metric_for_best_model=own.spearman")
    assert run(file, *set_)[0] == 0
    if why == "dev":
        (folder / "own.tsv").write_text("\n".join(PAIRS[:-1]))
    if why == "no model":
        shutil.rmtree(only_run().about.path / "model")
    with_test()
    code, _, err = run(file, *set_, *(["--again"] if why == "asked" else []))
    assert (code, "scored again" in err) == (0, False)
    assert all_runs()[0].about.scores_again == ""
