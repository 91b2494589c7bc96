import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from registry import ENCODERS
from registry.encoders.saved import open_encoder
from registry.encoders.word_vectors import read_words
from registry.errors import CseError, MissingError
from tests.registry.encoders.vectors import encoding
from tests.support.errors import refuses
from tests.support.tiny import sentences, word_vectors

FILE = "the 1 2\ncat 3 4\n. 0.5 -0.5\nU.S. 10 20\nnew york 7 8\nThe 9 9\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(FILE, encoding="utf-8")
    return path


def build(file, **values):
    return ENCODERS["word_vectors"].build({"file": str(file), **values})


def test_value_by_hand(file):
    encoder = build(file)
    # "the cat." → the, cat, "." ; "U.S." is whole; "cat cat dog" → the known words alone; nothing known → zero.
    vectors = encoding(encoder)(["the cat.", "the U.S.", "cat cat dog", "dog", ""])
    expected = [[4.5 / 3, 5.5 / 3], [5.5, 11.0], [3.0, 4.0], [0.0, 0.0], [0.0, 0.0]]
    torch.testing.assert_close(vectors, torch.tensor(expected))
    assert torch.equal(encoding(encoder)(["dog"]), torch.zeros(1, 2))
    assert torch.equal(encoding(encoder)(["The"]), torch.tensor([[9.0, 9.0]]))
    assert torch.equal(encoding(build(file, lower=True))(["The"]), torch.tensor([[1.0, 2.0]]))
    encoder = build(file, frozen=False)
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(["the cat", "cat"], 5))
    encoded = encoder.encode(tokens, encoder.embed(tokens))
    assert torch.equal(encoded.sentence, encoder.encode_for_eval(tokens))
    encoded.sentence.sum().backward()
    # "the": 1/2; "cat": 1/2 + 1; padding: nothing.
    assert encoder.table.grad[:3].tolist() == [[0.0, 0.0], [0.5, 0.5], [1.5, 1.5]]
    assert not any(parameter.requires_grad for parameter in build(file).parameters())


@pytest.mark.parametrize("count", [1, 5, 40])
def test_equals_the_literal_mean(tmp_path, count):
    path = word_vectors(tmp_path / "v.txt", width=7)
    known = {line.split(" ")[0]: [float(n) for n in line.split(" ")[1:]] for line in path.open(encoding="utf-8")}
    texts = sentences(count)
    expected = [[sum(column) / len(text.split()) for column in zip(*(known[w] for w in text.split()), strict=True)]
                for text in texts]  # fmt: skip
    torch.testing.assert_close(encoding(build(path))(texts), torch.tensor(expected))


def test_headers_blanks_line_ends_repeats_limits_and_gzip(tmp_path, file):
    path = tmp_path / "w2v.txt"
    path.write_text("2 3\na 1 2 3 \nb c 4 5 6\n", encoding="utf-8")
    words, table = read_words(path, None)
    assert words == ["a", "b c"]
    assert table.tolist() == [[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    path = tmp_path / "odd.txt"
    path.write_bytes("a 1 2\n. . . 3 4\nx\u2028y 5 6\na 9 9\n\x85 7 8\n".encode())
    words, table = read_words(path, None)
    assert words == ["a", ". . .", "x\u2028y", "\x85"]
    assert table[1:].tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
    packed = tmp_path / "v.txt.gz"
    packed.write_bytes(gzip.compress(FILE.encode()))
    assert read_words(packed, 2)[0] == ["the", "cat"]
    assert build(packed, limit=3).table.shape == (4, 2)
    assert read_words(packed, None)[0] == read_words(file, None)[0]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a 1 2\nb 1\n", 2),
        ("a 1 2\nb 1 x\n", 2),
        ("a 1 2\nb 1 nan\n", 2),
        ("a 1 2\n\n", 2),
        ("word\n", 1),
        ("a 1 2\nb 1 2e\n", 2),
        ("1 2\nb 1\n", 2),
    ],
)
def test_a_bad_line_is_named(tmp_path, content, line):
    path = tmp_path / "bad.txt"
    path.write_text(content, encoding="utf-8")
    with refuses("encoders.bad_word_line", f"{path}:{line}:", "GloVe or word2vec"):
        read_words(path, None)


def test_files_and_tables_without_words_or_numbers_are_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with refuses("encoders.no_word_vectors", "empty.txt"):
        read_words(tmp_path / "empty.txt", None)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CseError, match="UTF-8"):
        read_words(tmp_path / "binary.txt", None)
    data = table(tmp_path).parent
    (data / "table.npy").write_bytes(b"no table")
    with refuses("encoders.bad_word_table", "index.parquet"):
        read_words(data / "table.npy", None)
    (data / "index.parquet").unlink()
    with refuses("encoders.bad_word_table", "contains 0"):
        read_words(data / "table.npy", None)


def test_export_comes_back_and_nothing_else_opens_it(tmp_path, file):
    encoder = build(file, lower=True)
    folder = tmp_path / "out" / "model"
    encoder.export(folder, 100)
    names = {"README.md", "cse.json", "config_sentence_transformers.json", "modules.json"}
    assert {child.name for child in folder.iterdir()} == names | {"vectors.safetensors", "words.json"}
    assert json.loads((folder / "words.json").read_text())[4] == "new york"
    for given in ("pooling", "template"):
        with refuses("encoders.unsupported_setting", f"has no {given}", f"--{given}"):
            open_encoder(str(folder), **{given: "mean"})


def table(tmp_path, words=("the", "cat", "."), rows=((1, 2), (3, 4), (0.5, -0.5))):
    """Write a table beside the words of its rows, as in the archive of GloVe 6B."""
    path = tmp_path / "table.npy"
    np.save(path, np.array(rows, dtype=np.float32))
    pq.write_table(pa.table({"index": list(words)}), tmp_path / "index.parquet")
    return path


def test_a_table_beside_its_words_by_hand_and_files_below_cse_data(tmp_path, file, monkeypatch):
    path = table(tmp_path)
    encoder = build(path, lower=True)
    expected = torch.tensor([[4.5 / 3, 5.5 / 3], [2.0, 3.0], [0.0, 0.0]])
    torch.testing.assert_close(encoding(encoder)(["The cat.", "the cat dog", "dog"]), expected)
    assert build(path, limit=2).table.tolist() == [[0, 0], [1, 2], [3, 4]]
    with pytest.raises(MissingError, match=r"vectors\.txt"):
        build("vectors.txt")
    monkeypatch.setenv("CSE_DATA", str(tmp_path))
    assert build("vectors.txt").dim == build(file).dim
    with pytest.raises(MissingError, match=r"(?s)other\.txt.*nlp\.stanford\.edu"):
        build("other.txt")


@pytest.mark.parametrize(
    ("words", "rows", "shape"), [(("a",), ((1, 2), (3, 4)), "(2, 2)"), (("a", "b"), (1, 2), "(2,)")]
)
def test_a_table_that_does_not_fit_its_words_is_refused(tmp_path, words, rows, shape):
    with refuses("encoders.bad_word_table", "table.npy", shape):
        build(table(tmp_path, words, rows))
