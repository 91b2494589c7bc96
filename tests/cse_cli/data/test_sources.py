import gzip
import json
import random
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cse_cli.data import files
from cse_cli.data.files import open_files, refuse_table
from cse_cli.data.sources import open_text
from cse_cli.recipe.schema import Data
from registry.errors import UnknownNameError
from registry.resources import catalog
from tests.support.errors import refuses


def write(folder, name, lines):
    content = "".join(f"{line}\n" for line in lines).encode()
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(path)


def cells(data, column="text"):
    return list(open_text(data, {column}).cells(column))


def test_text_is_read_by_line_and_blank_lines_are_counted(tmp_path):
    lines = ["a", "", "b\u2028c\x85\x0c", "  \t ", "f"]
    for name in ("t.txt", "t.txt.gz"):
        text = open_text(Data(file=write(tmp_path, name, lines)), {"text"})
        assert (text.rows, text.columns) == (3, ("text",))
        assert list(text.cells("text")) == ["a", "b\u2028c\x85\x0c", "f"]
        assert text.notices == (f"{tmp_path / name}: 2 blank rows skipped",)


@pytest.mark.parametrize("name", ["t.txt", "t.tsv", "t.csv"])
@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_marks_are_removed(tmp_path, name, packed, end):
    content = ("\ufeff" + ("" if name == "t.txt" else f"text{end}") + f"a b{end}c{end}{end}").encode()
    path = tmp_path / f"{name}{packed}"
    path.write_bytes(gzip.compress(content) if packed else content)
    text = open_text(Data(file=str(path)), {"text"})
    assert list(text.cells("text")) == ["a b", "c"]
    assert text.notices == (f"{path}: 1 blank row skipped",)


def test_a_text_with_the_quotes_of_a_csv_writer_causes_a_warning(tmp_path):
    path = write(tmp_path, "t.tsv", ["text\tnote", '"say ""x"""\ta'])
    with pytest.warns(UserWarning, match=rf"{path}: every cell with a quote .* \(1 cells\)"):
        open_text(Data(file=path), {"text"})


def test_a_tsv_has_the_columns_of_its_header_and_literal_quotes(tmp_path):
    path = write(tmp_path, "t.tsv", ["text\ttranslation\tnote", 'one "\teins\tx', '005\tNA\t"y', "\t\t", "", "a\t \tx"])
    text = open_text(Data(file=path), {"text", "translation"})
    assert list(text.cells("text")) == ['one "', "005"]
    assert list(text.cells("translation")) == ["eins", "NA"]
    assert text.notices == (f"{path}: 3 blank rows skipped",)


@pytest.mark.parametrize(
    ("name", "lines", "code", "values"),
    [
        ("t.tsv", ["text\ttranslation", "a\tb", "", "c"], "malformed_row", ["t.tsv:4", "1 cell,", "2"]),
        ("t.tsv", ["text\ttranslation", "a\tb\tc"], "malformed_row", ["t.tsv:2", "3 cells", "2"]),
        ("t.csv", ["text,translation", '"a, b",c', "d"], "malformed_row", ["t.csv:3"]),
        ("t.tsv", ["text\ttext", "a\tb"], "no_header", ["t.tsv:1", "text\\ttext"]),
        (
            "t.jsonl",
            ['{"text": "a", "translation": "b"}', '{"text": "c"}'],
            "missing_value",
            ["row 2", "'translation'"],
        ),
        ("t.jsonl", ['{"text": null, "translation": "b"}'], "missing_value", ["row 1", "'text'"]),
        ("t.jsonl", ['{"text": 1, "translation": "b"}'], "not_strings", ["'text'", "int64"]),
        ("t.jsonl", ['{"text": "2012-01-01", "translation": "b"}'], "not_strings", ["'text'", "timestamp"]),
        ("t.jsonl", ['{"text": "a", "translation": "b"}', "{"], "unreadable_file", ["t.jsonl", "JSON parse error"]),
    ],
)
def test_malformed_rows_are_errors_with_their_place(tmp_path, name, lines, code, values):
    with refuses(f"data.{code}", *values):
        open_text(Data(file=write(tmp_path, name, lines)), {"text", "translation"})


@pytest.mark.parametrize(
    ("name", "content", "code", "values"),
    [
        ("t.txt", b"a\nb\xff\n", "wrong_encoding", ["t.txt:2"]),
        ("t.txt.gz", gzip.compress(b"a\nb\n" * 999, mtime=0)[:-20], "damaged_file", ["t.txt.gz"]),
        ("t.txt.gz", b"a\n", "damaged_file", ["Not a gzipped file"]),
        ("t.parquet", b"PAR1 and nothing", "unreadable_file", ["t.parquet"]),
        ("t.txt", b"", "no_sentences", ["t.txt"]),
        ("t.txt", b"\n \n", "no_sentences", ["t.txt"]),
        ("t.jsonl", b"", "no_sentences", ["t.jsonl"]),
    ],
)
def test_damaged_and_empty_files_are_errors(tmp_path, name, content, code, values, home):
    (tmp_path / name).write_bytes(content)
    with refuses(f"data.{code}", *values):
        open_text(Data(file=str(tmp_path / name)), {"text"})
    assert not list((home / "cache").rglob("*.json")) or code == "no_sentences"


def test_all_formats_give_the_same_rows(tmp_path):
    rows = [("a, b", "x"), ('"c"', "y"), ("d", "z")]
    write(tmp_path, "a.tsv", ["text\ttranslation", *("\t".join(row) for row in rows)])
    write(tmp_path, "a.csv", ["text,translation", '"a, b",x', '"""c""",y', "d,z"])
    objects = [{"text": a, "n": 1, "translation": b} for a, b in rows]
    write(tmp_path, "a.jsonl.gz", map(json.dumps, objects))
    (tmp_path / "a.json").write_text(json.dumps(objects))
    table = pa.table({"translation": [b for _, b in rows], "text": pa.array([a for a, _ in rows], pa.large_string())})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    texts = [open_text(Data(file=str(path)), {"text", "translation"}) for path in sorted(tmp_path.glob("a.*"))]
    assert len(texts) == 5
    for text in texts:
        assert list(zip(text.cells("text"), text.cells("translation"), strict=True)) == rows
    assert len({text.fingerprint for text in texts}) == 1


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_opening_a_file_of_ones_own_asks_the_network_nothing(tmp_path, monkeypatch, name):
    asked = []
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_UPDATE_DOWNLOAD_COUNTS", True)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *where, **_: asked.append(where) or [])
    write(tmp_path, name, ['{"text": "a"}'])
    assert open_text(Data(file=str(tmp_path / name)), {"text"}).rows == 1
    assert asked == []


def test_folders_globs_and_lists_are_one_text(tmp_path):
    (tmp_path / "d" / "e").mkdir(parents=True)
    write(tmp_path, "d/2.txt", ["b"])
    write(tmp_path, "d/1.txt.gz", ["a"])
    write(tmp_path, "d/e/3.txt", ["c"])
    write(tmp_path, "d/.hidden.txt", ["x"])
    write(tmp_path, "d/README.md", ["x"])
    assert cells(Data(file=str(tmp_path / "d"))) == ["a", "b", "c"]
    assert cells(Data(file=str(tmp_path / "d" / "[0-9].txt"))) == ["b"]
    assert cells(Data(file=str(tmp_path / "**" / "[23].txt"))) == ["b", "c"]
    assert cells(Data(file=(str(tmp_path / "d/e"), str(tmp_path / "d/2.txt")))) == ["c", "b"]
    write(tmp_path, "d/4.tsv", ["text", "a"])
    with refuses("data.mixed_formats", "4.tsv"):
        open_text(Data(file=str(tmp_path / "d")), {"text"})
    write(tmp_path, "d/5.tsv", ["a", "b"])
    with refuses("data.mixed_columns", "5.tsv", "columns a", "4.tsv"):
        open_text(Data(file=str(tmp_path / "d" / "*.tsv")), {"text"})


def test_another_column_is_read_as_the_text(tmp_path):
    path = write(tmp_path, "t.tsv", ["text\tsentence", "a\tb"])
    assert cells(Data(file=path, column="sentence")) == ["b"]
    with pytest.raises(UnknownNameError, match="Did you mean 'sentence'"):
        open_text(Data(file=path, column="sentense"), {"text"})
    path = write(tmp_path, "u.jsonl", ['{"content": "a"}'])
    with refuses("data.unknown_column", "content", "data.column"):
        open_text(Data(file=path), {"text"})
    assert cells(Data(file=path, column="content")) == ["a"]
    path = write(tmp_path, "pairs.csv", ["anchor,positve", "a,b"])
    with refuses("data.unknown_column", "pairs.csv", "Did you mean 'positve'?", "anchor, positve"):
        open_text(Data(file=path), {"anchor", "positive"})


def test_a_limit_selects_rows_and_changes_the_fingerprint(tmp_path):
    path = write(tmp_path, "t.txt", ["a", "b", "c"])
    whole, cut = open_text(Data(file=path), {"text"}), open_text(Data(file=path, limit=2), {"text"})
    assert (cut.rows, list(cut.cells("text"))) == (2, ["a", "b"])
    assert open_text(Data(file=path, limit=99), {"text"}).rows == 3
    assert whole.fingerprint != cut.fingerprint


def test_generated_rows_are_counted_against_the_catalog():
    text = open_text(Data(dataset=("wiki1m_joined",), limit=7000), {"text"})
    assert (text.rows, text.columns) == (1191, ("text",))
    assert len(list(text.cells("text"))) == 1191


@pytest.mark.data
def test_data_sets_are_concatenated():
    from registry.resources import catalog

    names = ("wiki1m_prefix", "wiki_zh")
    text = open_text(Data(dataset=names, limit=11915), {"text"})
    assert text.rows == 11915
    rows = list(text.cells("text"))
    assert rows[0] == next(catalog.locate(names[0], "train").rows())[0]
    assert rows[11914] == next(catalog.locate(names[1], "train").rows())[0]


@pytest.mark.data
@pytest.mark.parametrize("name", ["multi30k_en_de", "ntrex_yue_zh", "wiki1m_prefix"])
def test_a_training_text_is_what_the_catalog_reads(name):
    from registry.resources import catalog

    source = catalog.locate(name, "train")
    for column in source.columns:
        assert cells(Data(dataset=(name,)), column) == [row[0] for row in source.read([column])]


def test_a_missing_translation_explains_how_to_create_it(tmp_path):
    path = write(tmp_path, "t.txt", ["a"])
    with refuses("data.unknown_column", path, "'translation'", "[data.columns.translation]"):
        open_text(Data(file=path), {"text", "translation"})
    with refuses("data.unknown_column", "'stsb_open/dev'", "'text'"):
        open_text(Data(dataset=("stsb_open",), split="dev"), {"text"})


@pytest.mark.parametrize(
    ("data", "code", "value"),
    [
        ({"dataset": ("tatoeba_open", "tatoeba_open")}, "repeated_dataset", "'tatoeba_open'"),
        ({"file": "/nowhere/x.txt"}, "missing_file", "/nowhere/x.txt"),
        ({"file": "/nowhere/*.txt"}, "missing_file", "/nowhere/*.txt"),
        ({"file": __file__}, "unknown_format", "test_sources.py"),
        ({"dataset": ("tatoeba_opne",)}, "unknown_dataset", "Did you mean 'tatoeba_open'"),
        ({"dataset": ("hf:wrong",)}, "invalid_hub_name", "hf:owner/name[:config]"),
        ({"dataset": ("wiki_en",)}, "missing_dataset", "'wiki_en'"),
    ],
)
def test_text_that_does_not_exist_is_an_error(data, code, value):
    with refuses(f"data.{code}", value):
        open_text(Data(**data), {"text"})


def test_a_file_is_read_once_until_it_changes(tmp_path, monkeypatch):
    path = write(tmp_path, "t.txt", ["a", "b"])
    first = open_text(Data(file=path), {"text"})
    monkeypatch.setattr(files, "refuse_table", lambda _: None)
    monkeypatch.setattr(files, "lines", lambda *_: pytest.fail("read again"))
    assert open_text(Data(file=path), {"text"}).fingerprint == first.fingerprint
    monkeypatch.undo()
    write(tmp_path, "t.txt", ["a", "b", "c"])
    assert open_text(Data(file=path), {"text"}).rows == 3


@pytest.mark.parametrize("suffix", ["json", "arrow"])
def test_a_damaged_arrow_file_is_created_again(tmp_path, home, suffix):
    path = write(tmp_path, "t.txt", ["a", "b"])
    first = open_text(Data(file=path), {"text"})
    (kept,) = (home / "cache" / "text").glob(f"*.{suffix}")
    whole = kept.read_bytes()
    for damage in (whole[:20], b""):
        kept.write_bytes(damage)
        with pytest.warns(UserWarning, match=r"\.arrow is damaged and is created again") as told:
            text = open_text(Data(file=path), {"text"})
        assert len(told) == 1
        assert (text.fingerprint, list(text.cells("text"))) == (first.fingerprint, ["a", "b"])
        assert kept.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path, home):
    path = write(tmp_path, "t.txt", ["a"])
    (home / "cache").mkdir(parents=True)
    (home / "cache" / "text").write_text("a file where a folder should be")
    with refuses("data.cache_not_writable", home / "cache"):
        open_text(Data(file=path), {"text"})


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\t\r\n\ufeff"), max_size=8)


@pytest.mark.slow
@settings(max_examples=50)
@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=30))
def test_any_cells_come_back_from_a_tsv(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("tsv") / "t.tsv"
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in [("text", "translation"), *rows]).encode())
    found = files.open_files([path], None).select(("text", "translation"))
    tables = [files.without_blanks(table).to_pydict() for table in found.tables()]
    read = [row for table in tables for row in zip(table["text"], table["translation"], strict=True)]
    assert read == [row for row in rows if row[0].strip() and row[1].strip()]


# Tables in `.txt` files are refused, prose is not.


TABLES = {
    "two columns": "id,text\n1,A man sings.\n2,A dog runs.\n",
    "quoted cells": 'sentence,score\n"A man, who sings.",3\n"A ""dog"", it runs.",4\n"x",5\n',
    "quoted header": '"id","text"\n1,a\n2,b\n3,c\n',
    "line break in a cell": 'id,text\n1,a\n2,"b\n c"\n3,d\n4,e\n',
    "names of two words": "sentence one,sentence two,score\na b,c d,1\ne,f,2\n",
}
PROSE = {
    "commas after spaces": "Well, yes.\nNo, never.\nOh, fine.\n",
    "different numbers of commas": "red,green\none,two,three\nfour\n",
    "one word per line": "one\ntwo\nthree\n",
    "two lines": "a,b\nc,d\n",
    "a list in the first line": "apples,pears and the other fruit\nx, y\nz, w\n",
    "equal names": "ha,ha\nno,no\nso,so\n",
    "a single TAB": "a\tb\nc d\ne f\n",
    "blank lines": "\n\n\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_csv_in_a_text_file_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "own.txt"
    file.write_text(TABLES[name])
    header = TABLES[name].partition("\n")[0]
    with refuses("data.table_in_text", f"{file}:1: ", "commas", header, "own.csv", "data.column"):
        open_files([file], None)


def test_a_tsv_in_a_packed_text_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.txt.gz"
    file.write_bytes(gzip.compress(b"A man.\tEin Mann.\nA dog.\tEin Hund.\nA cat.\tEine Katze.\n"))
    with refuses("data.table_in_text", "3 lines", "2 cells", "TABs", "own.tsv.gz"):
        open_files([file], None)


@pytest.mark.parametrize("name", PROSE)
def test_prose_is_not_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "own.txt"
    file.write_text(PROSE[name])
    refuse_table(file)


def test_no_part_of_the_english_text_of_the_package_is_refused(tmp_path: Path) -> None:
    """Also without the space after commas in a tenth of the lines."""
    generator = random.Random(0)
    rows = [row[0] for row in catalog.locate("tatoeba_open", "train").rows()]
    file = tmp_path / "own.txt"
    for start in range(0, len(rows), 500):
        some = [row.replace(", ", ",") if generator.random() < 0.1 else row for row in rows[start : start + 20]]
        file.write_text("\n".join(some), encoding="utf-8")
        refuse_table(file)
