"""What `--tasks` and `--set` of `cse evaluate` mean; components say it, plug-ins too, and nothing here knows one."""

from __future__ import annotations

import pytest

from cse_cli.core.results import STS_TASKS
from cse_cli.evaluation.tasks import parse_tasks
from registry import EVALUATORS
from registry.errors import CseError, MissingError
from registry.types import Evaluator
from tests.support.errors import refuses

TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
GEOMETRY = ("alignment_uniformity", "singular_values")


def sources(asked: str) -> dict[str, tuple[str, str]]:
    return {name: (task.params["dataset"], task.params["split"]) for name, task in parse_tasks(asked).items()}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("stsb", {"stsb": ("stsb", "test")}),
        ("stsb/dev", {"stsb/dev": ("stsb", "dev")}),
        ("sts,sickr/all", {**{name: (name, "test") for name in STS_TASKS}, "sickr/all": ("sickr", "all")}),
        ("sts_zh", {"cstsb": ("cstsb", "test"), "simclue": ("simclue", "test")}),
        ("alignment_uniformity", {"alignment_uniformity": ("stsb", "all")}),
    ],
)
def test_data_sets_of_pairs(asked, expected):
    assert sources(asked) == expected
    assert list(sources(asked)) == list(expected)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
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
    with pytest.raises(CseError, match=r"own\.tsv:1:.*'score'"):
        parse_tasks("own.tsv")
    with pytest.raises(MissingError, match=r"'own\.tsv'"):
        parse_tasks("owm.tsv")


@pytest.mark.parametrize(
    ("asked", "code", "values"),
    [
        ("stsbb", "evaluate.unknown_task", ("'stsbb'", "'stsb'")),
        ("transfr", "evaluate.unknown_task", ("'transfer'",)),
        ("sst", "evaluate.unknown_task", ("'sst2'",)),
        ("stsb,", "evaluate.unknown_task", ("''", "all, geometry, sts, sts_zh, transfer")),
        ("stsb/tset", "", ("'stsb'", "'tset'", "'test'")),
        ("wiki1m/tset", "", ("'wiki1m'", "'tset'")),
        ("tatoeba_open/train", "evaluate.no_gold_scores", ("'tatoeba_open/train'",)),
        ("mr/test", "", ("'mr/test'",)),
        ("mutual_information", "evaluate.needs_recipe", ("'mutual_information'", "views")),
        ("sts_average", "evaluate.bad_parameter", ("sts_average", "'datasets'")),
    ],
)
def test_names_that_are_not_tasks(asked, code, values):
    with pytest.raises(CseError) as caught:
        parse_tasks(asked)
    assert all(value in str(caught.value) for value in values)
    assert caught.value.code == code or not code
    assert caught.value.exit_code == 2
    assert caught.value.next_action


@pytest.mark.parametrize(
    ("assignment", "code", "values"),
    [
        ("sts.bootstap=3", "evaluate.bad_parameter", ("'bootstap'", "'bootstrap'")),
        ("transfer.classifier=logistics", "evaluate.bad_parameter", ("logistics", "'logistic'")),
        ("sts.bootstrap=many", "evaluate.bad_parameter", ("stsb.bootstrap", "many")),
        ("transfr.seed=1", "evaluate.unknown_task", ("'transfr'", "'transfer'")),
        ("sts.bootstrap", "evaluate.bad_set", ("--set sts.bootstrap",)),
        ("bootstrap=3", "evaluate.bad_set", ("--set bootstrap",)),
        ("stsb.split=dev", "evaluate.fixed_parameter", ("--set stsb.split", "'stsb'")),
        ("sts.dataset=sickr", "evaluate.fixed_parameter", ("--set sts.dataset", "'stsb'")),
    ],
)
def test_wrong_settings(assignment, code, values):
    with refuses(code, *values):
        parse_tasks("stsb,mr", [assignment])


def test_a_setting_of_a_task_overrides_its_components():
    for order in (["mr.folds=3", "transfer.folds=5"], ["transfer.folds=5", "mr.folds=3"]):
        found = parse_tasks("mr,cr", order)
        assert (found["mr"].params["folds"], found["cr"].params["folds"]) == (3, 5)


def test_parameters_a_component_needs_can_be_given():
    found = parse_tasks("sts_average", ['sts_average.datasets=["stsb", "sickr"]', "sts_average.split=dev"])
    assert found["sts_average"].params["datasets"] == ["stsb", "sickr"]


def test_a_task_of_mteb_is_named_with_a_slash():
    pytest.importorskip("mteb", reason="mteb is not installed (extra 'mteb')")
    assert parse_tasks("mteb/STSBenchmark")["mteb/STSBenchmark"].params["task"] == "STSBenchmark"


def test_a_benchmark_of_mteb_is_its_tasks(monkeypatch):
    pytest.importorskip("mteb", reason="mteb is not installed (extra 'mteb')")
    found = parse_tasks("mteb/MTEB(eng, v2),stsb")
    assert (len(found), next(iter(found)), list(found)[-1]) == (42, "mteb/ArguAna", "stsb")
    expected = {"task": "STS17", "split": "test", "languages": None, "benchmark": "MTEB(eng, v2)"}
    assert dict(found["mteb/STS17"].params) == expected
    with refuses("evaluate.ambiguous_task", "mteb/ArguAna", "MTEB(eng, v1)"):
        parse_tasks("mteb/MTEB(eng, v2),mteb/MTEB(eng, v1)")


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
    assert {name: dict(task.params) for name, task in parse_tasks("letters,cab").items()} == {
        "a": {"word": "a"},
        "abc": {"word": "abc"},
        "cab": {"word": "cab"},
    }
    assert set(parse_tasks("all")) == {*STS_TASKS, *TRANSFER, *GEOMETRY, "abc"}
    assert dict(parse_tasks("geometry")["brought"].params) == {"word": "brought"}


def test_two_components_with_a_task_of_one_name(plugin):
    plugin("brought", suites={"all": ("stsb",)}, parameters_for=classmethod(lambda cls, name: {"word": name}))
    with refuses("evaluate.ambiguous_task", "'stsb'", "sts (from cse)", "brought (from tests)"):
        parse_tasks("all")


def test_a_component_that_does_not_know_its_own_task(plugin):
    plugin("brought", suites={"letters": ("xyz",)})
    with refuses("evaluate.task_without_parameters", "'brought' (from tests)", "'xyz'"):
        parse_tasks("letters")
