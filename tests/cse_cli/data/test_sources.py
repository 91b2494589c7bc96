import gzip

import pytest

from cse_cli.data.sources import Text, open_text
from cse_cli.recipe.schema import Data
from registry.catalogue import Source
from registry.errors import CseError, MissingError


def write(folder, name, lines):
    content = "".join(f"{line}\n" for line in lines).encode()
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(path)


def test_own_text_is_read_line_by_line(tmp_path):
    lines = ["a", "", "b\u2028c", "d\re", "f"]
    for name in ("t.txt", "t.txt.gz"):
        text = open_text(Data(file=write(tmp_path, name, lines)), {"text"})
        assert (text.rows, text.columns) == (5, ("text",))
        assert list(text.cells("text")) == lines


def test_a_tsv_has_the_columns_of_its_header(tmp_path):
    path = write(tmp_path, "t.tsv", ["text\ttranslation\tnote", "one\teins\tx", "two\tzwei\ty"])
    text = open_text(Data(file=path), {"text", "translation"})
    assert text.columns == ("text", "translation", "note")
    assert list(text.cells("translation")) == ["eins", "zwei"]


def test_a_limit_takes_the_first_rows_and_changes_the_fingerprint(tmp_path):
    path = write(tmp_path, "t.txt", ["a", "b", "c"])
    whole, cut = open_text(Data(file=path), {"text"}), open_text(Data(file=path, limit=2), {"text"})
    assert (cut.rows, list(cut.cells("text"))) == (2, ["a", "b"])
    assert open_text(Data(file=path, limit=99), {"text"}).rows == 3
    assert whole.fingerprint != cut.fingerprint


def test_data_sets_are_concatenated_and_share_their_columns():
    text = open_text(Data(dataset=("graded_pairs",), limit=7000), {"text", "translation"})
    assert (text.rows, text.columns) == (6000, ("text", "translation"))
    assert list(text.digests) == ["graded_pairs/train"]
    again = Text(text.sources * 2, text.columns, 6003, text.digests)
    cells = list(again.cells("translation"))
    assert len(cells) == 6003
    assert cells[6000:] == cells[:3]


def test_a_missing_translation_says_how_to_make_one(tmp_path):
    path = write(tmp_path, "t.txt", ["a"])
    with pytest.raises(CseError, match=f"file '{path}' has no column 'translation'; its columns are text") as caught:
        open_text(Data(file=path), {"text", "translation"})
    assert f"`cse data translate {path} --model MODEL`" in str(caught.value)
    with pytest.raises(CseError, match="dataset 'graded_pairs/dev' has no column 'text'"):
        open_text(Data(dataset=("graded_pairs",), split="dev"), {"text"})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "neither `dataset` nor `file`"),
        ({"dataset": ("graded_pairs",), "file": "x.txt"}, "both `dataset` and `file`"),
        ({"dataset": ("graded_pairs", "graded_pairs")}, "graded_pairs twice"),
        ({"file": "/nowhere/x.txt"}, "no such file"),
        ({"dataset": ("graded_pear",)}, "Did you mean 'graded_pairs'"),
    ],
)
def test_what_cannot_be_read_is_refused(data, message):
    with pytest.raises(CseError, match=message):
        open_text(Data(**data), {"text"})


def test_empty_and_unknown_files_are_refused(tmp_path):
    with pytest.raises(CseError, match="no sentences"):
        open_text(Data(file=write(tmp_path, "t.txt", [])), {"text"})
    with pytest.raises(CseError, match=r"is no \.txt, \.tsv or \.csv"):
        open_text(Data(file=write(tmp_path, "t.jsonl", ["text", "a"])), {"text"})
    with pytest.raises(MissingError):
        open_text(Data(dataset=("wiki_en",)), {"text"})


def test_a_scan_is_remembered_until_the_file_changes(tmp_path, monkeypatch):
    path = write(tmp_path, "t.txt", ["a", "b"])
    first = open_text(Data(file=path), {"text"})
    monkeypatch.setattr(Source, "scanned", property(lambda self: pytest.fail("read again")))
    assert open_text(Data(file=path), {"text"}).fingerprint == first.fingerprint
    monkeypatch.undo()
    write(tmp_path, "t.txt", ["a", "b", "c"])
    assert open_text(Data(file=path), {"text"}).rows == 3


def test_a_damaged_memory_of_a_scan_is_made_again(tmp_path, home):
    path = write(tmp_path, "t.txt", ["a", "b"])
    first = open_text(Data(file=path), {"text"})
    (note,) = (home / "cache" / "scans").glob("*.json")
    note.write_text('{"rows": 2')
    assert open_text(Data(file=path), {"text"}).fingerprint == first.fingerprint
