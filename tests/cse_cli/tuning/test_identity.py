"""Identity of a search: which commands continue it, and which are refused."""

from __future__ import annotations

import pytest

from cse_cli.data.identity import Known
from cse_cli.tuning.results import read_search
from cse_cli.tuning.study import check_same_search, directory, load_study, open_study
from tests.cse_cli.tuning.fake import config, drive, parameter, recipe, trials
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


def test_another_recipe_is_refused_without_its_whole_tables():
    one = {"direction": "maximize", "metric": "dev.spearman", "seeds": [0], "steps": None, "space": {}}
    queue = {"name": "hippocampus", "length": 128}
    before = {**one, **made("a"), "settings": {"queue": queue, "train": {"betas": [0.9, 0.99]}}}
    after = {**one, **made("b"), "settings": {"head": {"name": "mlp"}, "train": {"betas": [0.9, 0.95]}}}
    with refuses("tune.different_settings") as error:
        check_same_search("search", before, after)
    assert sorted(line.strip() for line in error.value.message.splitlines()[1:]) == [
        "head: None → {…}", "queue: {…} → None", "train.betas: [0.9, 0.99] → [0.9, 0.95]"
    ]  # fmt: skip


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


def check(accept_changed=False, **changed):
    """Continue a study with parts of the identity changed."""
    now = {**ASKED, **made(**{**THEN, **changed})}
    return check_same_search("search", {**ASKED, **made(**THEN)}, now, accept_changed=accept_changed)


@pytest.mark.parametrize("accept_changed", [False, True])
def test_other_text_and_weights_are_different_settings(accept_changed):
    with refuses("tune.different_settings", "text 11111111 / 44444444", "weights of encoders.bert 22222222 / 55555555"):
        check(accept_changed, text="4" * 64, weights={"encoders.bert": "5" * 64})


def test_changed_code_is_refused_or_accepted():
    with refuses("tune.changed_code", "code of losses.info_nce", "--accept-changed"):
        check(code={"losses.info_nce": "6" * 64})
    assert check(True, code={"losses.info_nce": "6" * 64}) == ["code of losses.info_nce"]
    assert check() == []


def test_unknown_digests_do_not_differ():
    assert check(text=None, weights={"encoders.bert": None}) == []
    known = {**ASKED, **made(**{**THEN, "text": None, "weights": {"encoders.bert": None}})}
    assert check_same_search("search", known, {**ASKED, **made(**THEN)}) == []


def test_accepted_code_is_stored_and_shown(tmp_path, monkeypatch):
    drive(config(tmp_path, trials=1))
    monkeypatch.setattr("cse_cli.data.identity.code_version", lambda cls: "other")
    with refuses("tune.changed_code", "code of losses.info_nce"):
        open_study(config(tmp_path, trials=2))
    drive(config(tmp_path, trials=2, accept_changed=True))
    drive(config(tmp_path, trials=3))
    search = read_search(load_study("search"))
    assert "code of losses.info_nce" in search.accepted
    assert len(search.trials) == 3
