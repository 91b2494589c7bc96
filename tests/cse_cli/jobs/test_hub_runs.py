"""Runs on models and data of the hub: commits recorded, found again, kept on resume; copied to other machines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cse_cli.data.requirements import fetch
from cse_cli.jobs.job import Job
from cse_cli.recipe.load import load
from cse_cli.recipe.requirements import merged_requirements
from cse_cli.runs.index import all_runs
from registry.errors import MissingError
from registry.resources import hub, models
from tests.fake_hub.fixture import use
from tests.fake_hub.server import FakeHub
from tests.support.running import execute
from tests.support.tiny import tiny_bert

pytestmark = pytest.mark.process

RECIPE = """
schema = 1
title = "SimCSE on the hub"
[data]
dataset = "hf:someone/text"
max_length = 8
[encoders.online]
name = "transformer"
model = "someone/bert"
[views.anchor]
[views.positive]
[losses.info_nce]
[train]
steps = 4
batch_size = 4
evaluate_every = 2
precision = "fp32"
[evaluate]
metric_for_best_model = "dev.spearman"
max_length = 8
[evaluators.dev]
name = "sts"
file = "hf:someone/pairs"
split = "validation"
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A hub with a model, a text and pairs that no catalog knows; the recipe of all three."""
    content = tmp_path / "content"
    shutil.copytree(tiny_bert(tmp_path), content / "models/someone/bert")
    text = content / "datasets/someone/text"
    text.mkdir(parents=True)
    (text / "train.jsonl").write_text("".join(json.dumps({"text": f"a {n} b"}) + "\n" for n in range(20)))
    pairs = content / "datasets/someone/pairs"
    pairs.mkdir(parents=True)
    rows = [{"sentence1": "a b", "sentence2": "b c" * n, "score": n} for n in range(1, 6)]
    (pairs / "validation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    with FakeHub(content) as server:
        use(server, tmp_path / "hf", monkeypatch)
        yield server, str(tmp_path / "recipe.toml")


def job(recipe, **options):
    return Job(load(recipe), 42, **options)


def interrupted(kind, data):
    """End the run after step 2, as Ctrl-C does."""
    if kind == "evaluated" and data["step"] == 2:
        raise KeyboardInterrupt


def test_commits_are_recorded_and_a_second_run_asks_nothing(world):
    server, recipe = world
    first = execute(job(recipe))
    assert first.commits == {
        "model someone/bert": server.repos["models", "someone/bert"].main,
        "dataset someone/text": server.repos["datasets", "someone/text"].main,
        "dataset someone/pairs": server.repos["datasets", "someone/pairs"].main,
    }
    server.log.clear()
    second = execute(job(recipe, again=True))
    assert server.log == []
    assert second.run_id != first.run_id
    assert (second.scores, second.commits, second.last_state) == (first.scores, first.commits, first.last_state)


def test_a_run_is_taken_up_with_its_own_commits(world):
    server, recipe = world
    whole = execute(job(recipe))
    with pytest.raises(KeyboardInterrupt):
        execute(job(recipe, again=True), interrupted)
    stopped = all_runs()[0]
    assert stopped.about.commits == whole.commits
    config = server.content / "models/someone/bert/config.json"  # the owner publishes something else
    config.write_text(config.read_text().replace("{", '{"note": "new",', 1))
    server.load()
    models.locate("someone/bert", force=True)
    assert hub.used()["model someone/bert"] != whole.commits["model someone/bert"]
    resumed = execute(job(recipe, resume=stopped.run_id))
    assert resumed.commits == whole.commits
    assert resumed.last_state == whole.last_state


def test_all_missing_files_are_reported_before_a_download(world, tmp_path):
    server, recipe = world
    wrong = load(recipe, ['encoders.online.model="someone/brt"', 'evaluators.dev.file="hf:someone/pars"'])
    with pytest.raises(MissingError) as caught:
        fetch(merged_requirements([wrong.recipe]), lambda *_: None)
    told = str(caught.value)
    assert "requirements not found: 2" in told
    assert "model 'someone/brt' does not exist on the Hub, or is private" in told
    assert "someone/pars" in told
    assert not [line for line in server.log if "resolve" in line and "README" not in line]


def test_two_directories_take_a_run_to_a_machine_without_internet(world, tmp_path):
    """The commands of docs/data.md, "Machines without internet"."""
    server, recipe = world
    caches = 'export CSE_HOME="$PWD/cse" HF_HUB_CACHE="$PWD/hub"\n'
    offline = f"{caches}export HF_HUB_OFFLINE=1\n"

    def shell(machine, commands):
        folder = tmp_path / machine
        folder.mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "HF_HOME": str(folder / "hf")}
        return subprocess.run(["bash", "-ec", commands], cwd=folder, env=environment, capture_output=True, text=True)

    here = shell("here", f"{caches}mkdir cse hub\ncse data download --for {recipe}\ntar -cf caches.tar cse hub")
    assert here.returncode == 0, here.stderr
    server.log.clear()
    there = shell("there", f"tar -xf ../here/caches.tar\n{offline}cse check --data {recipe}\ncse run {recipe}")
    assert there.returncode == 0, there.stderr
    elsewhere = shell("elsewhere", f"{offline}cse run {recipe}")
    assert elsewhere.returncode == 3
    assert "copy its caches: docs/data.md" in elsewhere.stderr
    assert server.log == []
