"""From an empty machine to a score with one command, for the recipes that make their own data, with and without kills.

A fake hub serves tiny models under the names in the recipes. The texts are those of the catalog.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cse_cli.data.columns import BLOCK
from tests.fake_hub.content import SHARED, write_evaluation_data, write_models, write_wikipedia
from tests.fake_hub.fixture import use
from tests.fake_hub.server import FakeHub
from tests.support.chosen import these

pytestmark = [pytest.mark.process, pytest.mark.data, pytest.mark.timeout(1800)]

RECIPES = ("ifcl_en", "ifcl_zh", "contrastive_bt_en", "augmentation_quality_en")
SMALL = ["--set", "train.precision=fp32", "--set", "evaluate.limit=64"]
TRAINS = [
    "data.limit=60",
    "data.max_length=32",
    "train.steps=4",
    "train.batch_size=8",
    "train.evaluate_every=2",
    "train.warmup_steps=0",
]


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """Return the content of a fake hub with models, evaluation data, and all lines of wiki1m."""
    folder = tmp_path_factory.mktemp("content")
    write_models(folder / "models")
    write_evaluation_data(folder / "datasets")
    write_wikipedia(folder / "datasets")
    return folder


@pytest.fixture
def machine(content, tmp_path, monkeypatch):
    """Run the fake hub for a machine with nothing on it, and return the hub."""
    with FakeHub(content) as hub:
        use(hub, tmp_path / "hf", monkeypatch)
        if (SHARED / "data/sts_zh").is_dir():  # wiki_zh and simclue are not published
            monkeypatch.setenv("CSE_DATA", str(SHARED / "data"))
        yield hub


def command(recipe, *settings):
    trains = [] if recipe.startswith("augmentation") else TRAINS
    changed = [word for setting in (*trains, *settings) for word in ("--set", setting)]
    return [sys.executable, "-m", "cse_cli", "run", recipe, *SMALL, *changed, "--json"]


def result(recipe, folder, home, *settings, kill=None):
    """Run a recipe to its end, or until `kill` holds, and return its result, or None if it was killed."""
    # A real program: a forked one has read the Hub's address before.
    with subprocess.Popen(
        command(recipe, *settings),
        cwd=folder,
        env={**os.environ, "CSE_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while kill is not None and process.poll() is None:
            if kill():
                process.kill()
                return None
            time.sleep(0.05)
        out, err = process.communicate()
    assert kill is None, "it ended before the kill"
    assert process.returncode == 0, err
    (found,) = json.loads(out)["results"]
    return {key: found[key] for key in ("scores", "selected_step", "last_state", "curve") if key in found}


def blocks(home):
    return sorted(file.name for file in (home / "cache" / "columns").rglob("[!t]*.txt"))


@pytest.mark.parametrize("recipe", these(RECIPES[:1], RECIPES))
def test_one_command_makes_the_data_trains_and_scores(recipe, machine, tmp_path):
    home = tmp_path / "one"
    first = result(recipe, tmp_path, home)
    made = blocks(home)
    assert first["scores"]
    assert made
    machine.log.clear()
    again = result(recipe, tmp_path, home, "train.seed=7")  # a second run makes nothing, and asks nobody
    assert again["scores"].keys() == first["scores"].keys()
    assert blocks(home) == made
    assert [line for line in machine.log if "/resolve/" in str(line)] == []


@pytest.mark.exhaustive
def test_kills_change_no_digit(machine, tmp_path):
    settings = (f"data.limit={BLOCK + 40}", "train.steps=40")
    whole = result("ifcl_en", tmp_path, tmp_path / "whole", *settings)
    home = tmp_path / "killed"
    result("ifcl_en", tmp_path, home, *settings, kill=lambda: len(blocks(home)) == 1)
    assert len(blocks(home)) == 1  # of two
    assert not list((home / "runs").glob("*/checkpoint.pt"))
    result("ifcl_en", tmp_path, home, *settings, kill=lambda: bool(list((home / "runs").glob("*/checkpoint.pt"))))
    assert result("ifcl_en", tmp_path, home, *settings) == whole
    assert blocks(home) == blocks(tmp_path / "whole")


@pytest.mark.exhaustive
def test_another_recipe_on_the_same_text_makes_nothing_and_needs_no_network(machine, tmp_path, monkeypatch):
    home = tmp_path / "home"
    result("ifcl_en", tmp_path, home)
    made = {path: path.stat().st_mtime_ns for path in Path(home / "cache" / "columns").rglob("*.txt")}
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    result("ifcl_en", tmp_path, home, "train.seed=3")
    result("ifcl_en_no_tl", tmp_path, home)
    assert {path: path.stat().st_mtime_ns for path in Path(home / "cache" / "columns").rglob("*.txt")} == made
