import json

import pytest

from cse_cli.data.sources import open_text
from cse_cli.recipe.schema import Data
from tests.support.command import cse, refused

PAIRS = [
    ("A man is singing.", "Someone sings."), ("The dog runs.", "A dog is running."), ("It is raining.", "Rain falls."),
    ("She reads a book.", "A woman is reading."), ("The dog runs.", "The animal runs fast."),
]  # fmt: skip


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pairs.csv"
    path.write_text("query,answer\n" + "".join(f"{a},{b}\n" for a, b in PAIRS) + "x,\n")
    return str(path)


def mine(pairs, *more, capsys):
    options = ("--model", "mini_en", "--pooling", "mean", "--json", *more)
    code, out, err = cse("data", "mine", pairs, *options, capsys=capsys)
    assert code == 0, err
    return json.loads(out), err


def test_triplets_are_written_with_a_record_and_read_by_a_recipe(pairs, tmp_path, capsys):
    made, err = mine(pairs, "--num-negatives", "2", "--output", "hard.jsonl", capsys=capsys)
    assert "1 blank row skipped: 6 (answer)" in err
    rows = [json.loads(line) for line in (tmp_path / "hard.jsonl").read_text().splitlines()]
    assert made["rows"] == len(rows) == 10
    assert {(row["anchor"], row["positive"]) for row in rows} == set(PAIRS)
    own = {anchor: {b for a, b in PAIRS if a == anchor} for anchor, _ in PAIRS}
    assert all(row["negative"] not in own[row["anchor"]] for row in rows)
    record = json.loads((tmp_path / "hard.jsonl.mining").read_text())
    assert (record["result"]["sha256"], record["filters"]["num_negatives"]) == (made["sha256"], 2)
    assert open_text(Data(file=made["output"]), {"anchor", "positive", "negative"}).rows == 10
    again, _ = mine(pairs, "--num-negatives", "2", "--output", "hard.jsonl", capsys=capsys)
    assert again == {**made, "reused": True}
    (tmp_path / "hard.jsonl").write_text("changed")
    options = ("--model", "mini_en", "--pooling", "mean", "--num-negatives", "2", "--output", "hard.jsonl")
    assert refused("data", "mine", pairs, *options).code == "data.output_exists"


def test_tuples_have_a_column_for_each_negative_of_a_larger_corpus(pairs, tmp_path, capsys):
    (tmp_path / "more.txt").write_text("A man sings.\nThe dog runs.\nMusic plays.\n")
    options = ("--corpus", "more.txt", "--format", "n-tuple", "--num-negatives", "2", "--output", "hard.csv")
    made, _ = mine(pairs, "--anchor", "query", *options, capsys=capsys)
    assert (made["rows"], made["candidates"], made["anchors"]) == (5, 8, 4)
    lines = (tmp_path / "hard.csv").read_text().splitlines()
    assert lines[0] == "anchor,positive,negative_1,negative_2"
    assert all("The dog runs." not in line.split(",")[2:] for line in lines if line.startswith("The dog runs."))
    assert any("A man sings." in line.split(",")[2:] for line in lines[1:])


@pytest.mark.parametrize("file_format", ["triplet", "n-tuple"])
def test_the_printed_lines_make_a_recipe_use_the_file(pairs, tmp_path, capsys, file_format):
    options = ("--format", file_format, "--num-negatives", "4", "--output", "hard.jsonl")
    code, out, err = cse("data", "mine", pairs, "--model", "mini_en", "--pooling", "mean", *options, capsys=capsys)
    assert code == 0, err
    assert "rows from 5 pairs and 5 candidates\n" in err
    assert "\n1 of 4 anchors have fewer negatives" in err  # the one with two positives
    (tmp_path / "mined.toml").write_text(
        f'extends = "mini/simcse_en"\nremove = ["data.dataset", "views"]\ntitle = "Mined"\n{out}'
    )
    code, _, err = cse("check", "mined.toml", capsys=capsys)
    assert code == 0, err


def test_inputs_that_cannot_be_mined_are_errors(pairs, tmp_path):
    model = ("--model", "mini_en")
    assert refused("data", "mine", pairs, *model, "--output", "hard.tsv").code == "mining.output_format"
    wrong = refused("data", "mine", pairs, *model, "--positive", "anwser")
    assert (wrong.code, "Did you mean 'answer'" in wrong.message) == ("data.unknown_column", True)
    (tmp_path / "one.txt").write_text("a\nb\n")
    assert refused("data", "mine", "one.txt", *model).code == "mining.no_pairs"
