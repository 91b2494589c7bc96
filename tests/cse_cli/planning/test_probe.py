"""Probes on a tiny recipe: what they measure, and that nothing of them is left."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from cse_cli.core.events import SilentObserver
from cse_cli.data.sources import open_text
from cse_cli.planning.disk_space import needed
from cse_cli.planning.probe import FEWEST, WARM_UP, probe
from cse_cli.planning.sample import Sample
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Data
from cse_cli.runs.index import recorded_ids
from cse_cli.training.build import Job
from cse_cli.training.run import prepare
from cse_cli.training.train_step import TrainStep
from registry.queues.rolling import RollingQueue
from tests.support.chosen import these
from tests.support.shrunken import recipe
from tests.support.tiny import sentences

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tmp_path, parts):
    return Job(load(str(recipe(tmp_path, parts))), 3, "cpu")


def test_parts_of_a_run(job, home):
    found = probe(job, 0.01)
    assert found.device.startswith("cpu (")
    assert (found.precision, found.rows) == ("fp32", 20)
    assert 0 < found.step < 5
    assert found.scoring.each["dev"] == pytest.approx(found.scoring.together) != 0
    assert found.space == needed(prepare(job, SilentObserver()))
    assert 0 < found.write < 1e-6
    assert found.memory > 50_000_000
    assert found.seconds > found.build + FEWEST * found.step


def test_nothing_is_recorded_and_no_random_number_is_used(job, home):
    torch.manual_seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    probe(job, 0.01)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert recorded_ids() == []
    assert sorted(path.name for path in home.iterdir()) == ["cache"]
    assert not (home / "cache" / "tokens").exists()


def test_a_recipe_without_training(tmp_path, parts):
    path = recipe(tmp_path, parts, steps=0)
    kept = path.read_text().replace("[views.anchor]\n[views.positive]\n[losses.info_nce]\n", "")
    path.write_text(kept.replace('metric_for_best_model = "dev.spearman"\n', ""))
    found = probe(Job(load(str(path)), 0, "cpu"), 0.01)
    assert (found.step, found.rows, found.tokenizing, found.space.checkpoint) == (0.0, None, 0.0, 0)
    assert found.scoring.together > 0


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
    probe(Job(load(str(path)), 0, "cpu"), 0.01)
    assert filled[:WARM_UP] == [0, 4]
    assert set(filled[WARM_UP:]) == {30}


def test_a_missing_column_is_replaced_by_the_text(tmp_path, parts):
    path, text = recipe(tmp_path, parts), tmp_path / "text.txt"
    text.write_text("\n".join(sentences(20, seed=1)))
    augment = f'augment = [{{ name = "fuse_embeddings", model = "{parts.models["bert"]}", column = "translation" }}]\n'
    changed = path.read_text().replace(str(parts.text), str(text))
    path.write_text(changed.replace("[views.positive]\n", f"[views.positive]\n{augment}"))
    found = probe(Job(load(str(path)), 0, "cpu"), 0.01, 1, ["translation"])
    assert found.step > 0


def test_a_sample_has_rows_of_the_whole_text(tmp_path):
    lines = [f"sentence number {place}" for place in range(100)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    sample = Sample(open_text(Data(file=str(tmp_path / "text.txt")), {"text"}), 10)
    assert sample.rows == 10
    assert sample.sentences("text") == lines[::10]
    assert sample.sentences("not made yet") == lines[::10]
    assert sample.sentences("text").take([9, 0]) == [lines[90], lines[0]]


def test_only_the_rows_without_tokens_take_time(job):
    found = probe(job, 0.01)
    assert found.tokenizing > 0
    assert found.cache > 20 * 3 * 4  # 20 rows of more than three ids
    prepare(job, SilentObserver())
    again = probe(job, 0.01)
    assert (again.tokenizing, again.cache) == (0.0, 0)


@pytest.mark.parametrize("name", these(["mini/ifcl_en"], ["mini/gs_infonce_en", "mini/mocose_en", "mini/ifcl_en"]))
def test_every_kind_of_queue(name, home):
    job = Job(load(name, ["evaluate.limit=8", "data.limit=256", "train.batch_size=8"]), 0, "cpu")
    assert probe(job, 0.01).step > 0
