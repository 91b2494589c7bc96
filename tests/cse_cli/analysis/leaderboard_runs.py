"""Finished results as a leaderboard gets them."""

from datetime import UTC, datetime

from cse_cli.analysis.leaderboard import Asked, Found, blocks
from cse_cli.analysis.leaderboard_view import FORMATS
from cse_cli.core.results import STS_TASKS, PaperRow, Result, Versions

IFCL = PaperRow(key="ifcl", table="sts_en", row="IFCL-BERT base")


def result(seed=0, score=70.0, **changes):
    values = {
        "recipe": "ifcl_en",
        "title": "IFCL, English",
        "recipe_hash": "a" * 16,
        "language": "en",
        "seed": seed,
        "paper": IFCL,
        "model": "bert-base-uncased",
        "scores": {task: {"spearman": score, "pearson": 1.0} for task in STS_TASKS},
        "steps": 10,
        "versions": Versions(cse="0", python="3.11", torch="2", transformers="5"),
        "device": "cpu",
        "precision": "fp32",
        "seconds": 1.0,
        "finished": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return Result(**{**values, **changes})


def mini(seed=0, score=60.0, before=45.0, **changes):
    values = {
        "recipe": "mini/ifcl_en",
        "recipe_hash": "d" * 16,
        "title": "Mini",
        "paper": None,
        "model": "mini_en",
        "scores": {"dev": {"spearman": score}},
        "untrained": {"dev": {"spearman": before}},
    }
    return result(seed, **{**values, **changes})


def current(result):
    return "current"


def tables(results, judge=current, **asked):
    return blocks(Found(results, {}, judge), Asked(**asked))


def written(form, results, judge=current, **asked):
    return FORMATS[form](tables(results, judge, **asked))
