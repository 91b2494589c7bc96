"""Every method in the repository trains, scores and records; so does one with a loss that came in one file."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.core.results import Result
from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.jobs.job import Job, family
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.runs.events import read_history
from cse_cli.runs.index import finished_results
from cse_cli.runs.record import RECIPE, RunRecord, folder_of, read_about, read_recipe
from cse_cli.training.build import prepare
from cse_cli.training.trainer import Trainer
from registry import EVALUATORS, LOSSES
from registry.encoders.saved import open_encoder
from tests.support.chosen import distinct, these, trains
from tests.support.records import points, states
from tests.support.running import execute
from tests.support.shrunken import STEPS, Small
from tests.support.versions import needs

NAMES = distinct(all_recipes())
WHOLE = ("simcse_en", "ifcl_en", "glove_en")
"""Recipes that plain `pytest` trains, scores and records; the others take two steps."""
FOLDER = Path(__file__).resolve().parent.parent / "recipes"
PLUGIN = Path(__file__).parent / "plugin_example" / "cse_uniformity" / "uniformity.py"


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs", "undrawn")]


def run(recipe: str, parts: Small, *more: str, seed: int = 5) -> Result:
    changed, dropped = parts.options(load(recipe).recipe)
    loaded = load(recipe, [*changed, *more, f"train.seed={seed}"], dropped)
    return execute(Job(loaded, seed))


@pytest.mark.parametrize("name", these(distinct(filter(trains, NAMES), "loss", "encoder"), filter(trains, NAMES)))
def test_two_steps(name, parts, home):
    recipe = load(name).recipe
    changed, dropped = parts.options(recipe)
    selects = {
        "evaluate.metric_for_best_model": recipe.evaluate.metric_for_best_model, "train.patience": recipe.train.patience
    }  # fmt: skip
    dropped += [key for key, value in selects.items() if value is not None]
    if any(encoder.params.get("attention") == "bidirectional" for encoder in recipe.encoders.values()):
        needs("bidirectional attention of decoders")
    loaded = load(name, [*changed, "train.steps=2", "evaluate.eval_on_start=false"], dropped)
    prepared = prepare(loaded.recipe, 5, choose("cpu"), RunRecord("unrecorded", None))
    (home / "runs" / "one").mkdir(parents=True)
    trainer = Trainer(prepared, home / "runs" / "one", RunRecord("unrecorded", None))
    before = [weight.clone() for weight in trainer.method.parameters()]

    trainer.run()

    assert trainer.progress.step == 2  # with warm-up, the first step has a learning rate of 0
    assert all(torch.isfinite(weight).all() for weight in trainer.method.parameters())
    assert any((one != other).any() for one, other in zip(before, trainer.method.parameters(), strict=True))


@pytest.mark.parametrize("name", these(WHOLE, sorted({*WHOLE, *NAMES})))
def test_recipe(name, parts, home):
    recipe = load(name).recipe

    result = run(name, parts)

    assert (result.recipe, result.seed) == (name, 5)
    assert result.steps == (0 if recipe.train.steps == 0 else STEPS)
    assert list(result.curve) == ([0, 2, 3] if recipe.evaluate.metric_for_best_model and result.steps else [])
    if result.curve:
        assert result.selected_step in (2, 3)
        evaluator, _, metric = str(result.metric_for_best_model).rpartition(".")
        if recipe.evaluate.selection_encoder is None:
            assert result.scores[evaluator][metric] == result.curve[result.selected_step]
    assert all(score == score for metrics in result.scores.values() for score in metrics.values())
    assert len(result.last_state or "") == (64 if result.steps else 0)
    assert finished_results() == [result]
    assert read_recipe(str(result.run_id))["train"]["seed"] == 5
    assert not result.steps or math.isfinite(points(str(result.run_id), "train/loss")[-1][1])
    encoder, length = open_encoder(str(home / "runs" / str(result.run_id) / "model"))
    assert length == min(recipe.evaluate.max_length, encoder.max_length or 512)
    # A template and a prefix take their own tokens off; word vectors have no limit.
    part = read_recipe(str(result.run_id)).get("encoders", {}).get(recipe.evaluate.encoder, {})
    room = 256 if part.get("model") == str(parts.decoder) else 64 - part.get("length", 0)
    assert encoder.max_length is None or encoder.max_length == encoder.vocabulary.longest(room)
    rows = encoder.vocabulary.ids(["a cat sees"], length)
    assert torch.isfinite(encoder.encode_for_eval(encoder.vocabulary.pad(rows))).all()
    assert not list((home / "runs").rglob("*.pt"))


def test_what_is_recorded_runs_again_to_the_same_bit(parts):
    first = run("simcse_en", parts)  # its head is made anew: the seed decides it
    torch.manual_seed(99)
    again = load(str(folder_of(str(first.run_id)) / RECIPE))
    second = execute(Job(again, again.recipe.train.seed, again=True))

    assert second.run_id != first.run_id
    assert second.last_state == first.last_state
    assert second.scores == first.scores
    assert run("simcse_en", parts, seed=6).last_state != first.last_state


def test_the_selected_state_is_scored_and_saved_not_the_last(parts, home):
    result = run("simcse_en", parts, "train.learning_rate=0.005", "train.steps=6", "train.evaluate_every=1")
    kept = result.selected_step
    assert kept is not None
    assert kept < 6
    assert result.curve[kept] == max(score for step, score in result.curve.items() if step > 0)
    assert result.scores["stsb_dev"]["spearman"] == result.curve[kept] != result.curve[6]
    encoder, length = open_encoder(str(home / "runs" / str(result.run_id) / "model"))
    again = EVALUATORS["sts"].build({"dataset": "stsb_open", "split": "dev"})
    saved = again(SentenceEncoder(encoder, choose("cpu"), 4096, length))
    assert saved == result.scores["stsb_dev"]


def test_choosing_by_test_data_marks_the_result(parts, home):
    honest = run("simcse_en", parts)
    marked = run("simcse_en", parts, "evaluators.stsb_dev.split=test", "evaluate.allow_test_selection=true")
    assert (honest.test_selected, marked.test_selected) == (False, True)
    assert [read_about(str(one.run_id)).test_selected for one in (honest, marked)] == [False, True]


def test_a_loss_in_one_file_is_used_from_a_recipe(parts, home, tmp_path, monkeypatch):
    assert len(PLUGIN.read_text().split("\n")) - 1 <= 40
    monkeypatch.setattr(LOSSES, "_entries", dict(LOSSES._entries))
    assert "uniformity" not in LOSSES
    spec = importlib.util.spec_from_file_location("new_loss", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "new_loss", module)
    spec.loader.exec_module(module)
    (tmp_path / "new.toml").write_text(
        f'extends = "{FOLDER}/simcse_en.toml"\nremove = ["paper"]\n[losses.uniformity]\nweight = 0.1\n'
    )

    result = run(str(tmp_path / "new.toml"), parts)

    plain = run("simcse_en", parts)
    assert result.recipe == "new"
    assert result.last_state != plain.last_state
    assert "losses.uniformity" in result.identity.code
    names = ("train/loss", "loss/info_nce", "loss/uniformity")
    loss, info_nce, uniformity = (points(str(result.run_id), name)[-1][1] for name in names)
    assert loss == pytest.approx(info_nce + 0.1 * uniformity, abs=1e-5)


def test_a_baseline_without_training(parts, home, tmp_path):
    path = tmp_path / "baseline.toml"
    path.write_text(
        f'schema = 1\ntitle = "Mean"\n[encoders.online]\nname = "transformer"\nmodel = "{parts.models["bert"]}"\n'
        'pooling = "mean"\n[data]\n[train]\nsteps = 0\n[evaluators.dev]\nname = "sts"\ndataset = "stsb_open"\n'
        'split = "dev"\n'
    )

    result = execute(Job(load(str(path)), 0))

    assert (result.steps, result.last_state, result.selected_step, result.untrained) == (0, None, None, {})
    encoder, _ = open_encoder(str(parts.models["bert"]), "mean")
    assert set(result.scores) == {"dev"}
    assert result.scores["dev"]["spearman"] != 0
    saved, _ = open_encoder(str(home / "runs" / str(result.run_id) / "model"))
    tokens = encoder.vocabulary.pad([[2, 7, 9, 3]])
    torch.testing.assert_close(saved.encode_for_eval(tokens), encoder.encode_for_eval(tokens), rtol=0, atol=0)
    assert states() == ["FINISHED"]


def test_untrained_scores_of_every_evaluator(parts, home):
    other = ["evaluators.extra.name=sts", "evaluators.extra.dataset=stsb_open", "evaluators.extra.split=test"]
    without = run("simcse_en", parts, *other)
    result = run("simcse_en", parts, *other, "evaluate.eval_on_start=true")
    assert set(without.untrained) == {"stsb_dev"}
    assert set(result.untrained) == set(result.word_overlap) == {"stsb_dev", "extra"}
    assert result.untrained["stsb_dev"] == without.untrained["stsb_dev"]
    assert set(result.word_overlap) == {"stsb_dev", "extra"}
    assert result.scores == without.scores


def test_untrained_scores_where_nothing_selects(parts, home):
    changed, dropped = parts.options(load("simcse_en").recipe)
    loaded = load("simcse_en", [*changed, "evaluate.eval_on_start=true"], [*dropped, "evaluate.metric_for_best_model"])
    result = execute(Job(loaded, 0))
    assert set(result.untrained) == {"stsb_dev"}
    assert (result.metric_for_best_model, result.selected_step, result.curve) == (None, None, {})
    assert result.scores != result.untrained


def test_the_directory_of_a_run_says_what_ran(parts):
    result = run("mini/simcse_en", parts)
    folder = folder_of(str(result.run_id))
    assert {path.name for path in folder.iterdir()} == {
        "run.toml", "recipe.toml", "events.jsonl", "result.json", "environment.json", "claim", "lock", "model",
        "series",
    }  # fmt: skip
    history = read_history(folder)
    assert json.loads((folder / "environment.json").read_text())["torch"] == version("torch")
    weights = parts.models["bert"] / "model.safetensors"
    assert result.identity.weights["encoders.online"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert read_about(str(result.run_id)).identity == result.identity
    assert {(one["name"], one["context"]) for one in history.datasets} == {
        ("text.tsv", "training"), ("stsb_open/dev", "evaluation"),
    }  # fmt: skip


def test_what_is_recorded_of_a_run(parts):
    result = run("mini/ifcl_en", parts, "evaluate.eval_on_start=true")
    about = read_about(str(result.run_id))
    assert (about.recipe, about.group, about.method, about.encoder) == ("mini/ifcl_en", "mini/ifcl_en", "IFCL", "tiny")
    assert (about.seed, about.data) == (5, "text.tsv")
    assert "train.batch_size=4" in about.changes
    names = set(read_history(about.path).metrics)
    assert {"dev/spearman", "dev/pearson", "eval/dev.spearman", "train/loss"} <= names
    assert not [name for name in names if name.endswith(("_all", "_mean", "_wmean", "_low", "_high"))]
    assert len(names) <= 40 - 12  # the whole recipe has seven test sets


@pytest.mark.parametrize(
    ("name", "language", "experiment"),
    [
        ("mini/ifcl_en_no_tl", "en", "mini/ifcl_en"),
        ("simcse_en_roberta_large", "en", "simcse_en"),
        ("simcse_zh_cstsb", "zh", "simcse_zh"),
        ("quickstart", "en", "quickstart"),
        ("mine_end", "en", "mine_end"),
    ],
)
def test_variants_of_a_recipe_are_in_one_experiment(name, language, experiment):
    assert family(name, language) == experiment


def test_traceable_distance_of_a_run(parts, home):
    result = run("mocose_en", parts)
    expected = {"queue/traceable_distance": pytest.approx(1 / 0.15 + 6 / 4)}  # shrunk to 6 entries, 4 sentences a step
    assert result.measures == expected
    metrics = read_history(folder_of(str(result.run_id))).metrics
    assert {name: points[0] for name, points in metrics.items() if name.startswith("queue/")} == expected
    assert list(metrics["encoders.target/decay"].values())[-1] == 1.0
    assert run("simcse_en", parts).measures == {}
