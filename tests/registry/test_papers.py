"""The papers' tables hold together: averages, bold, flags, and recipes that answer rows."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from registry import papers
from registry.errors import UnknownNameError
from registry.papers import AVERAGE, PaperTables, Row, Table

RECIPES = Path(__file__).parents[2] / "recipes"


def test_ifcl_has_its_six_tables_in_printed_order():
    tables = papers.load("ifcl").tables
    assert {name: table.number for name, table in tables.items()} == {
        "sts_en": 1, "ablation": 2, "chinese": 3, "mutual_information": 4, "queue_length": 5, "hyper_parameters": 6,
    }  # fmt: skip
    assert [len(table.rows) for table in tables.values()] == [16, 6, 5, 3, 5, 10]


@pytest.mark.parametrize(
    ("table", "row", "column", "value"),
    [
        ("sts_en", "IFCL-BERT base", "Avg", 77.80),
        ("sts_en", "SimCSE-BERT base", "STS-B", 76.85),
        ("sts_en", "IFCL-BERT large", "SICK-R", 76.30),
        ("ablation", "w/o TL", "STS-B", 78.65),
        ("chinese", "BERT-whitening (C-STS-B)", "SimCLUE", None),
        ("chinese", "IFCL-BERT (CnData)", "SimCLUE", 44.42),
        ("mutual_information", "SimCSE", "MI(h,h-)", None),
        ("queue_length", "M=416", "C-STS-B", 70.60),
        ("hyper_parameters", "learning rate", "CnData", 1e-5),
    ],
)
def test_cells_are_as_printed(table, row, column, value):
    assert papers.load("ifcl").tables[table].values(row)[column] == value


def test_cells_keep_the_printed_digits():
    assert papers.load("ifcl").tables["sts_en"].rows["BERT base"].cells[0] == "39.70"


@pytest.mark.parametrize("key", papers.names())
def test_every_printed_average_is_the_mean_of_its_row_unless_flagged(key):
    checked = 0
    for table in papers.load(key).tables.values():
        averages = [column.name for column in table.columns if column.evaluator == AVERAGE]
        scores = [column.name for column in table.columns if column.evaluator not in (None, AVERAGE)]
        for name in table.rows if averages else ():
            values = table.values(name)
            mean = sum(values[score] for score in scores) / len(scores)
            agrees = abs(mean - values[averages[0]]) <= 0.005 + 1e-9
            flagged = any(f.kind == "misprint" and f.implied is not None for f in table.doubts(name))
            assert agrees != flagged, f"{key}: {name}: printed {values[averages[0]]}, mean {mean:.3f}"
            checked += 1
    assert checked >= 16


def test_every_bold_cell_is_its_columns_maximum_unless_flagged():
    wrong = set()
    for identifier, table in papers.load("ifcl").tables.items():
        for name, row in table.rows.items():
            block = [other for other, r in table.rows.items() if r.encoder == row.encoder]
            for column in row.bold:
                best = max(v for v in (table.values(other)[column] for other in block) if v is not None)
                if table.values(name)[column] != best:
                    wrong.add((identifier, name, column))
    flagged = {
        (identifier, flag.row, flag.column)
        for identifier, table in papers.load("ifcl").tables.items()
        for flag in table.flags
        if flag.kind == "bold_not_maximum"
    }
    assert wrong == flagged == {("sts_en", "IFCL-BERT base", "STS13"), ("sts_en", "IFCL-BERT base", "STS16")}


def test_doubtful_points_of_the_fact_sheet_are_flagged():
    tables = papers.load("ifcl").tables
    kinds = {identifier: {flag.kind for flag in table.flags} for identifier, table in tables.items()}
    assert {"bold_not_maximum", "other_aggregate", "selection_unknown"} <= kinds["sts_en"]
    assert {"text_only", "disagrees"} <= kinds["ablation"]
    assert "not_reproducible" in kinds["mutual_information"]
    assert [f.implied for f in tables["ablation"].doubts("w/o FI, TL, HQ (SimCSE)")] == [76.85]


def test_training_data_marks():
    rows = papers.load("ifcl").tables["chinese"].rows
    assert [row.mark for row in rows.values()] == [None, "bullet", "bullet", "diamond", "diamond"]
    assert all((row.mark is None) == (row.data is None) for row in rows.values())


def test_rows_are_answered_by_recipes_that_exist():
    named = {
        row.recipe
        for key in papers.names()
        for table in papers.load(key).tables.values()
        for row in table.rows.values()
        if row.recipe
    }
    assert len(named) >= 3
    assert named <= {path.relative_to(RECIPES).with_suffix("").as_posix() for path in RECIPES.rglob("*.toml")}


def test_unknown_paper_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'ifcl'"):
        papers.load("iflc")


def _table(**changes):
    table = {
        "number": 1, "caption": "", "metric": "", "varied": "", "columns": [{"name": "A"}, {"name": "B"}],
        "rows": {"r": {"cells": "1 2", "recipe": "x"}},
    }  # fmt: skip
    return {**table, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": {"r": {"cells": "1", "recipe": "x"}}}, "1 cells for 2 columns"),
        ({"rows": {"r": {"cells": "1 2"}}}, "or, as `unanswered`, why none does"),
        ({"rows": {"r": {"cells": "1 2", "recipe": "x", "bold": ["C"]}}}, "bold names no column"),
        ({"flags": [{"kind": "misprint", "note": "", "row": "q"}]}, "a flag names no row"),
        ({"flags": [{"kind": "misprint", "note": "", "column": "C"}]}, "a flag names no column"),
        ({"flags": [{"kind": "hunch", "note": ""}]}, "flags.0.kind"),
    ],
)
def test_a_crooked_table_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        Table.model_validate(_table(**changes))


def test_row_numbers():
    assert Row(cells="1e-5 - 0.80", recipe="x").numbers == (1e-5, None, 0.8)


def test_a_paper_needs_a_table():
    with pytest.raises(ValidationError):
        PaperTables(key="k", short="K", citation="", url="", tables={})


def test_loading_is_light():
    code = "import sys; from registry import papers; papers.load('ifcl'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
