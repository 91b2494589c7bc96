"""Reproductions without training: synthetic results of known recipes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cse_cli.reproduce.document import Reproduction, make_reproduction
from cse_cli.reproduce.target import find_target
from tests.support.records import result

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


def quickstart(tests: Sequence[float], overrides: Sequence[str] = ()) -> Reproduction:
    """Return the reproduction of the quickstart by seeds with these test scores."""
    target = find_target("quickstart", overrides)
    results = [
        result(recipe="quickstart", seed=seed, scores={"dev": {"spearman": 68.0}, "test": {"spearman": score}},
               metric_for_best_model="dev.spearman", run_id=f"{seed:032x}")
        for seed, score in enumerate(tests)
    ]  # fmt: skip
    options = [word for text in overrides for word in ("--set", text)]
    return make_reproduction(target, results, [*options, "--seeds", str(len(tests))])


def ifcl(averages: Sequence[float]) -> Reproduction:
    """Return the reproduction of IFCL's row by seeds with these scores on every task."""
    target = find_target("ifcl/1/IFCL-BERT base")
    results = [
        result(recipe="ifcl_en", seed=seed, scores={name: {"spearman": score} for name in TASKS},
               run_id=f"{seed:032x}")
        for seed, score in enumerate(averages)
    ]  # fmt: skip
    return make_reproduction(target, results, ["--seeds", str(len(averages))])


@pytest.fixture(autouse=True)
def state(home: object) -> None:
    """Use a state directory of the test's own."""
