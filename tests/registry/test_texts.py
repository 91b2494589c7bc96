"""The texts in the package: their contents and package_texts."""

from collections import Counter

import pytest

from benchmarks import package_texts
from benchmarks.package_texts import open_pairs, plain, training_pairs
from registry.resources import catalog
from registry.resources.catalog import SHIPPED


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tatoeba_en_de", "wiki1m_prefix"])
def test_no_training_sentence_is_scored(name):
    scored = {
        plain(sentence)
        for split in ("dev", "test")
        for pair in catalog.read_pairs("stsb_open", split)
        for sentence in (pair.first, pair.second)
    }
    rows = list(catalog.open_text(name))
    assert len(rows) == catalog.entry(name).split("train").rows
    assert all(cell for row in rows for cell in row.values())
    assert not scored & {plain(row["text"]) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tatoeba_en_de", "tatoeba_open", "wiki1m_prefix", "stsb_open"])
def test_rows_are_those_of_the_digest(name):
    entry = catalog.entry(name)
    for split, about in entry.splits.items():
        origin, source = catalog.find(name, split)
        assert (origin, source.digest) == ("package", about.sha256)


@pytest.mark.slow
def test_texts_and_pairs_are_parts_of_what_is_free_to_copy():
    rows = {(row["text"], row["translation"]) for row in catalog.open_text("tatoeba_open")}
    assert len(rows) <= package_texts.PAIRS == catalog.entry("tatoeba_open").split("train").rows
    assert rows <= {(row["text"], row["translation"]) for row in catalog.open_text("tatoeba_en_de")}
    pairs = {split: catalog.read_pairs("stsb_open", split) for split in ("dev", "test")}
    assert {split: Counter(pair.subset for pair in read) for split, read in pairs.items()} == {
        "dev": {"answers-forums": 375, "images": 250, "track5.en-en": 125},
        "test": {"answer-answer": 254, "images": 250, "track5.en-en": 125},
    }


def test_what_is_shipped_goes_before_a_file_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.setenv("CSE_DATA", str(tmp_path))
    (tmp_path / "stsb_open_dev.tsv").write_text("subset\tscore\tsentence1\tsentence2\n")
    origin, source = catalog.find("stsb_open", "dev")
    assert (origin, source.paths) == ("package", (SHIPPED / "stsb_open_dev.tsv",))
    assert catalog.fetch("stsb_open", "dev", force=True).paths == source.paths
    origin, both = catalog.find("stsb_open", "all")
    assert (origin, both.scanned[0]) == ("package", 750 + 629)


def test_the_readme_names_the_sources():
    said = (SHIPPED / "README.md").read_text(encoding="utf-8")
    for words in (
        "tatoeba.org",
        "www.manythings.org/anki",
        "CC BY 2.0 France",
        "CC BY-SA 4.0",
        "Stack Exchange",
        "CC BY-SA 3.0",
    ):
        assert words in said
    assert {path.name for path in SHIPPED.iterdir() if path.suffix in (".tsv", ".gz")} == {
        split.shipped for name in catalog.names() for split in catalog.entry(name).splits.values() if split.shipped
    }


def test_sentences_are_selected_by_digest_in_their_order():
    rows = [(f"sentence number {number}", "x") for number in range(50)]
    drawn, refused = training_pairs(rows, {plain("Sentence number 7!")}, count=20)
    assert refused == 1
    assert len(drawn) == 20
    assert rows[7] not in drawn
    assert drawn == [row for row in rows if row in drawn]
    again, _ = training_pairs(rows[::-1], {"sentence number 7"}, count=20)
    assert sorted(again) == sorted(drawn)
    assert open_pairs([("images", "1", "a", "b"), ("headlines", "1", "a", "b")]) == [("images", "1", "a", "b")]


@pytest.mark.data
def test_the_same_bytes_are_made_again(tmp_path, capsys):
    package_texts.main(tmp_path)
    assert capsys.readouterr().err == "tatoeba_open: 0 sentences excluded because they are evaluated\n"
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {name: (SHIPPED / name).read_bytes() for name in made}
    assert len(made) == 3
