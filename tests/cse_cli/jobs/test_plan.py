"""`cse plan`: sums by hand from planted times, and real measurements of a tiny recipe, of which nothing is left."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.data.sources import open_text
from cse_cli.jobs import plan as module
from cse_cli.jobs.job import Job
from cse_cli.jobs.plan import RECORDS, STEPS, WARM_UP, Measured, evaluation_seconds, measure, shape, steps_of
from cse_cli.recipe.load import load
from cse_cli.runs.index import recorded_ids
from cse_cli.training import checkpoint
from cse_cli.training.train_step import TrainStep
from registry.queues.rolling import RollingQueue
from registry.types import Evaluator
from tests.cse_cli.data.test_columns import shout
from tests.cse_cli.recipe.tiny_study import grid
from tests.support.command import cse, refused
from tests.support.running import execute
from tests.support.shrunken import recipe
from tests.support.tiny import sentences

__all__ = ["shout"]

MEASURED = Measured(
    rows=12_000, step=0.5, dev=3.0, evaluation=7.0, unmeasured=(), memory=700_000_000, model=1_000_000,
    checkpoint=3_000_000,
)  # fmt: skip


def quickstart(*overrides):
    return load("quickstart", overrides).recipe


# Sums by hand.


@pytest.mark.parametrize(
    ("overrides", "steps", "scored"),
    [
        ([], 60, 7 + 3 * 3 + 7),  # an evaluation after every 20 steps, all evaluators before and after
        (["evaluate.eval_on_start=false"], 60, 3 + 3 * 3 + 7),
        (["train.evaluate_every=0"], 60, 7 + 1 * 3 + 7),
        (["train.evaluate_every=25"], 60, 7 + 3 * 3 + 7),
        (["train.steps=5"], 5, 7 + 1 * 3 + 7),
    ],
)
def test_a_run_by_hand(overrides, steps, scored):
    assert MEASURED.times(quickstart(*overrides)) == {"training": steps * 0.5, "evaluation": scored}


def test_steps_of_epochs_leave_out_the_incomplete_batch():
    one = quickstart()
    epochs = one.model_copy(update={"train": one.train.model_copy(update={"steps": None, "epochs": 2})})
    assert steps_of(epochs, 12_000) == 2 * (12_000 // 64)


def test_only_settings_that_change_the_work_are_measured_again():
    same = ["losses.twins.weight=0.5", "train.learning_rate=1e-3", "train.steps=90", "queue.forgetting_rate=0.5"]
    other = ["queue.length=64", "train.batch_size=32", "data.max_length=16", "losses.identical.name='nt_xent'"]
    shapes = {shape(quickstart(override)) for override in same}
    assert shapes == {shape(quickstart())}
    assert len({shape(quickstart(override)) for override in other} | shapes) == 5


# The command.


@pytest.fixture
def planted(monkeypatch):
    """Replace measurements by planted times, and return the names of the measured recipes."""
    names = []
    monkeypatch.setattr(module, "measure", lambda recipe, *_: names.append(recipe.title) or MEASURED)
    return names


def plan(*words, capsys):
    return cse("plan", *map(str, words), "--device", "cpu", capsys=capsys)


def planned(*words, capsys):
    code, out, _ = plan(*words, "--json", capsys=capsys)
    assert code == 0
    document = json.loads(out)
    assert document["schema_version"] == 1
    return document["plans"]


def test_help(snapshot, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    assert cse("plan", "--help", capsys=capsys)[1] == snapshot


@pytest.mark.slow
def test_a_real_plan_records_nothing(file, home, capsys):
    code, out, err = plan(file, capsys=capsys)
    assert code == 0
    for part in ("Small [red]one · seed 3", "training", "evaluation", "1 run, one run after the other, 3 steps\n"):
        assert part in out
    for line in ("time    about ", "disk    about ", "memory  about "):
        assert line in out
    assert "measuring steps" in err
    assert recorded_ids() == []


def test_seeds_are_measured_once(file, planted, capsys):
    (one,) = planned(file, "--seeds", "3", capsys=capsys)
    assert planted == ["Small [red]one"]
    assert (one["runs"], one["finished"], one["steps"], one["memory"]) == (3, 0, 9, 700_000_000)
    assert one["stages"] == {"training": 3 * 3 * 0.5, "evaluation": 3 * (3.0 + 2 * 3.0 + 7.0)}
    assert one["seconds"] == sum(one["stages"].values())
    assert one["disk"] == {
        "models and records": 3 * (1_000_000 + RECORDS),
        "checkpoints": 2 * 3_000_000 + 2 * 1_000_000,
    }


def test_parallel_runs_share_the_time_and_need_the_space_of_their_checkpoints_together(file, planted, capsys):
    one, two = (planned(file, "--seeds", "4", *words, capsys=capsys)[0] for words in ((), ("--workers", "2")))
    assert two["place"] == "2 runs in parallel: cpu, cpu"
    assert two["seconds"] == one["seconds"] / 2
    assert two["disk"]["checkpoints"] == 2 * one["disk"]["checkpoints"]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_finished_runs_cost_nothing(file, run, planted, capsys):
    run(file, "--seed", "0")
    (one,) = planned(file, "--seeds", "2", capsys=capsys)
    assert (one["runs"], one["finished"]) == (1, 1)
    out = plan(file, "--seeds", "1", capsys=capsys)[1]
    assert "1 run finished, 0 to run" in out
    assert "training" not in out


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_study_and_a_recipe(folder, parts, run, planted, capsys):
    recipe(folder, parts)
    run("small.toml", "--seed", "0", "--set", "losses.info_nce.temperature=0.1")
    study, one = planned(grid(folder), "small.toml", capsys=capsys)
    assert (study["runs"], study["finished"], one["runs"]) == (2, 1, 1)
    assert planted == ["Small [red]one"] * 2  # the temperatures take equally long


def test_what_is_missing_is_named_and_the_exit_code_is_zero(file, capsys):
    code, out, _ = plan(file, "--set", "data.file=gone.tsv", capsys=capsys)
    assert code == 0
    assert "time    unknown (1 run" in out
    assert "missing file gone.tsv: " in out
    assert "→ " in out


def test_downloads_are_named_with_their_sizes_and_the_time_in_order_of_magnitude(capsys, monkeypatch):
    monkeypatch.setattr(module, "matrix_speed", lambda: 40e9)
    code, out, _ = plan("simcse_en", capsys=capsys)
    assert code == 0
    assert "download model bert-base-uncased" in out
    assert "441.1 MB" in out
    assert "time    19 days to 48 days on this CPU, 110 min to 4.6 h on one A100, in order of magnitude" in out
    assert "15,625 steps" in out
    (one,) = planned("simcse_en", capsys=capsys)
    assert one["downloads"]["model bert-base-uncased"] == pytest.approx(441e6, rel=1e-3)
    assert (one["seconds"], one["memory"], one["stages"], list(one["disk"])) == (None, None, {}, ["downloads"])
    weights = one["downloads"]["model bert-base-uncased"] // 4
    assert one["rough"]["one A100"][0] == pytest.approx(6 * weights * 25 * 2 * 1_000_000 / 5e12)


def test_another_machine_is_estimated(capsys):
    """The example of the help: there is no CUDA device here."""
    code, out, _ = cse("plan", "simcse_en", "--device", "cuda", "--seeds", "2", capsys=capsys)
    assert code == 0
    assert "on one A100" in out
    assert "on this CPU" not in out
    assert "31,250 steps" in out
    assert refused("plan", "simcse_en", "--device", "gpu").code == "core.unknown_device"


def test_unmeasured_parts_are_named(file, capsys, monkeypatch):
    monkeypatch.setattr(module, "measure", lambda *_: replace(MEASURED, unmeasured=("evaluator dev",)))
    out = plan(file, "--seeds", "2", capsys=capsys)[1]
    assert ", without evaluator dev" in out
    assert planned(file, "--seeds", "2", capsys=capsys)[0]["seconds"] == 2 * (1.5 + 16)


@pytest.mark.slow
@pytest.mark.usefixtures("shout")
def test_a_column_that_is_not_made_leaves_the_order_of_magnitude(tmp_path, parts, planted, capsys):
    """No model translates here, so the time is that of training: 6 operations for each weight and token."""
    path, text = recipe(tmp_path, parts), tmp_path / "text.txt"
    text.write_text("\n".join(sentences(20, seed=1)))
    augment = f'augment = [{{ name = "fuse_embeddings", model = "{parts.models["bert"]}", column = "translation" }}]\n'
    made = '[data.columns.translation]\nname = "shout"\n'
    changed = path.read_text().replace(str(parts.text), str(text)).replace("[data]\n", f"{made}[data]\n")
    path.write_text(changed.replace("[views.positive]\n", f"[views.positive]\n{augment}"))
    (before,) = planned(str(path), capsys=capsys)
    assert planted == []
    assert (before["seconds"], before["steps"], list(before["rough"])) == (None, 3, ["this CPU", "one A100"])
    weights = sum(file.stat().st_size for file in parts.models["bert"].glob("*.safetensors")) // 4
    batch_size = load(str(path)).recipe.train.batch_size
    assert before["rough"]["one A100"][0] == pytest.approx(6 * weights * 25 * 3 * batch_size * 2 / 5e12)
    open_text(load(str(path)).recipe.data, {"text", "translation"})  # makes the column
    (after,) = planned(str(path), capsys=capsys)
    assert planted == ["Small [red]one"]
    assert (after["seconds"], after["rough"]) == (3 * 0.5 + 3.0 + 2 * 3.0 + 7.0, {})


# Measurements.


@pytest.fixture
def job(tmp_path, parts):
    return Job(load(str(recipe(tmp_path, parts))), 3)


@pytest.mark.slow
def test_parts_of_a_run_which_is_not_recorded(job):
    torch.manual_seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    found = measure(job.loaded.recipe, job.seed, "cpu")
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert (found.rows, found.unmeasured) == (20, [])
    assert 0 < found.step < 5
    assert found.dev == found.evaluation > 0
    assert found.memory > 50_000_000
    assert recorded_ids() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", ["adamw", "rmsprop", "sgd"])
@pytest.mark.usefixtures("few_pairs", "undrawn")
def test_the_disk_space_is_what_a_run_writes(tmp_path, parts, optimizer, monkeypatch):
    sizes = {}

    def written(path, content, keep=None):
        own = {key: content[key] for key in ("method", "optimizer")} if keep else content
        kept = [each.nbytes for each in tensors(own) if each.ndim]  # Adam's counts of steps have no dimension
        sizes[path.name[:4]] = sum(kept)
        write(path, content, keep)

    write = checkpoint.write
    monkeypatch.setattr(checkpoint, "write", written)
    file = recipe(tmp_path, parts, steps=6, evaluate_every=2)
    job = Job(load(str(file), [f"train.optimizer={optimizer}"]), 3)
    found = measure(job.loaded.recipe, job.seed, "cpu")
    execute(job)
    assert sizes == {"chec": found.checkpoint, "best": found.model}
    assert found.checkpoint == {"adamw": 3, "rmsprop": 2, "sgd": 1}[optimizer] * found.model


def tensors(content):
    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, dict | list | tuple):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from tensors(inner)


@pytest.mark.slow
def test_a_recipe_without_training(tmp_path, parts):
    path = recipe(tmp_path, parts, steps=0)
    kept = path.read_text().replace("[views.anchor]\n[views.positive]\n[losses.info_nce]\n", "")
    path.write_text(kept.replace('metric_for_best_model = "dev.spearman"\n', ""))
    loaded = load(str(path))
    found = measure(loaded.recipe, 0, "cpu")
    assert (found.step, found.rows, found.dev, found.checkpoint) == (0.0, 0, 0.0, 0)
    assert found.times(loaded.recipe) == {"training": 0.0, "evaluation": found.evaluation}
    assert found.evaluation > 0


@pytest.mark.slow
def test_the_queue_is_full_when_steps_are_measured(tmp_path, parts, monkeypatch):
    path = recipe(tmp_path, parts)
    path.write_text(path.read_text() + '[queue]\nname = "fifo"\nview = "anchor"\nlength = 30\n')
    filled = []
    take = TrainStep.take

    def watched(self, done, look=None):
        assert isinstance(self.method.queue, RollingQueue)
        filled.append(self.method.queue.filled)
        return take(self, done, look)

    monkeypatch.setattr(TrainStep, "take", watched)
    measure(load(str(path)).recipe, 0, "cpu")
    assert filled == [0, 4] + [30] * STEPS
    assert WARM_UP == 2


class Planted(Evaluator):
    """Evaluator that requests its sentences, as far as its limit allows."""

    def __init__(self, *texts):
        self.own = texts

    def __call__(self, encode):
        if self.own:
            encode(self.own[: self.limit])
        return {}


def test_evaluations_take_as_long_as_their_distinct_sentences(monkeypatch):
    clock = [0.0]

    def evaluated(encoder, evaluators, *_, **__):
        clock[0] += sum(len(one.own[: one.limit]) for one in evaluators.values())

    monkeypatch.setattr(module, "evaluate", evaluated)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(module, "PAIRS", 3)
    settings = SimpleNamespace(metric_for_best_model="dev.spearman", encoder="online")
    evaluators = {"dev": Planted(*"abcde"), "test": Planted(*"defgh"), "other": Planted()}
    for fits, expected in (("never", (5, 8)), ("each", (5, 10)), ("once", (5, 8))):
        scored = SimpleNamespace(fits=fits, foundation=None)
        experiment = SimpleNamespace(
            recipe=SimpleNamespace(evaluate=settings), scored=scored, evaluators=evaluators, specs={}
        )
        dev, every, unmeasured = evaluation_seconds(experiment, choose("cpu", "fp32"))
        assert (dev, every) == expected
        assert unmeasured == [*(["fit of encoder online"] if fits == "once" else []), "evaluator other"]
        assert evaluators["dev"].limit is None
