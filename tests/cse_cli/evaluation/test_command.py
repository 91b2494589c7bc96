"""`cse evaluate`: any encoder on any of the tasks, as a table and as JSON; what cannot be scored is refused."""

from __future__ import annotations

import json

import pytest

from cse_cli.jobs.job import Job
from cse_cli.recipe.load import load
from tests.support.command import cse
from tests.support.running import execute
from tests.support.shrunken import recipe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs")]


def evaluate(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    return cse("evaluate", *map(str, arguments), "--device", "cpu", capsys=capsys)


def test_evaluate_as_json(parts, capsys):
    code, out, _ = evaluate(*parts.models.values(), "--tasks", "stsb/dev,stsb_open", "--json", capsys=capsys)
    document = json.loads(out)
    assert (code, document["schema_version"]) == (0, 1)
    assert [one["model"] for one in document["models"]] == [str(path) for path in parts.models.values()]
    first = document["models"][0]
    assert list(first["scores"]) == ["stsb/dev", "stsb_open"]
    assert first["scores"]["stsb/dev"] == first["scores"]["stsb_open"]
    assert (first["pooling"], first["max_length"], first["precision"]) == ("cls", 64, "fp32")
    assert first["fingerprints"] == {"stsb/dev": "stsb-dev", "stsb_open/test": "stsb_open-test"}


def test_a_precision_that_was_asked_for_changes_the_digits(parts, capsys):
    found = {}
    for precision in ("fp32", "bf16"):
        options = ("--tasks", "singular_values", "--precision", precision, "--json")
        (found[precision],) = json.loads(evaluate(parts.models["bert"], *options, capsys=capsys)[1])["models"]
        assert found[precision]["precision"] == precision
    exact, half = (one["scores"]["singular_values"]["effective_rank"] for one in found.values())
    assert 0 < abs(exact - half) < 0.1
    code, _, err = evaluate(parts.models["bert"], "--precision", "fp16", capsys=capsys)
    assert (code, "error: precision 'fp16' is not supported on a CPU" in err) == (2, True)


def test_evaluate_as_json_tells_every_setting(parts, capsys):
    options = ("--tasks", "mr,stsb,singular_values", "--set", "transfer.classifier=logistic", "--set", "mr.folds=2")
    code, out, _ = evaluate(parts.models["bert"], *options, "--json", capsys=capsys)
    one = json.loads(out)["models"][0]
    assert code == 0
    assert list(one["tasks"]) == list(one["scores"]) == ["mr", "stsb", "singular_values"]
    assert one["tasks"]["mr"]["name"] == "transfer"
    assert one["tasks"]["mr"]["params"] == {
        "task": "mr",
        "classifier": "logistic",
        "l2": [1e-5, 1e-4, 1e-3, 1e-2],
        "folds": 2,
        "seed": 1111,
        "device": "cpu",
    }
    assert one["fingerprints"] == {"mr/all": "mr-all", "stsb/test": "stsb-test", "stsb/all": "stsb-all"}
    assert set(one["scores"]["mr"]) == {"accuracy", "dev_accuracy"}


def test_evaluate_prints_a_table_for_each_evaluator(parts, capsys):
    tasks = ("--tasks", "stsb,sickr/all,singular_values", "--pooling", "mean")
    code, out, _ = evaluate(parts.models["bert"], *tasks, capsys=capsys)
    rows = [line.split() for line in out.rstrip().split("\n")]
    model = str(parts.models["bert"])
    assert code == 0
    assert rows[0] == ["model", "pooling", "max_length", "precision", "seconds"]
    assert rows[1][:4] == [model, "mean", "64", "fp32"]
    assert rows[3:5] == [["sts:", "spearman"], ["stsb", "sickr/all", "avg"]]
    assert rows[5][0] == model
    assert rows[5][1] == rows[5][2] == rows[5][3]
    assert rows[6][:2] == ["word", "overlap"]
    assert rows[8:10] == [["singular_values"], ["effective_rank", "largest_share"]]


def test_evaluate_in_a_template(parts, capsys):
    options = ("--tasks", "stsb/dev", "--pooling", "mask", "--json")
    found = []
    for template in ("a {text} {mask} .", "the {text} sees {mask} ."):
        code, out, _ = evaluate(parts.models["bert"], *options, "--template", template, capsys=capsys)
        (one,) = json.loads(out)["models"]
        assert (code, one["template"], one["pooling"]) == (0, template, "mask")
        found.append(one["scores"]["stsb/dev"]["spearman"])
    assert found[0] != found[1]
    _, out, _ = evaluate(parts.models["bert"], *options[:-1], "--template", "a {text} {mask} .", capsys=capsys)
    assert "mask of a {text} {mask} ." in out


def test_evaluate_a_finished_run_gives_its_own_score(parts, home, tmp_path, capsys):
    one = execute(Job(load(str(recipe(tmp_path, parts))), 3))
    _, out, _ = evaluate(str(one.run_id)[:8], "--tasks", "stsb_open/dev", "--json", capsys=capsys)
    scored = json.loads(out)["models"][0]
    assert scored["scores"]["stsb_open/dev"] == pytest.approx(one.scores["dev"], abs=1e-4)
    assert scored["pooling"] == "mean"


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["--tasks", "sts99"], ("'sts99'", "'sts'")),
        (["--set", "sts.bootstap=3"], ("'bootstrap'",)),
        (["--pooling", "meen"], ("'mean'",)),
        (["--pooling", "mask"], ("{mask}",)),
        (["--template", "no gap"], ("'no gap'",)),
        (["--batch-size", "0"], ("--batch-size",)),
        (["--max-length", "2"], ("--max-length",)),
    ],
)
def test_evaluate_refuses(options, values, parts, capsys):
    code, out, err = evaluate(parts.models["bert"], *options, capsys=capsys)
    assert (code, out) == (2, "")
    assert [value for value in values if value not in err] == []
    assert "Traceback" not in err


def test_the_pooling_is_checked_before_data_is_searched(capsys):
    code, out, err = cse(
        "evaluate", "mini_en", "--pooling", "avg", capsys=capsys
    )  # the STS sets are not on this machine
    assert (code, out) == (2, "")
    assert err.startswith("error: 'avg' is not a pooling.")
