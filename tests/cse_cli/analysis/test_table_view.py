"""The ways to write the leaderboard: rows in 80 columns and their notes, what is marked and escaped, other programs."""

import csv
import io
import json
import re

import pytest

from cse_cli.analysis.leaderboard import LeaderboardQuery, overview
from cse_cli.analysis.table_view import WRITERS, compact_table, legend_lines, print_compact, rows_of, shown_lines
from cse_cli.core.identity import Identity
from cse_cli.core.results import PaperRow
from tests.cse_cli.analysis.leaderboard_runs import mini, planned, result, tables, written

pytestmark = pytest.mark.usefixtures("nothing_here")
SIMCSE = PaperRow(key="ifcl", table="sts_en", row="SimCSE-BERT base")
IFCL = planned([result(seed, 77.0 + seed / 10) for seed in range(3)])


def texts(table):
    """Return one dictionary for each line of the compact table, by heading, without the numbers of notes."""
    plain = table.model_copy(update={"rows": tuple(row.model_copy(update={"notes": ()}) for row in table.rows)})
    made = compact_table(plain, shown_lines(plain), ())
    heading, *lines = made.texts
    return [dict(zip(heading, line, strict=True)) for line in lines]


def printed(shown, capsys, **options):
    print_compact(shown, **options)
    return capsys.readouterr().out


def test_the_best_ten_published_rows_are_ranked_by_average():
    (table, *_) = tables([], encoder="bert-base")
    averages = sorted((row.scores["Avg"].mean for row in table.rows if row.source == "paper"), reverse=True)
    lines = texts(table)
    assert [line["#"] for line in lines] == [str(rank) for rank in range(1, 11)]
    assert [float(line["avg"].rstrip("?")) for line in lines] == averages[:10]
    second = lines[1]
    assert second == {
        "#": "2", "method": "IFCL-BERT base", "paper": "IFCL", "avg": "77.80", "gain or recipe": "ifcl_en",
    }  # fmt: skip
    assert next(line for line in lines if line["avg"] == "76.25")["paper"] == "ConIsI +2"


def test_your_runs_are_in_the_line_of_the_row_that_they_reproduce(capsys):
    (table,) = tables(IFCL)
    (line,) = [line for line in texts(table) if line["yours"]]
    # 77.0, 77.1 and 77.2: mean 77.1, standard deviation 0.1, and 77.1 − 77.8 = −0.7
    assert (line["#"], line["method"], line["avg"], line["yours"]) == ("2", "IFCL-BERT base", "77.80", "77.10 ±0.10")
    assert line["gain or recipe"] == "−0.70▼, 3 seeds"
    starts = {line[0] for line in printed([table], capsys).split("\n") if re.match(r"[±≈▲▼≠¹†‡?:]", line)}
    assert starts == {"±", "▼", "?"}
    assert "±: " not in printed(tables([], encoder="bert-base"), capsys)
    # A row of two papers with one name is found by its score.
    (table,) = tables([result(recipe="simcse_en", paper=SIMCSE)])
    (line,) = [line for line in texts(table) if line["yours"]]
    assert (line["avg"], line["yours"], line["gain or recipe"]) == ("76.25", "70.00¹", "−6.25, 1 seed")


def test_your_own_recipe_is_ranked_among_the_published_rows_also_below_the_best_ten():
    (table,) = tables([result(score=77.5, recipe="mine", recipe_hash="b" * 16, paper=None)])
    lines = texts(table)
    place = next(n for n, line in enumerate(lines) if line["method"] == "mine")
    assert [lines[n]["avg"] for n in (place - 1, place, place + 1)] == ["77.74", "", "77.33?"]
    assert [line["#"] for line in lines] == [str(rank) for rank in range(1, 12)]
    (table,) = tables([result(score=10.0, recipe="mine", recipe_hash="b" * 16, paper=None)])
    published = sum(row.source == "paper" for row in table.rows)
    assert (texts(table)[-1]["#"], len(texts(table))) == (str(published + 1), 11)


def test_the_untrained_encoder_has_no_rank_and_a_label_the_number_of_configurations():
    runs = [
        mini(s, scores={"own": {"spearman": 60.0 + s}}, untrained={"own": {"spearman": 50.0 + s / 2}}) for s in range(3)
    ]
    (table,) = tables(planned(runs))
    first, second = texts(table)
    assert (first["#"], first["method"], first["yours"]) == ("", "mini_en, before training", "50.50 ±0.50")
    assert (second["#"], second["yours"], second["gain or recipe"]) == ("1", "61.00 ±1.00", "+10.50▲, 3 seeds")
    dev = {"metric_for_best_model": "dev.spearman"}
    (table,) = tables([mini(0, 60.0, **dev), mini(0, 59.0, recipe_hash="c" * 16, **dev)])
    assert texts(table)[-1]["method"] == "mini/ifcl_en (best of 2)"


def test_notes_are_those_of_the_rows_shown_in_one_numbering(capsys):
    shown = tables([], encoder="bert-base")
    out = printed(shown, capsys)
    numbers = [int(number) for number in re.findall(r"^\[(\d+)\] ", out, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    in_labels = {
        int(number) for line in out.split("\n") if not line.startswith("[") for number in re.findall(r"\[(\d+)\]", line)
    }
    assert in_labels == set(numbers)
    hidden = "trained on the unlabeled sentences of these test sets"
    assert hidden not in out.replace("\n", " ")
    every = printed(shown, capsys, notes=True)
    assert hidden in every.replace("\n", " ")
    assert max(map(len, (out + every).split("\n"))) <= 80


@pytest.mark.slow
def test_without_a_filter_one_screen_has_your_runs_and_the_best_published_rows():
    shown, others = overview(tables([mini(0)]), LeaderboardQuery())
    assert [table.encoder for table in shown] == ["mini_en", "bert-base"]
    assert "roberta-base" in others
    assert "bert-base" not in others
    shown, _ = overview(tables(IFCL), LeaderboardQuery())
    assert [table.encoder for table in shown] == ["bert-base"]
    shown, _ = overview(tables([]), LeaderboardQuery())
    assert len(shown) == 1
    every = tables([], encoder="bert-base")
    assert overview(every, LeaderboardQuery(encoder="bert-base")) == (every, [])


NEAR = planned([result(seed, 71.57 + value) for seed, value in enumerate((0.0, 0.1, 0.41))])
"""Within the spread of the paper's STS12, far from its STS13."""


def line_of(text, label):
    (found,) = [line for line in text.split("\n") if line.strip().startswith(label)]
    return found


def test_a_difference_is_marked_and_bold_only_where_it_is_one():
    text = written("md", NEAR)
    line = line_of(text, "| &emsp;to IFCL-BERT base")
    assert "| +0.17≈ |" in line
    assert "| **−10.61▼** |" in line
    strong = re.findall(r"\*\*(.*?)\*\*", text)
    assert strong
    assert all(re.fullmatch(r"[+−]\d+\.\d+[▲▼]", cell) for cell in strong)
    told = legend_lines(rows_of(tables(NEAR)), "bold")
    assert [line[0] for line in told[:-1]] == ["±", "≈", "▼", "?"]
    assert told[-1] == "bold: a statistically significant difference"


def test_csv_has_one_line_a_cell_and_json_is_one_versioned_document():
    shown = tables([result(0), result(1, 71.0)])
    read = list(csv.DictReader(io.StringIO(WRITERS["csv"](shown))))
    assert len(read) == sum(len(row.scores) for block in shown for row in block.rows)
    (cell,) = [c for c in read if c["source"] == "measured" and c["column"] == "STS12"]
    assert (cell["encoder"], cell["n"], float(cell["mean"]), float(cell["reference"])) == (
        "bert-base", "2", 70.5, 71.57,
    )  # fmt: skip
    assert cell["marks"] == "within"
    document = json.loads(WRITERS["json"](shown))
    assert document["schema_version"] == 6
    (row,) = [row for row in document["tables"][0]["rows"] if row["source"] == "measured"]
    score = row["scores"]["STS12"]
    assert (score["difference"], score["marks"]) == (pytest.approx(-1.07), ["within"])


@pytest.mark.parametrize("form", ["table", "md", "latex"])
def test_doubts_about_a_whole_table_stand_below_it(form):
    text = written(form, [], table="ifcl/chinese")
    assert "whole table: CnData, 100,000 random sentences" in text


@pytest.mark.slow
def test_latex_is_booktabs_with_as_many_cells_as_columns():
    text = written("latex", NEAR)
    (columns,) = re.findall(r"\\begin\{tabular\}\{l(r+)\}", text)
    body = text.split("\\toprule\n")[1].split("\\bottomrule")[0]
    lines = [line for line in body.split("\n") if line.endswith("\\\\")]
    assert len(lines) > 20
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(columns)}
    assert "\\textbf{$-$10.61$^\\downarrow$}" in text
    assert text.count("\\begin{table}") == text.count("\\end{table}") == 1
    every = WRITERS["latex"](tables([], table="conisi/7") + tables(NEAR, community=True))  # all printed names
    assert "U+" not in every
    assert not re.search(r"[^\x00-\x7f\u00c0-\u00ff]", every)


def test_long_labels_of_experiments_fit_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    identities = [Identity(settings="a", code={"losses.virtual_neighbors": digit * 64}) for digit in "12"]
    text = re.sub(r"\x1b\[[0-9;]*m", "", written("table", [result(identity=one) for one in identities]))
    lines = [line for line in text.split("\n") if "ifcl_en [code of" in line]
    assert [line.count("70.00") for line in lines] == [8, 8]
    assert max(map(len, lines)) <= 80
