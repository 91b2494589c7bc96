"""`cse leaderboard` in 80 columns: the rows that it shows, their order, and the notes below them."""

import re

import pytest

from cse_cli.analysis.leaderboard import LeaderboardQuery, overview
from cse_cli.analysis.leaderboard_view import compact_table, print_compact, shown_lines
from cse_cli.core.results import PaperRow
from tests.cse_cli.analysis.leaderboard_runs import mini, planned, result, tables

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


def test_your_runs_are_in_the_line_of_the_row_that_they_reproduce():
    (table,) = tables(IFCL)
    (line,) = [line for line in texts(table) if line["yours"]]
    # 77.0, 77.1 and 77.2: mean 77.1, standard deviation 0.1, and 77.1 − 77.8 = −0.7
    assert (line["#"], line["method"], line["avg"], line["yours"]) == ("2", "IFCL-BERT base", "77.80", "77.10 ±0.10")
    assert line["gain or recipe"] == "−0.70▼, 3 seeds"


def test_a_row_of_two_papers_with_one_name_is_found_by_its_score():
    (table,) = tables([result(recipe="simcse_en", paper=SIMCSE)])
    (line,) = [line for line in texts(table) if line["yours"]]
    assert (line["avg"], line["yours"], line["gain or recipe"]) == ("76.25", "70.00¹", "−6.25, 1 seed")


def test_your_own_recipe_is_ranked_among_the_published_rows():
    own = [result(score=77.5, recipe="mine", recipe_hash="b" * 16, paper=None)]
    (table,) = tables(own)
    lines = texts(table)
    place = next(n for n, line in enumerate(lines) if line["method"] == "mine")
    assert [lines[n]["avg"] for n in (place - 1, place, place + 1)] == ["77.74", "", "77.33?"]
    assert [line["#"] for line in lines] == [str(rank) for rank in range(1, 12)]


def test_runs_below_the_best_ten_keep_their_rank():
    (table,) = tables([result(score=10.0, recipe="mine", recipe_hash="b" * 16, paper=None)])
    published = sum(row.source == "paper" for row in table.rows)
    assert texts(table)[-1]["#"] == str(published + 1)
    assert len(texts(table)) == 11


def test_settings_and_the_number_of_configurations_are_in_the_label():
    dev = {"metric_for_best_model": "dev.spearman"}
    one = [mini(0, 60.0, **dev), mini(0, 59.0, recipe_hash="c" * 16, **dev)]
    (table,) = tables(one)
    assert texts(table)[-1]["method"] == "mini/ifcl_en (best of 2)"


def test_the_untrained_encoder_has_no_rank():
    (table,) = tables(
        planned(
            [
                mini(s, 60.0 + s, scores={"own": {"spearman": 60.0 + s}}, untrained={"own": {"spearman": 50.0 + s / 2}})
                for s in range(3)
            ]
        )
    )
    first, second = texts(table)
    assert (first["#"], first["method"], first["yours"]) == ("", "mini_en, before training", "50.50 ±0.50")
    assert (second["#"], second["yours"], second["gain or recipe"]) == ("1", "61.00 ±1.00", "+10.50▲, 3 seeds")


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


def test_the_legend_explains_only_marks_that_are_shown(capsys):
    out = printed(tables(IFCL), capsys)
    starts = {line[0] for line in out.split("\n") if re.match(r"[±≈▲▼≠¹†‡?:]", line)}
    assert starts == {"±", "▼", "?"}
    assert "±: " not in printed(tables([], encoder="bert-base"), capsys)


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
