"""Identity of a search: which commands continue it, and which are refused."""

from __future__ import annotations

import pytest

from cse_cli.data.identity import Known
from cse_cli.tuning.study import check_same_search, directory, load_study, open_study
from tests.cse_cli.tuning.fake import config, parameter, recipe, trials
from tests.support.errors import refuses


def test_different_settings_are_listed(tmp_path):
    open_study(config(tmp_path))
    changes = {
        "train.batch_size: 64 → 32": {"overrides": ("train.batch_size=32",)},
        "space.train.learning_rate.high: 0.001 → 0.01": {"parameters": (parameter(high=0.01),)},
        "seeds: [42] → [0, 1]": {"seeds": (0, 1)},
        "steps: None → 4": {"steps": 4},
        "evaluators.dev.dataset: 'stsb_open' → 'stsb'": {"overrides": ("evaluators.dev.dataset=stsb",)},
    }
    for message, change in changes.items():
        for resume in (False, True):
            with refuses("tune.different_settings", "'search'", message):
                open_study(config(tmp_path, resume=resume, **change))
    assert len(trials(config(tmp_path))) == 1


def made(settings="a", **parts):
    """Return what a study keeps of the identity of its base recipe."""
    return {"experiment": Known(settings=settings, **parts).model_dump()}


def test_another_recipe_is_refused_with_its_tables():
    before = {**ASKED, **made("a"), "settings": {"queue": {"name": "fifo"}, "train": {"betas": [0.9, 0.99]}}}
    after = {**ASKED, **made("b"), "settings": {"head": {"name": "mlp"}, "train": {"betas": [0.9, 0.95]}}}
    with refuses("tune.different_settings", "head: None → {", "queue: {", "train.betas: [0.9, 0.99] → [0.9, 0.95]"):
        check_same_search("search", before, after)


def test_a_resumed_search_must_exist(tmp_path):
    open_study(config(tmp_path, name="queue"))
    with refuses("tune.unknown_search", "'quue'", "Did you mean 'queue'?"):
        load_study("quue")
    assert not directory("quue").exists()


def test_a_renamed_recipe_continues_the_search(tmp_path):
    open_study(config(tmp_path))
    open_study(config(tmp_path, recipe=str(recipe(tmp_path, "renamed")), resume=True))


ASKED = {"direction": "maximize", "metric": "dev.spearman", "seeds": [0], "steps": None, "space": {}, "settings": {}}
THEN = {"text": "1" * 64, "weights": {"encoders.bert": "2" * 64}, "code": {"losses.info_nce": "3" * 64}}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"text": "4" * 64}, "text 11111111 / 44444444"),
        ({"weights": {"encoders.bert": "5" * 64}}, "weights of encoders.bert 22222222 / 55555555"),
        ({"code": {"losses.info_nce": "6" * 64}}, "code of losses.info_nce"),
    ],
)
def test_another_identity_is_refused(changed, named):
    known = {**ASKED, **made(**THEN)}
    check_same_search("search", known, known)
    with refuses("tune.different_settings", named, "--name"):
        check_same_search("search", known, {**ASKED, **made(**{**THEN, **changed})})


def test_what_is_unknown_on_either_side_counts_as_equal():
    known = {**ASKED, **made(**THEN, scored={"stsb/dev": "7" * 64})}
    parts = {"text": None, "weights": {"encoders.bert": None}, "scored": {"evaluators.dev": None}}
    unknown = {**ASKED, **made(**{**THEN, **parts})}
    check_same_search("search", known, unknown)
    check_same_search("search", unknown, known)
