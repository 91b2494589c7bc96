"""The papers' tables hold together: averages, bold, flags, and recipes that answer rows."""

import pytest

from registry import papers
from registry.papers import Row
from tests.support.errors import refuses


def test_rows_that_several_papers_print_are_the_same_numbers():
    """Baselines are copied from SimCSE by all four; Focal-InfoNCE ran SimCSE itself again, and says so."""
    printed = {}
    for key in papers.names():
        for table in papers.load(key).tables.values():
            for name, row in table.rows.items():
                again = any(f.implied is not None for f in table.doubts(name))
                checkpoint = table.number is None
                if row.recipe and len(row.cells) == 8 and not (again or checkpoint) and row.encoder != "bert-large":
                    printed.setdefault(row.recipe, set()).add(row.cells)
    assert {recipe: cells for recipe, cells in printed.items() if len(cells) > 1} == {}
    assert len(printed) >= 12


def test_cells_keep_digits_deviations_and_flags():
    rows = papers.load("focal_infonce").tables["sts"].rows
    assert rows["SimCSE-BERT-base + Focal"].spreads == (0.08, 0.50, 0.15, 0.23, 0.40, 0.37, 0.10, 0.08)
    assert rows["SimCSE-BERT-base"].spreads == (None,) * 8
    assert [name for name, row in rows.items() if row.std] == [name for name in rows if name.endswith("+ Focal")]
    assert papers.load("ifcl").tables["sts_en"].rows["BERT base"].cells[0] == "39.70"
    assert Row(cells="1e-5 - 0.80", recipe="x").numbers == (1e-5, None, 0.8)
    table = papers.load("mocose").tables["ema_decay"]
    assert [flag.kind for flag in table.cell_doubts("Avg", "0.85")] == ["disagrees", "test_selected"]
    assert [flag.kind for flag in table.cell_doubts("Avg", "0.9")] == ["test_selected"]
    main = papers.load("focal_infonce").tables["sts"]
    assert [flag.kind for flag in main.cell_doubts("SimCSE-BERT-base + Focal", "STS14")] == ["misprint", "wording"]
    with refuses("papers.unknown", "Did you mean 'ifcl'"):
        papers.load("iflc")


def wrong_averages(table):
    """Row → mean of its scores, where the printed average is another number; and how many rows print one."""
    found, printed = {}, 0
    headings = [column.name for column in table.columns]
    if "Avg" not in headings[1:]:  # a column of averages by itself has nothing to be recomputed from
        return found, printed
    for name in table.rows:
        values = table.values(name)
        if None in values.values():  # an average by itself
            continue
        mean = sum(value for heading, value in values.items() if heading != "Avg") / (len(headings) - 1)
        printed += 1
        if abs(mean - values["Avg"]) > 0.005 + 1e-9:
            found[name] = mean
    return found, printed


@pytest.mark.parametrize(("key", "rows"), [("conisi", 19), ("focal_infonce", 16), ("ifcl", 16), ("mocose", 23)])
def test_every_reported_average_is_its_mean_unless_flagged(key, rows):
    checked = 0
    for table in papers.load(key).tables.values():
        wrong, printed = wrong_averages(table)
        flagged = {f.row for f in table.flags if f.kind == "misprint" and table.kind == "scores"}
        assert set(wrong) == flagged, {name: f"{mean:.3f}" for name, mean in wrong.items()}
        checked += printed
    assert checked == rows


@pytest.mark.parametrize(
    ("key", "table", "row", "column", "printed", "implied"),
    [
        ("mocose", "transfer", "Avg. BERT embeddings", "Avg", 84.94, 84.95),
        ("focal_infonce", "sts", "SimCSE-BERT-base + Focal", "STS14", 79.00, 75.13),
        ("focal_infonce", "sts", "SimCSE-BERT-base", "Avg", 75.68, 75.69),
        ("conisi", "sts", "Mirror-BERT-base", "Avg", 75.40, 75.41),
    ],
)
def test_a_misprint_says_what_the_rest_of_the_row_implies(key, table, row, column, printed, implied):
    found = papers.load(key).tables[table]
    (flag,) = [f for f in found.doubts(row) if f.kind == "misprint"]
    assert (flag.column, flag.implied, found.values(row)[column]) == (column, implied, printed)
    values = {**found.values(row), column: implied}
    mean = sum(value for heading, value in values.items() if heading != "Avg") / 7
    assert abs(mean - values["Avg"]) <= 0.005 + 1e-9


def test_there_are_no_other_misprints():
    found = {
        (key, identifier, flag.row, flag.column): flag.implied
        for key in papers.names()
        for identifier, table in papers.load(key).tables.items()
        for flag in table.flags
        if flag.kind == "misprint" and table.kind != "scores"
    }
    tau = {("focal_infonce", "hyper_parameters", "tau", f"BERT {size}"): 0.07 for size in ("base", "large")}
    tau |= {("focal_infonce", "hyper_parameters", "tau", f"RoBERTa {size}"): 0.05 for size in ("base", "large")}
    assert found == {("conisi", "data_sizes", "train", "STSb"): 5749, **tau}


@pytest.mark.parametrize("key", papers.names())
def test_every_bold_cell_is_the_best_unless_flagged(key):
    wrong = set()
    for identifier, table in papers.load(key).tables.items():
        for name, row in table.rows.items():
            block = [other for other, r in table.rows.items() if r.encoder == row.encoder]
            for column in row.bold:
                beside = [table.values(other)[column] for other in block] if len(block) > 1 else row.numbers
                if table.values(name)[column] != max(value for value in beside if value is not None):
                    wrong.add((identifier, name, column))
    flagged = {
        (identifier, flag.row, flag.column)
        for identifier, table in papers.load(key).tables.items()
        for flag in table.flags
        if flag.kind == "bold_not_maximum"
    }
    assert wrong == flagged == BOLD_WITHOUT_REASON.get(key, set())


BOLD_WITHOUT_REASON = {
    "ifcl": {("sts_en", "IFCL-BERT base", "STS13"), ("sts_en", "IFCL-BERT base", "STS16")},
    "focal_infonce": {("sts", "SimCSE-RoBERTa-large + Focal", "STS14")},
}


@pytest.mark.parametrize("key", papers.names())
def test_tables_are_complete(key):
    """Cells for all columns, and flags, bold, differences and recipes of columns and rows that exist."""
    paper = papers.load(key)
    assert paper.tables
    for identifier, table in paper.tables.items():
        headings = {column.name for column in table.columns}
        assert (table.number is None) != (table.place is None), identifier
        for name, row in table.rows.items():
            assert len(row.cells) == len(table.columns), (identifier, name)
            assert len(row.std) in (0, len(row.cells)), (identifier, name)
            assert {*row.bold, *(row.held_by if isinstance(row.held_by, dict) else ())} <= headings, (identifier, name)
            assert row.recipe is None or row.not_reproduced_because is None, (identifier, name)
        for column in table.columns:
            assert (column.of is None) == (column.minus is None), (identifier, column.name)
            assert column.of is None or (column.of in headings and column.minus in table.rows), (identifier, column)
        assert {flag.row for flag in table.flags} <= {None, *table.rows}, identifier
        assert {flag.column for flag in table.flags} <= {None, *headings}, identifier
    for figure in paper.figures.values():
        assert sum(map(bool, (figure.study, figure.recipes, figure.not_reproduced_because))) == 1, figure.number
