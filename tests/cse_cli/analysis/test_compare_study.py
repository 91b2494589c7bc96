"""`cse compare mine.STUDY`: the rows of a study as methods, and the summary of many comparisons."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from cse_cli.analysis.experiments import Experiment
from cse_cli.analysis.methods import lettered
from cse_cli.recipe.cells import cell_tag
from cse_cli.recipe.study import load_study
from cse_cli.recipe.trials import trials
from tests.cse_cli.analysis import compared_study as mine
from tests.cse_cli.analysis.compared_study import record_row, record_rows, write_study
from tests.cse_cli.analysis.recorded import record
from tests.support.command import cse, refused
from tests.support.command import document as json_of
from tests.support.records import result

pytestmark = pytest.mark.usefixtures("folder", "home")


def document(capsys, *arguments: str) -> dict:
    return json_of(capsys, "compare", *arguments, "--bootstrap", "100")


def shown(capsys, monkeypatch, *arguments: str) -> str:
    """Return what a terminal of 80 columns shows, without colors."""
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        patch.setenv("COLUMNS", "80")
        patch.setenv("TERM", "xterm")
        code, out, err = cse("compare", *arguments, capsys=capsys)
    assert (code, err) == (0, "")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert [line for line in plain.split("\n") if len(line) > 80] == []
    return plain


def lines_of(out: str) -> list[list[str]]:
    """Return the cells of each line of the summary."""
    table = out.partition("─\n")[2].partition("\n\n")[0]
    return [re.split(r" {2,}", line.strip()) for line in table.split("\n")]


@pytest.mark.slow
def test_every_row_is_a_method_with_the_numbers_of_its_recipe(capsys):
    write_study()
    names = []
    for place, row in enumerate(mine.ROWS):
        names.append(f"recipe{place}.toml")
        Path(names[-1]).write_text(f'extends = "{mine.RECIPE}"\n[losses.info_nce]\ntemperature = {mine.VALUES[row]}\n')
        record_row(row)
    found, recipes = document(capsys, mine.STUDY), document(capsys, *names)
    assert [(side["letter"], side["name"]) for side in found["sides"]] == list(zip("ABCDE", mine.ROWS, strict=True))
    assert {(side["mode"], tuple(side["planned"])) for side in found["sides"]} == {("planned", mine.SEEDS)}
    assert [(one["first"], one["second"]) for one in found["comparisons"]] == [("A", letter) for letter in "BCDE"]
    assert (found["corrected_for"], found["schema_version"]) == (4, 5)
    assert {one["primary"] for one in found["comparisons"]} == {"avg"}
    assert [one["metrics"] for one in found["comparisons"]] == [one["metrics"] for one in recipes["comparisons"]]
    assert [side["recipe_hash"] for side in found["sides"]] == [side["recipe_hash"] for side in recipes["sides"]]
    assert {metric["finding"] for one in found["comparisons"] for metric in one["metrics"]} == {
        "different", "undecided", "selecting", "untested"
    }  # fmt: skip


@pytest.mark.slow
def test_the_summary_on_a_screen(capsys, monkeypatch, snapshot):
    write_study()
    record_rows(mine.ROWS[:4])
    record_row("colder", mine.SEEDS[:3])
    assert shown(capsys, monkeypatch, mine.STUDY) == snapshot


@pytest.mark.slow
def test_details_follow_the_summary_on_demand(capsys, monkeypatch):
    write_study()
    record_rows()
    short, long = (shown(capsys, monkeypatch, mine.STUDY, *more) for more in ((), ("--details",)))
    assert "--details shows" in short
    assert "Differences of the recipes" not in short
    assert long.startswith(short.partition("\n\nn: seeds")[0])
    assert mine.KEY in long
    assert "B − A: hot [red]one compared with plain" in long
    assert "--details" not in long
    # Up to three comparisons have all details.
    write_study(mine.ROWS[:4])
    out = shown(capsys, monkeypatch, mine.STUDY)
    assert out.startswith("avg, compared with plain: hot [red]one is worse by ")
    assert "D − A: cold compared with plain" in out


@pytest.mark.slow
def test_other_programs_get_the_numbers_of_the_document(capsys):
    write_study(mine.ROWS[:3])
    for name in mine.ROWS[:3]:
        mine.record_row(name, word_overlap={"stsb": {"spearman": 57.5}})
    found = document(capsys, mine.STUDY)
    texts = {form: cse("compare", mine.STUDY, "--format", form, capsys=capsys)[1] for form in ("csv", "md", "latex")}
    lines = {(one["name"], one["column"]): one for one in csv.DictReader(io.StringIO(texts["csv"]))}
    overlap = lines.pop(("word overlap", "stsb.spearman"))
    assert (overlap["source"], overlap["mean"]) == ("baseline", "57.5")
    assert texts["csv"].splitlines()[-1] == texts["csv"].splitlines()[[*lines].index([*lines][-1]) + 2]
    assert len(lines) == 3 * len(found["comparisons"][0]["metrics"])
    assert {line["language"] for line in lines.values()} == {"en"}
    for name, comparison in zip(mine.ROWS[1:3], found["comparisons"], strict=True):
        for one in comparison["metrics"]:
            line, over = lines[name, one["metric"]], one["over_seeds"]
            assert (line["kind"], line["reproduces"], line["n"]) == ("comparison", "plain", "5")
            assert float(line["difference"]) == pytest.approx(over["difference"])
            assert line["p"] == ("" if over["p_adjusted"] is None else str(over["p_adjusted"]))
            assert line["significant"] == str(one["finding"] == "different")
    assert float(lines["plain", "avg"]["mean"]) == pytest.approx(60.4)
    assert [lines[row, "avg"]["marks"] for row in mine.ROWS[:3]] == ["", "below", "within"]
    assert "| **−2.00▼** |" in texts["md"]
    assert r"\textbf{$-$2.00$^\downarrow$}" in texts["latex"]
    assert json.loads(cse("compare", mine.STUDY, "--format", "json", capsys=capsys)[1])["schema_version"] == 5


@pytest.mark.slow
def test_every_two_rows(capsys, monkeypatch):
    write_study(mine.ROWS[:4])
    record_rows(mine.ROWS[:4])
    out = shown(capsys, monkeypatch, mine.STUDY, "--pairwise")
    assert out.startswith("avg, every two: of 6 pairs, 4 better, 1 worse, 1 without a significant")
    lines = lines_of(out)
    assert (lines[0][0], lines[0][-1], len(lines)) == ("cold − hot [red]one", "better", 6)
    assert "baseline" not in out
    assert "mean ± sd" not in out


@pytest.mark.slow
def test_together_with_a_recipe_a_run_and_another_study(capsys):
    again = f'[[study.rows]]\nrow = "again"\nset = ["{mine.KEY}=0.2"]\n'
    write_study(mine.ROWS[1:3], tables=again)
    record_rows(mine.ROWS[1:3])
    ids = record_row("plain")
    (other,) = record_row("cold", mine.SEEDS[:1])
    found = document(capsys, mine.RECIPE, mine.STUDY, other)
    assert [side["name"] for side in found["sides"]] == [mine.RECIPE, *mine.ROWS[1:3], f"{other[:8]} ({mine.RECIPE})"]
    assert found["sides"][0]["run_ids"] == ids
    assert "again has the same runs as warm and is not compared" in found["notes"]
    Path("other.toml").write_text(Path(mine.STUDY).read_text().replace("=0.1", "=0.11").replace("=0.2", "=0.21"))
    for row, value in zip(mine.ROWS[1:3], (0.11, 0.21), strict=True):
        record_row(row, overrides=[f"{mine.KEY}={value}"])
    sides = document(capsys, mine.STUDY, "other.toml")["sides"]
    assert [side["name"] for side in sides] == [
        f"{name} · {row}" for name in (mine.STUDY, "other.toml") for row in mine.ROWS[1:3]
    ]


@pytest.mark.slow
def test_missing_seeds_name_the_study_and_equal_remarks_are_one_line(capsys, monkeypatch):
    write_study()
    record_rows(mine.ROWS[:1])
    for row in mine.ROWS[1:]:
        record_row(row, mine.SEEDS[:4])
    out = shown(capsys, monkeypatch, mine.STUDY)
    names = ", ".join(mine.ROWS[1:])
    remark = f"{names}: 4 of 5 planned seeds are finished; the test waits for the others: `cse run {mine.STUDY}`"
    assert remark in " ".join(out.split())
    assert {line[-1] for line in lines_of(out)} == {"—", "baseline"}
    assert "4 without a significant difference" in out


def test_more_methods_than_letters():
    methods = lettered([(Experiment((result(seed=seed),), name=str(seed)), "") for seed in range(28)])
    assert [method.letter for method in methods[25:]] == ["Z", "AA", "AB"]


@pytest.mark.slow
def test_a_tuned_row_has_the_runs_of_its_choice(capsys):
    write_study(
        mine.ROWS[:3],
        tables='[study.tune]\n"train.learning_rate" = [3e-5, 1e-4]\n',
        row='tune = { "train.warmup_steps" = [0, 10] }',
    )
    for row in mine.ROWS[:2]:
        chosen = [f"{mine.KEY}={mine.VALUES[row]}", "train.learning_rate=1e-4", "train.warmup_steps=0"]
        record_row(row, overrides=chosen)
    assert refused("compare", mine.STUDY).code == "compare.no_finished_run"  # no trial has chosen yet
    study = load_study(mine.STUDY)
    for place, trial in enumerate(trials(study)):
        if place != 7:  # the last one of the second row
            best = place % 4 == 2  # the second learning rate, the first number of steps
            digest = "f" * 64 if trial.row == mine.ROWS[2] else trial.cell.hash  # its recipe has changed since
            scores, about = {"stsb_dev": {"spearman": 70.0 + best}}, {"study": cell_tag(study, trial.cell)}
            record(mine.RECIPE, 0, recipe_hash=digest, scores=scores, about=about)
    found = document(capsys, mine.STUDY)
    assert [side["seeds"] for side in found["sides"]] == [list(mine.SEEDS)] * 2
    assert "B: only 3 of 4 trials have finished, so its settings may change" in found["notes"]
    assert not any(note.startswith("A: only") for note in found["notes"])
    assert "1 row whose recipe has changed since its trials, which do not count: warm" in found["notes"]


@pytest.mark.parametrize(
    ("rows", "named", "command"),
    [([], "", ""), (mine.ROWS[1:4], "'plain'", " --row plain"), (mine.ROWS[:1], "'plain'", "")],
)
def test_too_few_rows_with_runs_name_the_command(capsys, rows, named, command):
    write_study()
    record_rows(rows)
    error = refused("compare", mine.STUDY)
    assert named in error.message
    assert f"run `cse run {mine.STUDY}{command}`" in str(error)
    if command:  # without a first row, every two can be compared
        assert document(capsys, mine.STUDY, "--pairwise")["corrected_for"] == 3


@pytest.mark.parametrize(
    ("name", "show"),
    [
        ("studies/focal_infonce_margin", "`cse leaderboard --table focal_infonce/"),
        (mine.STUDY, f"show its table with `cse report {mine.STUDY}`"),
    ],
)
def test_a_study_with_columns_is_no_list_of_methods(name, show):
    write_study(more="", tables='[[study.columns]]\nnames = ["a"]\n[[study.columns]]\nnames = ["b"]\n')
    error = refused("compare", name)
    assert error.code == "compare.study_with_columns"
    assert show in str(error)
    assert "cse runs ls" in str(error)
