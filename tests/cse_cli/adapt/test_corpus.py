"""Documents of a corpus: formats, what is removed, and the parts."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from cse_cli.adapt import corpus
from cse_cli.adapt.corpus import LEAST, Document, divide, read_documents
from registry.errors import MissingError
from tests.support.errors import refuses


def words(count: int, seed: int = 0) -> str:
    rng = random.Random(seed)
    return " ".join(f"w{rng.randrange(500)}" for _ in range(count))


def many(count: int, length: int = 40) -> list[Document]:
    return [Document(words(length, seed)) for seed in range(count)]


def test_lines_paragraphs_json_and_directories(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("first line\nsecond line\n", encoding="utf-8")
    assert read_documents(lines) == [Document("first line"), Document("second line")]
    paragraphs = tmp_path / "paragraphs.txt"
    paragraphs.write_text(
        "A heading\nThe text.\n More.\n\n\nNo heading here.\nMore text.\n \nalone\n", encoding="utf-8"
    )
    assert read_documents(paragraphs) == [
        Document("The text.\n More.", "A heading"), Document("No heading here.\nMore text."), Document("alone"),
    ]  # fmt: skip
    lines.write_text("a\n\n" + "b\n" * 300, encoding="utf-8")  # one blank line by accident
    assert read_documents(lines) == [Document("a"), Document(""), *[Document("b")] * 300]
    lines.write_text("one\u2028line\nsecond line", encoding="utf-8")
    assert read_documents(lines) == [Document("one\u2028line"), Document("second line")]
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"text": "a", "title": "b", "label": 3}) + '\n\n{"text": "c"}\n', encoding="utf-8")
    assert read_documents(rows) == [Document("a", "b", "3"), Document(""), Document("c")]
    (tmp_path / "pages" / "pets").mkdir(parents=True)
    (tmp_path / "pages" / "pets" / "cat.txt").write_text("Cats\nA cat sleeps.\n", encoding="utf-8")
    (tmp_path / "pages" / "top.txt").write_text("Only text.\n", encoding="utf-8")
    assert read_documents(tmp_path / "pages") == [Document("A cat sleeps.", "Cats", "pets"), Document("Only text.")]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs.txt").write_text("x", encoding="utf-8")
    with pytest.raises(MissingError, match=r"Did you mean 'docs.txt'"):
        read_documents(tmp_path / "doc.txt")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with refuses("adapt.not_text", "byte 0", "iconv"):
        read_documents(tmp_path / "latin.txt")
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n{"body": "b"}\n', encoding="utf-8")
    with refuses("adapt.not_a_document", "rows.jsonl:2"):
        read_documents(tmp_path / "rows.jsonl")


def test_parts_are_disjoint_and_the_same_each_time() -> None:
    found = [*many(400), Document("too short to be found"), Document(words(25, 999))]
    corpus = divide(found, "corpus", frozenset())
    assert (len(corpus.test), len(corpus.dev), len(corpus.train)) == (100, 50, 251)  # the one with 25 words trains
    assert len({*corpus.test, *corpus.dev, *corpus.train}) == 401
    assert divide(found, "corpus", frozenset()) == corpus
    assert corpus.notes == []


def test_repetitions_blank_lines_and_evaluation_sentences_are_removed() -> None:
    found = [
        *many(300),
        *many(2),
        Document("  "),
        Document("A plane is\ttaking off."),
        Document("A plane is taking off."),
    ]
    corpus = divide(found, "corpus", frozenset({"A plane is taking off."}))
    assert corpus.notes == [
        "1 document without text removed", "2 sentences of the evaluation data removed", "2 repeated documents removed",
    ]  # fmt: skip
    assert sum(map(len, (corpus.train, corpus.dev, corpus.test))) == 300


def test_too_little_and_too_short() -> None:
    with refuses("adapt.too_few_documents", "1 different document of 5,000", str(LEAST)):
        divide([Document("the same line")] * 5000, "corpus", frozenset())
    with refuses("adapt.too_few_documents", "30 different documents"):
        divide(many(30), "corpus", frozenset())
    with refuses("adapt.cannot_tell", "no answer without labels", "0 of 500", "median: 12"):
        divide(many(500, length=12), "corpus", frozenset())


def test_passages_and_the_rest_of_a_document() -> None:
    numbers = [str(number) for number in range(70)]
    found, rest = Document(" ".join(numbers)).passages(random.Random(3))
    passages = [passage.split() for passage in found]
    assert all(numbers[int(one[0]) : int(one[0]) + 10] == one for one in passages)
    assert sorted([*sum(passages, []), *rest.split()], key=int) == numbers  # noqa: RUF017
    of_lengths = [Document(" ".join(numbers[:n])).passages(random.Random(0))[0] for n in (30, 40, 60, 70)]
    assert [len(passages) for passages in of_lengths] == [1, 2, 3, 3]
    chinese = Document("".join(chr(0x4E00 + number) for number in range(60)))
    assert len(chinese.pieces) == 60
    found, rest = chinese.passages(random.Random(0))
    assert [len(part) for part in (*found, rest)] == [10, 10, 10, 30]


def test_a_large_corpus_trains_with_a_sample(monkeypatch):
    monkeypatch.setattr(corpus, "TRAIN", 100)
    every = [Document(" ".join(f"{number}-{word}" for word in range(40))) for number in range(400)]
    found = divide(every, "x", frozenset())
    assert (len(found.train), len(found.dev), len(found.test)) == (100, 50, 100)
    assert len({one.text for part in (found.train, found.dev, found.test) for one in part}) == 250
