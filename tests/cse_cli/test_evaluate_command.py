"""`cse evaluate`: any encoder on any of the tasks, as a table and as JSON; what cannot be scored is refused."""

from __future__ import annotations

import json

import pytest

from cse_cli.job import Job
from cse_cli.observer import Silent
from cse_cli.recipe.load import load
from cse_cli.running import execute
from tests.cse_cli.running import cse
from tests.cse_cli.tracking.stores import fresh_store
from tests.shrunken import recipe

pytestmark = pytest.mark.usefixtures("few_pairs")


def evaluate(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    return cse("evaluate", *map(str, arguments), "--device", "cpu", capsys=capsys)


def test_evaluate_as_json(parts, capsys):
    code, out, _ = evaluate(*parts.models.values(), "--tasks", "stsb/dev,graded_pairs", "--json", capsys=capsys)
    document = json.loads(out)
    assert (code, document["schema_version"]) == (0, 1)
    assert [one["model"] for one in document["models"]] == [str(path) for path in parts.models.values()]
    first = document["models"][0]
    assert list(first["scores"]) == ["stsb/dev", "graded_pairs"]
    assert first["scores"]["stsb/dev"] == first["scores"]["graded_pairs"]
    assert (first["pooling"], first["max_length"], first["precision"]) == ("cls", 64, "fp32")
    assert first["fingerprints"] == {"stsb/dev": "stsb-dev", "graded_pairs/test": "graded_pairs-test"}


def test_evaluate_prints_a_row_a_model_with_the_mean_of_several_tasks(parts, capsys):
    tasks = ("--tasks", "stsb,sickr/all", "--pooling", "mean")
    code, out, _ = evaluate(parts.models["bert"], *tasks, capsys=capsys)
    heading, row = out.rstrip().split("\n")
    assert code == 0
    assert heading.split() == ["model", "stsb", "sickr/all", "avg", "pooling", "seconds"]
    assert row.split()[0] == str(parts.models["bert"])
    assert row.split()[1] == row.split()[2] == row.split()[3]
    assert row.split()[4] == "mean"


def test_evaluate_a_finished_run_gives_its_own_score(parts, home, tmp_path, capsys):
    fresh_store(home)
    one = execute(Job(load(str(recipe(tmp_path, parts))), 3, "cpu"), Silent())
    _, out, _ = evaluate(str(one.run_id)[:8], "--tasks", "graded_pairs/dev", "--json", capsys=capsys)
    scored = json.loads(out)["models"][0]
    assert scored["scores"]["graded_pairs/dev"] == pytest.approx(one.scores["dev"], abs=1e-4)
    assert scored["pooling"] == "mean"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--tasks", "sts99"], "unknown task 'sts99'. Did you mean 'sts'"),
        (["--tasks", ""], "unknown task ''"),
        (["--tasks", "stsb/devv"], "dataset 'stsb' has no split 'devv'. Did you mean 'dev'?"),
        (["--tasks", "wiki1m/train"], "'wiki1m/train' has no scored pairs"),
        (["--pooling", "meen"], "Did you mean 'mean'"),
        (["--batch-size", "0"], "--batch-size"),
        (["--max-length", "2"], "--max-length"),
    ],
)
def test_evaluate_refuses(options, says, parts, capsys):
    code, out, err = evaluate(parts.models["bert"], *options, capsys=capsys)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_evaluate_an_unknown_model(capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, err = evaluate("mini_enn", capsys=capsys)
    assert (code, out) == (3, "")
    assert "'mini_enn'" in err
    assert "Traceback" not in err
