"""The configuration that `cse leaderboard` shows, against dev means computed from the files of the runs."""

import json
import random
import tomllib
from collections import defaultdict
from statistics import fmean

import pytest

from cse_cli.core.paths import runs
from tests.cse_cli.analysis.recorded import record
from tests.support.command import cse

pytestmark = pytest.mark.usefixtures("home")
RECIPES = ("mini/simcse_en", "mini/ifcl_en", "mini/mocose_en", "mini/focal_infonce_en", "mini/conisi_s_en")
CONFIGURATIONS = ([], ["train.batch_size=8"], ["train.learning_rate=1e-3"], ["data.max_length=16"])
SEEDS = (0, 1, 2)


def record_all(draw):
    """Record every configuration. The higher its dev score, the lower its test score."""
    for recipe in RECIPES:
        for overrides in CONFIGURATIONS:
            center = draw.uniform(50, 70)
            for seed in SEEDS:
                dev = center + draw.uniform(-8, 8)
                scores = {"stsb_dev": {"spearman": dev}, "stsb": {"spearman": 120 - dev}}
                curve = {"curve": {10: dev}, "selected_step": 10, "metric_for_best_model": "stsb_dev.spearman"}
                record(recipe, seed, overrides=overrides, keep=False, evaluators=(), scores=scores, **curve)


def best_by_dev():
    """Return recipe → settings hash with the highest mean dev score, from `run.toml` and `result.json` alone."""
    dev = defaultdict(lambda: defaultdict(list))
    for file in runs().glob("*/result.json"):
        about = tomllib.loads((file.parent / "run.toml").read_text(encoding="utf-8"))
        scored = json.loads(file.read_text(encoding="utf-8"))
        dev[about["recipe"]][scored["identity"]["settings"]].append(scored["scores"]["stsb_dev"]["spearman"])
    assert {len(seeds) for of_recipe in dev.values() for seeds in of_recipe.values()} == {len(SEEDS)}
    assert [len(of_recipe) for of_recipe in dev.values()] == [len(CONFIGURATIONS)] * len(RECIPES)
    return {recipe: max(of, key=lambda settings: fmean(of[settings])) for recipe, of in dev.items()}


def test_the_shown_configuration_has_the_best_mean_dev_score(capsys):
    record_all(random.Random(31))
    _, out, _ = cse("leaderboard", "--format", "json", capsys=capsys)
    measured = [row for table in json.loads(out)["tables"] for row in table["rows"] if row["source"] == "measured"]
    assert {row["recipe"]: row["recipe_hash"] for row in measured} == best_by_dev()
    assert {row["configurations"] for row in measured} == {len(CONFIGURATIONS)}
    _, screen, _ = cse("leaderboard", capsys=capsys)
    assert screen.count("(best of 4)") == len(RECIPES)
