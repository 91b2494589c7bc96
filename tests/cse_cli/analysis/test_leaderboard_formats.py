"""Five ways to write the leaderboard: what is marked, what is escaped, what other programs read."""

import csv
import io
import json
import re

import pytest

from cse_cli.analysis.leaderboard_view import WRITERS, legend_lines
from cse_cli.core.identity import Identity
from tests.cse_cli.analysis.leaderboard_runs import planned, result, tables, written

NEAR = planned([result(seed, 71.57 + value) for seed, value in enumerate((0.0, 0.1, 0.41))])
"""Within the spread of the paper's STS12, far from its STS13."""


def line_of(text, label):
    (found,) = [line for line in text.split("\n") if line.strip().startswith(label)]
    return found


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_shows_every_number_whole(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    text = re.sub(r"\x1b\[[0-9;]*m", "", written("table", NEAR))
    assert {len(line) for line in text.split("\n") if "──" in line} <= set(range(70, columns + 1))
    for number in ("71.57", "71.74", "−10.61▼", "+0.17≈", "75.68?"):
        assert number in text


def test_a_difference_is_marked_and_bold_only_where_it_is_one():
    text = written("md", NEAR)
    line = line_of(text, "| &emsp;to IFCL-BERT base")
    assert "| +0.17≈ |" in line
    assert "| **−10.61▼** |" in line
    strong = re.findall(r"\*\*(.*?)\*\*", text)
    assert strong
    assert all(re.fullmatch(r"[+−]\d+\.\d+[▲▼]", cell) for cell in strong)


def test_the_legend_explains_every_mark_that_occurs_and_no_other():
    told = legend_lines(tables(NEAR), "bold")
    assert [line[0] for line in told[:-1]] == ["±", "≈", "▼", "?"]
    assert told[-1] == "bold: a statistically significant difference"


def test_csv_has_one_line_a_cell():
    shown = tables([result(0), result(1, 71.0)])
    read = list(csv.DictReader(io.StringIO(WRITERS["csv"](shown))))
    assert len(read) == sum(len(row.scores) for block in shown for row in block.rows)
    (cell,) = [c for c in read if c["source"] == "measured" and c["column"] == "STS12"]
    assert (cell["encoder"], cell["n"], float(cell["mean"]), float(cell["reference"])) == (
        "bert-base", "2", 70.5, 71.57,
    )  # fmt: skip
    assert cell["marks"] == "within"


def test_json_is_one_versioned_document():
    document = json.loads(written("json", [result()]))
    assert document["schema_version"] == 6
    (table,) = document["tables"]
    (row,) = [r for r in table["rows"] if r["source"] == "measured"]
    assert row["scores"]["STS12"]["difference"] == pytest.approx(-1.57)
    assert row["scores"]["STS12"]["marks"] == ["single seed"]


@pytest.mark.parametrize("form", ["table", "md", "latex"])
def test_doubts_about_a_whole_table_stand_below_it(form):
    text = written(form, [], table="ifcl/chinese")
    assert "whole table: CnData, 100,000 random sentences" in text


def test_latex_is_booktabs_with_as_many_cells_as_columns():
    text = written("latex", NEAR)
    (columns,) = re.findall(r"\\begin\{tabular\}\{l(r+)\}", text)
    body = text.split("\\toprule\n")[1].split("\\bottomrule")[0]
    lines = [line for line in body.split("\n") if line.endswith("\\\\")]
    assert len(lines) > 20
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(columns)}
    assert "\\textbf{$-$10.61$^\\downarrow$}" in text
    assert text.count("\\begin{table}") == text.count("\\end{table}") == 1


def test_every_printed_name_can_be_written_in_latex():
    text = WRITERS["latex"](tables([], table="conisi/7") + tables(NEAR, community=True))
    assert "U+" not in text
    assert text.isascii() or not re.search(r"[^\x00-\x7f\u00c0-\u00ff]", text)


def test_long_labels_of_experiments_fit_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    identities = [Identity(settings="a", code={"losses.virtual_neighbors": digit * 64}) for digit in "12"]
    text = re.sub(r"\x1b\[[0-9;]*m", "", written("table", [result(identity=one) for one in identities]))
    lines = [line for line in text.split("\n") if "ifcl_en [code of" in line]
    assert [line.count("70.00") for line in lines] == [8, 8]
    assert max(map(len, lines)) <= 80
