"""`cse data inspect`: the counts of a planted text, the screen, JSON, and errors."""

from __future__ import annotations

import json

import pytest

from registry.resources import catalog
from registry.words import words
from tests.support.command import cse, refused

pytestmark = pytest.mark.slow

TEXTS = [row["text"] for row in catalog.open_text("tatoeba_open")]


def one_line(text):
    return " ".join(text.split())


def inspected(*arguments, capsys):
    code, out, _ = cse("data", "inspect", *map(str, arguments), "--json", capsys=capsys)
    assert code == 0
    return json.loads(out)


@pytest.fixture
def planted(folder):
    """Write a text with known counts; return its path and the counts."""
    distinct = list({" ".join(words(text)): text for text in TEXTS if 7 <= len(words(text)) < 10}.values())[:600]
    dev, test = (
        list(dict.fromkeys(one_line(text) for pair in catalog.read_pairs("stsb_open", split) for text in pair[2:]))
        for split in ("dev", "test")
    )
    common = map_words(dev) & map_words(test)
    leaked_dev = [text for text in dev if not map_words([text]) & common][:7]
    leaked_test = [text for text in test if not map_words([text]) & common][:11]
    long = [f"Sentence {number} has a lot of words " + "and so on " * 12 for number in range(30)]
    rows = [
        *distinct,
        *distinct[:40],  # 40 repeats
        *(f"  {text.replace(' ', '  ')} " for text in distinct[:20]),  # 20 repeats with other white space
        *(f"{text.upper()} ..." for text in distinct[100:125]),  # 25 pairs of near-duplicates
        *leaked_dev,
        *(f"“{text.upper()}”" for text in leaked_test[:4]),  # equal words only
        *leaked_test[4:],
        *long,
    ]
    path = folder / "planted.txt"
    path.write_text("".join(f"{row}\n" for row in rows) + "\n \n\n", encoding="utf-8")
    return path, rows


def map_words(sentences):
    return {" ".join(words(sentence)) for sentence in sentences}


def test_counts_of_a_planted_text(planted, capsys):
    path, rows = planted
    found = inspected(path, capsys=capsys)
    assert (found["rows"], found["blank"], found["distinct"]) == (len(rows), 3, len(rows) - 60)
    assert found["copies"] == {"1": len(rows) - 100, "2": 20, "3": 20}
    assert [count for _, count in found["frequent"]] == [3, 3, 3]
    # 25 copies in capitals and their originals, and the 30 long sentences, which differ in their number.
    assert (found["near"]["sentences"], found["near"]["near"]) == (len(rows) - 60, 50 + 30)
    assert {name: len(sentences) for name, sentences in found["leaks"].items()} == {
        "stsb_open/dev": 7,
        "stsb_open/test": 7,
    }
    lengths = found["lengths"]["text"]
    assert (lengths["rows"], lengths["cut"], lengths["max_length"]) == (len(rows), 30, 32)
    assert lengths["tokens"] == sorted(lengths["tokens"])
    assert lengths["tokens"][-1] > 32 > lengths["tokens"][2]
    assert found["alarms"] == []


def test_settings_of_a_recipe_can_change(planted, capsys):
    path, _ = planted
    more = ("--set", "data.max_length=8", "--set", "train.batch_size=4", "--set", "data.limit=600")
    found = inspected(path, *more, capsys=capsys)
    assert (found["rows"], found["batch_size"], found["lengths"]["text"]["max_length"]) == (600, 4, 8)
    assert found["lengths"]["text"]["cut"] > 300
    assert len(found["alarms"]) == 1
    assert "data.max_length = 8" in found["alarms"][0]


def test_a_recipe_is_searched_for_its_evaluators(capsys):
    found = inspected("quickstart", "--set", "data.limit=500", capsys=capsys)
    assert list(found["searched"]) == ["stsb_open/dev", "stsb_open/test"]
    assert (found["batch_size"], found["leaks"], found["alarms"]) == (64, {}, [])


def test_the_screen_is_80_columns_wide(planted, capsys):
    path, _ = planted
    code, out, _ = cse("data", "inspect", str(path.relative_to(path.parent)), capsys=capsys)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "60 of 733 (8.19%) rows are equal to an earlier row" in out
    assert out.splitlines()[0] == "planted.txt · 733 rows, 3 blank rows skipped"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["quickstat"], "data.missing_file"),
        (["missing.txt"], "data.missing_file"),
        (["bert_mean_en"], "inspection.no_text"),
        (["stsb_open"], "recipe.unknown_split"),
    ],
)
def test_errors(arguments, code, folder):
    assert refused("data", "inspect", *arguments).code == code
