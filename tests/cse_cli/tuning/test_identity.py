"""Which searches are the same one: what may join a study, and what is refused."""

from __future__ import annotations

import pytest

from cse_cli.tuning.storage import address
from cse_cli.tuning.study import check_same_search, open_study
from registry.errors import CseError, UnknownNameError
from tests.cse_cli.tuning.fake import knob, plan, recipe, trials


def test_another_question_is_refused_with_what_differs(tmp_path):
    open_study(plan(tmp_path))
    changed = {
        "train.batch_size: 64 → 32": {"overrides": ("train.batch_size=32",)},
        "space.train.learning_rate.high: 0.001 → 0.01": {"parameters": (knob(high=0.01),)},
        r"seeds: \[42\] → \[0, 1\]": {"seeds": (0, 1)},
        "steps: None → 4": {"steps": 4},
        "evaluators.dev.dataset: 'graded_pairs' → 'stsb'": {"overrides": ("evaluators.dev.dataset=stsb",)},
    }
    for message, change in changed.items():
        with pytest.raises(CseError, match=message):
            open_study(plan(tmp_path, **change))
        with pytest.raises(CseError, match="'search' asks another question"):
            open_study(plan(tmp_path, join=True, **change))
    assert len(trials(plan(tmp_path))) == 1


def test_another_recipe_is_refused_without_its_whole_tables():
    one = {"direction": "maximize", "metric": "dev.spearman", "seeds": [0], "steps": None, "space": {}}
    queue = {"name": "hippocampus", "length": 128}
    before = {**one, "recipe": "a", "settings": {"queue": queue, "train": {"betas": [0.9, 0.99]}}}
    after = {**one, "recipe": "b", "settings": {"head": {"name": "mlp"}, "train": {"betas": [0.9, 0.95]}}}
    with pytest.raises(CseError) as told:
        check_same_search("search", before, after)
    assert sorted(line.strip() for line in told.value.message.splitlines()[1:]) == [
        "head: None → {…}", "queue: {…} → None", "train.betas: [0.9, 0.99] → [0.9, 0.95]"
    ]  # fmt: skip


def test_a_study_to_join_must_exist(tmp_path):
    open_study(plan(tmp_path, name="queue"))
    with pytest.raises(UnknownNameError, match=r"no study 'quue'.*Did you mean 'queue'"):
        open_study(plan(tmp_path, name="quue", join=True))
    assert not address(None, "quue").exists()


def test_recipes_of_another_name_are_other_files_but_the_same_question(tmp_path):
    open_study(plan(tmp_path))
    open_study(plan(tmp_path, recipe=str(recipe(tmp_path, "renamed")), join=True))
