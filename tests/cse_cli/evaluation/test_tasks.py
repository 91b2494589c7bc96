"""What `--tasks` and `--set` of `cse evaluate` mean; components say it, plug-ins too, and nothing here knows one."""

from __future__ import annotations

import pytest

from cse_cli.core.results import STS_TASKS
from cse_cli.evaluation.tasks import parse_tasks
from registry import EVALUATORS
from registry.errors import CseError, MissingError, UnknownNameError
from registry.types import Evaluator

TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
GEOMETRY = ("alignment_uniformity", "similarity_profile", "singular_values")


def sources(asked: str) -> dict[str, tuple[str, str]]:
    return {name: (task.params["dataset"], task.params["split"]) for name, task in parse_tasks(asked).items()}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("stsb", {"stsb": ("stsb", "test")}),
        ("stsb/dev", {"stsb/dev": ("stsb", "dev")}),
        ("stsb, sickr/all", {"stsb": ("stsb", "test"), "sickr/all": ("sickr", "all")}),
        ("stsb,stsb", {"stsb": ("stsb", "test")}),
        ("sts", {name: (name, "test") for name in STS_TASKS}),
        ("sts,stsb", {name: (name, "test") for name in STS_TASKS}),
        ("sts,sickr/all", {**{name: (name, "test") for name in STS_TASKS}, "sickr/all": ("sickr", "all")}),
        ("sts_zh", {"cstsb": ("cstsb", "test"), "simclue": ("simclue", "test")}),
        ("alignment_uniformity", {"alignment_uniformity": ("stsb", "all")}),
    ],
)
def test_data_sets_of_pairs(asked, expected):
    assert sources(asked) == expected
    assert list(sources(asked)) == list(expected)


def test_the_seven_sets_of_the_averages_are_those_of_the_word():
    assert tuple(parse_tasks("sts")) == STS_TASKS


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("transfer", TRANSFER),
        ("mr", ("mr",)),
        ("geometry", GEOMETRY),
        ("all", (*STS_TASKS, *TRANSFER, *GEOMETRY)),
        ("mr,transfer", TRANSFER),
        ("trec,geometry,trec", ("trec", *GEOMETRY)),
    ],
)
def test_words(asked, names):
    found = parse_tasks(asked)
    assert tuple(found) == names
    assert all(task.params.get("task", name) == name for name, task in found.items())


def test_a_file_of_pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.tsv").write_text("rating\tsentence1\tsentence2\n1\ta\tb\n2\tc\td\n", encoding="utf-8")
    found = parse_tasks("own.tsv,stsb", ["own.tsv.score_column=rating", "sts.bootstrap=5", "own.tsv.bootstrap=9"])
    assert [task.component for task in found.values()] == ["sts", "sts"]
    assert found["own.tsv"].params["file"] == "own.tsv"
    assert (found["own.tsv"].params["bootstrap"], found["stsb"].params["bootstrap"]) == (9, 5)
    assert sorted(found["own.tsv"].changed) == ["bootstrap", "score_column"]
    with pytest.raises(CseError, match=r"own\.tsv:1: no column 'score'"):
        parse_tasks("own.tsv")
    with pytest.raises(MissingError, match=r"Did you mean 'own\.tsv'"):
        parse_tasks("owm.tsv")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("stsbb", "unknown task 'stsbb'. Did you mean 'stsb'"),
        ("st", "Did you mean 'sts' or 'stsb'?"),
        ("transfr", "Did you mean 'transfer'?"),
        ("geometri", "Did you mean 'geometry'?"),
        ("sst", "'sst2'"),
        ("alignment_unifomity", "Did you mean 'alignment_uniformity'"),
        ("stsb,", "unknown task ''"),
        ("stsb/tset", "dataset 'stsb' has no split 'tset'. Did you mean 'test'?"),
        ("wiki1m/tset", "dataset 'wiki1m' has no split 'tset'"),
        ("graded_pairs/train", "'graded_pairs/train' has no scored pairs"),
        ("wiki1m", "'wiki1m' has no scored pairs"),
        ("mr/test", "'mr/test': mr has its own protocol and takes no split"),
        ("mutual_information", "evaluator 'mutual_information' looks through the views of a recipe"),
        ("sts_average", "sts_average: evaluator 'sts_average' needs 'datasets'"),
    ],
)
def test_what_is_no_task(asked, says):
    with pytest.raises(CseError) as caught:
        parse_tasks(asked)
    assert says in str(caught.value)
    assert caught.value.exit_code == 2
    assert caught.value.next_action


def test_an_unknown_task_tells_what_there_is():
    with pytest.raises(UnknownNameError) as caught:
        parse_tasks("nothing")
    assert "all, geometry, sts, sts_zh, transfer" in str(caught.value.next_action)


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        (["sts.bootstap=3"], "unknown parameter 'bootstap' of evaluator 'sts'. Did you mean 'bootstrap'?"),
        (["transfer.classifier=logistics"], "the text \"logistics\". Did you mean 'logistic'?"),
        (["sts.bootstrap=many"], 'stsb.bootstrap: should be a whole number, not the text "many"'),
        (["transfr.seed=1"], "none of the tasks is 'transfr'"),
        (["transfr.seed=1"], "Did you mean 'transfer'?"),
        (["sts.bootstrap"], "--set sts.bootstrap: should be task.parameter=value"),
        (["bootstrap=3"], "--set bootstrap: should be task.parameter=value"),
        (["stsb.split=dev"], "--set stsb.split: the task's name 'stsb' says that already"),
        (["sts.dataset=sickr"], "--set sts.dataset: the task's name 'stsb' says that already"),
    ],
)
def test_wrong_settings(assignments, says):
    with pytest.raises(CseError) as caught:
        parse_tasks("stsb,mr", assignments)
    assert says in str(caught.value)
    assert caught.value.next_action


def test_a_task_s_own_setting_wins_over_its_component_s_in_any_order():
    for order in (["mr.folds=3", "transfer.folds=5"], ["transfer.folds=5", "mr.folds=3"]):
        found = parse_tasks("mr,cr", order)
        assert (found["mr"].params["folds"], found["cr"].params["folds"]) == (3, 5)


def test_parameters_a_component_needs_can_be_given():
    found = parse_tasks("sts_average", ['sts_average.datasets=["stsb", "sickr"]', "sts_average.split=dev"])
    assert found["sts_average"].params["datasets"] == ["stsb", "sickr"]


def test_a_task_of_mteb_is_named_with_a_slash():
    pytest.importorskip("mteb", reason="mteb is not installed (extra 'mteb')")
    assert parse_tasks("mteb/STSBenchmark")["mteb/STSBenchmark"].params["task"] == "STSBenchmark"


# --- plug-ins --------------------------------------------------------------------------------------------------------


class Brought(Evaluator):
    """Count the letters of a task's name."""

    metric = "letters"
    metrics = ("letters",)
    suites = {"letters": ("a", "abc"), "all": ("abc",), "geometry": ("brought",)}  # noqa: RUF012

    def __init__(self, word: str = "brought") -> None:
        self.word = word

    @classmethod
    def parameters_for(cls, name):
        return {"word": name} if set(name) <= set("abc") and name else None

    def __call__(self, encode):
        return {"letters": float(len(self.word))}


@pytest.fixture
def plugin(monkeypatch):
    """Register evaluators for one test."""
    assert len(EVALUATORS) > 0
    monkeypatch.setattr(EVALUATORS, "_entries", dict(EVALUATORS._entries))
    return lambda name, **changes: EVALUATORS.register(name)(
        type("Plugin", (Brought,), {"__doc__": Brought.__doc__, **changes})
    )


def test_a_plugin_joins_words_and_brings_its_own(plugin):
    plugin("brought")
    assert {name: task.params for name, task in parse_tasks("letters,cab").items()} == {
        "a": {"word": "a"},
        "abc": {"word": "abc"},
        "cab": {"word": "cab"},
    }
    assert set(parse_tasks("all")) == {*STS_TASKS, *TRANSFER, *GEOMETRY, "abc"}
    assert parse_tasks("geometry")["brought"].params == {"word": "brought"}


def test_two_components_with_a_task_of_one_name(plugin):
    plugin("brought", suites={"all": ("stsb",)}, parameters_for=classmethod(lambda cls, name: {"word": name}))
    with pytest.raises(CseError, match=r"a task called 'stsb': sts \(from cse\) and brought \(from tests\)"):
        parse_tasks("all")


def test_a_component_that_does_not_know_its_own_task(plugin):
    plugin("brought", suites={"letters": ("xyz",)})
    with pytest.raises(CseError, match=r"evaluator 'brought' \(from tests\) lists the task 'xyz'"):
        parse_tasks("letters")
