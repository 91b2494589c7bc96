"""A package that brings an encoder, an optimizer, a schedule, a data set and a recipe: trained, saved and evaluated."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.support.forked import Forked
from tests.support.programs import ended

EXAMPLE = Path(__file__).parents[2] / "plugin_whole"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Write the metadata that an installer would write."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site" / "cse_bag-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    groups = project["entry-points"].items()
    lines = [line for group, points in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()))]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder.parent


@pytest.fixture
def cse(site: Path, tmp_path: Path):
    """Run `cse` in a new process, in which the package is installed."""
    places = {"PYTHONPATH": f"{site}:{EXAMPLE}", "CSE_HOME": str(tmp_path / "home")}

    def run(*arguments: str) -> str:
        code, out, err = ended(Forked(["cse_cli", *arguments], tmp_path, **places))
        assert code == 0, err
        return out

    return run


@pytest.mark.process
def test_its_recipe_is_trained_saved_and_evaluated(cse, tmp_path: Path) -> None:
    cse("run", "bag/simcse", "--device", "cpu", "--precision", "fp32")
    (run,) = (tmp_path / "home" / "runs").iterdir()
    settings = json.loads((run / "model" / "cse.json").read_text())
    assert settings == {"schema_version": 2, "format": "bag_of_words", "max_length": 128, "settings": {"dim": 8}}
    result = json.loads((run / "result.json").read_text())
    code = tomllib.loads((run / "run.toml").read_text())["identity"]["code"]
    assert {"encoders.bag_of_words", "optimizers.momentum", "schedules.halved"} <= code.keys()
    options = ("--tasks", "stsb_open", "--device", "cpu", "--precision", "fp32", "--json")
    opened = json.loads(cse("evaluate", run.name, str(run / "model"), *options))["models"]
    trained = result["scores"]["test"]["spearman"]
    assert [one["scores"]["stsb_open"]["spearman"] for one in opened] == [trained, trained]
