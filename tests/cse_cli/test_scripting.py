"""The fields of JSON documents are those that docs/scripting.md names."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

from cse_cli.analysis.compare import ComparisonDocument
from cse_cli.app import app
from cse_cli.tuning.results import Search
from tests.cse_cli.analysis.recorded import record
from tests.support.command import cse
from tests.support.records import recorded

PAGE = (Path(__file__).parents[2] / "docs" / "scripting.md").read_text(encoding="utf-8")
DOCUMENTS = {
    command: re.findall(r"`([a-z_]+)`", fields.partition(";")[0])
    for commands, fields in re.findall(r"^\| (`cse .+?) \| (.+) \|$", PAGE.partition("## Documents")[2], re.MULTILINE)
    for command in re.findall(r"`cse ([a-z -]+)`", commands)
}


@pytest.fixture
def two_methods():
    for seed in range(2):
        record("simcse_en", seed, evaluators=("stsb",))
        record("ifcl_en", seed, evaluators=("stsb",))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "quickstart"],
        ["check", "--data", "quickstart"],
        ["cite", "quickstart"],
        ["compare", "simcse_en", "ifcl_en"],
        ["data", "list"],
        ["data", "inspect", "quickstart"],
        ["doctor"],
        ["leaderboard"],
        ["plan", "quickstart"],
        ["runs", "ls"],
        ["runs", "show", "simcse_en seed 0"],
        ["tune", "ls"],
        ["cp", "quickstart", "copied.toml"],
        ["report", "simcse_en seed 0", "--output", "written.md"],
        ["push", "simcse_en seed 0", "me/model"],
        ["runs", "export", "runs.zip"],
        ["runs", "import", "known.zip"],
        ["runs", "rm", "simcse_en seed 1", "--yes"],
        ["runs", "stop", "unended", "--no-wait"],
        ["runs", "sync"],
    ],
    ids=" ".join,
)
def test_a_document_has_the_fields_of_the_page(arguments, two_methods, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CSE_MIRRORS", "mlflow")
    monkeypatch.setattr(import_module("cse_cli.push"), "push_model", lambda *_, **__: "https://huggingface.co/me/model")
    cse("runs", "export", "known.zip", capsys=capsys)
    recorded(end=None, name="unended")
    name = next(name for name in sorted(DOCUMENTS, key=len, reverse=True) if " ".join(arguments).startswith(name))
    _, out, _ = cse(*arguments, "--json", capsys=capsys)
    assert set(json.loads(out)) == {"schema_version", *DOCUMENTS[name]}


def test_every_command_that_prints_has_a_document():
    def commands(group, before):
        for name, one in group.commands.items():
            yield from commands(one, f"{before}{name} ") if hasattr(one, "commands") else [(f"{before}{name}", one)]

    found = dict(commands(typer.main.get_command(app), ""))
    with_json = {name for name, one in found.items() if any("--json" in option.opts for option in one.params)}
    assert found.keys() - with_json == {"schema", "ui"}
    assert with_json == DOCUMENTS.keys() - {"check --data", "tune ls"} | {"runs logs"}


def test_documents_of_models_have_the_fields_of_the_page():
    assert set(DOCUMENTS["compare"]) == ComparisonDocument.model_fields.keys() - {"schema_version"}
    answers = {"best", "verdict", "confirmed"}
    assert set(DOCUMENTS["tune"]) == {*Search.model_fields, *answers} - {"schema_version"}


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["show", "simcse_en"], {"name", "path", "extends", "hash", "text", "recipe", "badge"}),
        (["show", "info_nce"], {"components"}),
        (["list", "recipes"], {"recipes", "broken_plugins"}),
    ],
)
def test_other_documents(arguments, fields, capsys):
    _, out, _ = cse(*arguments, "--json", capsys=capsys)
    assert set(json.loads(out)) == {"schema_version", *fields}


def test_the_log_as_json_is_what_was_recorded(two_methods, capsys):
    from cse_cli.runs.events import FILE
    from cse_cli.runs.index import find_run

    _, out, _ = cse("runs", "logs", "simcse_en seed 0", "--json", capsys=capsys)
    lines = (find_run("simcse_en seed 0").about.path / FILE).read_text(encoding="utf-8")
    assert [json.loads(line) for line in out.splitlines()] == [json.loads(line) for line in lines.splitlines()]
    assert out


def test_the_leaderboard_as_json_is_its_format(two_methods, capsys):
    assert cse("leaderboard", "--json", capsys=capsys) == cse("leaderboard", "--format", "json", capsys=capsys)
