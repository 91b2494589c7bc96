"""Task lists, and whose settings count when a model is scored."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.results import STS_TASKS
from cse_cli.run_folder import RunFolder, model_of_run
from cse_cli.scoring import Request, evaluators, score_models
from registry import catalogue
from registry.errors import CseError, UnknownNameError
from registry.evaluators.sts import Sts
from tests.shrunken import pairs
from tests.tiny import tiny_bert


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "read_pairs", pairs)
    monkeypatch.setattr(catalogue, "fingerprint", lambda name, split: "digest")


def named(tasks: str) -> dict[str, tuple[str, str]]:
    found = {}
    for name, evaluator in evaluators(tasks).items():
        assert isinstance(evaluator, Sts)
        found[name] = (evaluator.dataset, evaluator.split)
    return found


def test_sts_is_the_seven_english_sets():
    assert named("sts") == {name: (name, "test") for name in STS_TASKS}
    assert len(STS_TASKS) == 7


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ("stsb", {"stsb": ("stsb", "test")}),
        ("stsb/dev", {"stsb/dev": ("stsb", "dev")}),
        ("stsb, sickr/all", {"stsb": ("stsb", "test"), "sickr/all": ("sickr", "all")}),
        ("stsb,stsb", {"stsb": ("stsb", "test")}),
        ("sts,stsb", {name: (name, "test") for name in STS_TASKS}),
        ("sts,sickr/all", {**{name: (name, "test") for name in STS_TASKS}, "sickr/all": ("sickr", "all")}),
    ],
)
def test_task_lists(tasks, expected):
    assert named(tasks) == expected


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ("stsbb", "unknown task 'stsbb'. Did you mean 'stsb'"),
        ("st", "Did you mean 'sts'"),
        ("stsb,", "unknown task ''"),
        ("stsb/tset", "dataset 'stsb' has no split 'tset'. Did you mean 'test'?"),
    ],
)
def test_unknown_tasks(tasks, says):
    with pytest.raises(UnknownNameError) as caught:
        evaluators(tasks)
    assert says in str(caught.value)


def test_text_without_scores_is_no_task():
    with pytest.raises(CseError, match="'graded_pairs/train' has no scored pairs"):
        evaluators("graded_pairs/train")


def test_a_wrong_task_is_found_before_a_model_is_opened(monkeypatch):
    monkeypatch.setattr("cse_cli.scoring.open_encoder", lambda *_: pytest.fail("opened"))
    with pytest.raises(UnknownNameError):
        score_models(["x"], Request("nothing", None, None, 8, "cpu"))


@pytest.mark.parametrize(("asked", "used"), [(None, 64), (16, 16), (500, 64)])
def test_the_length_is_the_model_s_own_at_most(asked, used, tmp_path):
    (one,) = score_models([str(tiny_bert(tmp_path))], Request("stsb", "mean", asked, 8, "cpu"))
    assert one.max_length == used
    assert one.pooling == "mean"
    assert one.fingerprints == {"stsb/test": "digest"}
    assert set(one.scores) == {"stsb"}


def saved_run(run_id: str, model: bool = True) -> Path:
    folder = RunFolder(run_id, "r", Path("r.toml"), {"train": {"seed": 1}})
    folder.create()
    if model:
        (folder.path / "model").mkdir()
    return folder.path / "model"


def test_a_run_id_means_its_model():
    first = saved_run("abc123")
    saved_run("abd456")
    saved_run("fff", model=False)
    assert model_of_run("abc") == str(first)
    assert model_of_run("ab") is None
    assert model_of_run("fff") is None
    assert model_of_run("mini_en") is None
    assert model_of_run("*") is None
    assert model_of_run("") is None
