"""Which searches are the same one: what may join a study, and what is refused."""

from __future__ import annotations

import pytest

from cse_cli.data.identity import Known
from cse_cli.tuning.results import read_search
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import check_same_search, load_study, open_study
from registry.errors import CseError, UnknownNameError
from tests.cse_cli.tuning.fake import drive, knob, plan, recipe, trials


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


def made(settings="a", **parts):
    """Return what a study keeps of the identity of its base recipe."""
    return {"experiment": Known(settings=settings, **parts).model_dump()}


def test_another_recipe_is_refused_without_its_whole_tables():
    one = {"direction": "maximize", "metric": "dev.spearman", "seeds": [0], "steps": None, "space": {}}
    queue = {"name": "hippocampus", "length": 128}
    before = {**one, **made("a"), "settings": {"queue": queue, "train": {"betas": [0.9, 0.99]}}}
    after = {**one, **made("b"), "settings": {"head": {"name": "mlp"}, "train": {"betas": [0.9, 0.95]}}}
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


ASKED = {"direction": "maximize", "metric": "dev.spearman", "seeds": [0], "steps": None, "space": {}, "settings": {}}
THEN = {"text": "1" * 64, "weights": {"encoders.bert": "2" * 64}, "code": {"losses.info_nce": "3" * 64}}


def check(accept_changed=False, **changed):
    """Continue a study with parts of the identity changed."""
    now = {**ASKED, **made(**{**THEN, **changed})}
    return check_same_search("search", {**ASKED, **made(**THEN)}, now, accept_changed=accept_changed)


@pytest.mark.parametrize("accept_changed", [False, True])
def test_other_text_and_weights_are_another_question(accept_changed):
    with pytest.raises(CseError, match="asks another question:\n  text 11111111 / 44444444\n") as told:
        check(accept_changed, text="4" * 64, weights={"encoders.bert": "5" * 64})
    assert "weights of encoders.bert 22222222 / 55555555" in told.value.message


def test_other_code_is_refused_or_accepted_knowingly():
    with pytest.raises(CseError, match=r"made by other code:\n  code of losses\.info_nce") as told:
        check(code={"losses.info_nce": "6" * 64})
    assert "--accept-changed" in str(told.value)
    assert check(True, code={"losses.info_nce": "6" * 64}) == ["code of losses.info_nce"]
    assert check() == []


def test_what_is_not_on_this_machine_is_no_difference():
    assert check(text=None, weights={"encoders.bert": None}) == []
    known = {**ASKED, **made(**{**THEN, "text": None, "weights": {"encoders.bert": None}})}
    assert check_same_search("search", known, {**ASKED, **made(**THEN)}) == []


def test_accepted_code_is_remembered_and_shown(tmp_path, monkeypatch):
    drive(plan(tmp_path, trials=1))
    monkeypatch.setattr("cse_cli.data.identity.code_digest", lambda cls: "other")
    with pytest.raises(CseError, match=r"code of losses\.info_nce"):
        open_study(plan(tmp_path, trials=2))
    drive(plan(tmp_path, trials=2, accept_changed=True))
    drive(plan(tmp_path, trials=3))
    search = read_search(load_study(None, "search"))
    assert "code of losses.info_nce" in search.accepted
    assert len(search.trials) == 3
