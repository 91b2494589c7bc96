"""Reported rows of an encoder next to the scores of `cse evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cse_cli.core.results import STS_TASKS
from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.evaluation.view import compare_with_papers, encoder_of
from tests.cse_cli.evaluation.test_view import scored


def model(folder: Path, name: str, **settings: str) -> str:
    """Write a folder that is taken for a model."""
    (folder / name).mkdir()
    (folder / name / "config.json").write_text("{}")
    if settings:
        (folder / name / "cse.json").write_text(json.dumps(settings))
    return str(folder / name)


def test_all_seven_sets_stand_among_the_papers_rows(tmp_path):
    asked = parse_tasks("sts,transfer")
    bert = model(tmp_path, "bert-base-uncased")
    tables = compare_with_papers(scored(asked, bert), asked)
    table = next(table for table in tables if "STS12" in table.columns)
    assert (table.encoder, table.language, table.columns[-1]) == ("bert-base", "en", "Avg")
    (ours,) = [row for row in table.rows if row.source == "measured"]
    assert ours.scores["STS12"].mean == 70.0
    assert ours.scores["Avg"].mean == pytest.approx(71.5)
    means = [row.scores["Avg"].mean for row in table.rows]
    assert means == sorted(means, reverse=True)
    assert any(row.name == "IFCL-BERT base" for row in table.rows)
    assert any("MR" in table.columns for table in tables)


def test_a_trained_model_is_of_the_encoder_that_it_began_with(tmp_path):
    trained = model(tmp_path, "model", origin="google-bert/bert-base-uncased")
    assert encoder_of(trained) == "bert-base"
    assert encoder_of(model(tmp_path, "other")) == "other"


@pytest.mark.parametrize(
    ("name", "tasks", "settings"),
    [
        ("mine", "sts", ()),
        ("bert-base-uncased", ",".join(STS_TASKS[:6]), ()),
        ("bert-base-uncased", "sts", ("sts.aggregate=mean",)),
    ],
    ids=["in no paper", "a set is missing", "scored otherwise"],
)
def test_what_papers_do_not_print_stands_beside_nothing(tmp_path, name, tasks, settings):
    asked = parse_tasks(tasks, settings)
    assert compare_with_papers(scored(asked, model(tmp_path, name)), asked) == []
