"""`cse data inspect`: the counts of a planted text, screens, JSON, a picture, and errors."""

from __future__ import annotations

import json

import pytest

from registry.resources import catalog
from registry.words import words
from tests.support.command import cse, refused

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
    assert (found["rows"], found["blank"]) == (len(rows), 3)
    assert found["duplicates"] == {
        "rows": len(rows), "distinct": len(rows) - 60, "copies": {"1": len(rows) - 100, "2": 20, "3": 20}
    }  # fmt: skip
    assert [count for _, count in found["frequent"]] == [3, 3, 3]
    # 25 copies in capitals and their originals, and the 30 long sentences, which differ in their number.
    assert (found["near"]["sentences"], found["near"]["near"]) == (len(rows) - 60, 50 + 30)
    leaks = {leak["name"]: leak for leak in found["leaks"]}
    assert set(leaks) == {"stsb_open/dev", "stsb_open/test"}
    counts = ("exact", "same_words", "rows")
    assert [leaks["stsb_open/dev"][key] for key in counts] == [7, 7, 7]
    assert [leaks["stsb_open/test"][key] for key in counts] == [7, 11, 11]
    assert (
        leaks["stsb_open/test"]["share"] == leaks["stsb_open/test"]["same_words"] / leaks["stsb_open/test"]["sentences"]
    )
    lengths = found["lengths"]["text"]
    assert (lengths["rows"], lengths["cut"], lengths["max_length"]) == (len(rows), 30, 32)
    assert sum(rows for tokens, rows in lengths["histogram"].items() if int(tokens) > 32) == 30
    assert lengths["characters"][0] == min(map(len, rows))
    assert lengths["words"][-1] == max(len(words(row)) for row in rows)
    assert found["languages"]["en"] > 0.8
    assert found["alarms"] == []


def test_settings_of_a_recipe_can_change(planted, capsys):
    path, _ = planted
    more = ("--set", "data.max_length=8", "--set", "train.batch_size=4", "--set", "data.limit=600")
    found = inspected(path, *more, capsys=capsys)
    assert (found["rows"], found["batch_size"], found["lengths"]["text"]["max_length"]) == (600, 4, 8)
    assert found["lengths"]["text"]["cut"] > 300
    assert len(found["alarms"]) == 1
    assert "data.max_length = 8" in found["alarms"][0]


def test_another_tokenizer(planted, capsys, parts):
    path, _ = planted
    found = inspected(path, "--model", parts.models["bert"], capsys=capsys)
    assert found["tokenizer"] == str(parts.models["bert"])
    assert found["lengths"]["text"]["tokens"] != inspected(path, capsys=capsys)["lengths"]["text"]["tokens"]


def test_hard_negatives(folder, capsys):
    rows = [
        ("a dog runs", "a dog runs fast", "a cat sleeps"),
        ("a dog runs", "a dog runs fast", "a dog  runs fast"),  # equal to the positive
        ("the sun", "it is warm", "the  sun"),  # equal to the anchor
    ]
    (folder / "t.tsv").write_text("text\tpositive\tnegative\n" + "".join("\t".join(row) + "\n" for row in rows))
    found = inspected("t.tsv", capsys=capsys)
    negatives = found["negatives"]
    assert set(found["lengths"]) == {"text", "positive", "negative"}
    assert [negatives[key] for key in ("rows", "harder", "equal_to_positive", "equal_to_anchor")] == [3, 2, 1, 1]
    # Three of 3 and 4 words, twice, and none; one of 3 and 3 words, three of 3 and 4, and all.
    assert negatives["positive"] == pytest.approx(2 * 3 / 12**0.5 / 3)
    assert negatives["negative"] == pytest.approx((1 / 3 + 3 / 12**0.5 + 1) / 3)
    assert [sum(bins) for bins in negatives["overlaps"]] == [3, 3]


def test_a_recipe_is_searched_for_its_evaluators(capsys):
    found = inspected("quickstart", "--set", "data.limit=500", capsys=capsys)
    assert (found["settings"], found["searched"]) == ("quickstart", ["stsb_open/dev", "stsb_open/test"])
    assert (found["batch_size"], found["leaks"], found["alarms"]) == (64, [], [])


def test_the_screen_is_80_columns_wide(planted, capsys):
    path, _ = planted
    code, out, _ = cse("data", "inspect", str(path.relative_to(path.parent)), capsys=capsys)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "60 (8.19 %) of the rows are equal to an earlier row" in out
    assert out.splitlines()[0] == "planted.txt · 733 rows, 3 blank rows skipped"


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_figure(planted, suffix, capsys):
    path, _ = planted
    drawn = path.with_suffix(suffix)
    inspected(path, "--figure", drawn, capsys=capsys)
    start = drawn.read_bytes()[:500]
    assert start.startswith(b"\x89PNG") if suffix == ".png" else b"<svg" in start


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["quickstat"], "inspection.unknown_text"),
        (["bert_mean_en"], "inspection.no_text"),
        (["stsb_open"], "inspection.not_a_text"),
        (["missing.txt"], "data.missing_file"),
        (["quickstart", "--figure", "a.pdf"], "inspection.unknown_figure"),
        (["quickstart", "--figure", "no/a.png"], "inspection.no_directory"),
    ],
)
def test_errors(arguments, code, folder):
    assert refused("data", "inspect", *arguments).code == code
