"""Pairs from a file of the user's own: what is read, and how what is wrong is told."""

import csv
import gzip
import io
import json
import math
import re
import sys
import types
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from registry.errors import CseError
from registry.resources.catalog import Pair, PairFile
from registry.resources.rows import Column
from tests.conftest import ROOT
from tests.support.errors import refuses

HEAD = "score\tsentence1\tsentence2\n"
COMMAS = "score,sentence1,sentence2\n"
OBJECT = '{"score": 1, "sentence1": "a", "sentence2": "b"}\n'
TABLE = {"score": [1.0, 2.0], "sentence1": ["a", "b"], "sentence2": ["c", "d"]}
MANY = "".join(f"{i % 5}\tword {i * 7919 % 1013}\tother {i * 104729 % 1009}\n" for i in range(5000))


def written(path, content):
    """Write text, bytes or a table of columns, packed where the name says so."""
    if isinstance(content, dict):
        parquet.write_table(pa.table(content), path)
        return path
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if path.name.endswith(".gz") and not raw.startswith(b"\x1f\x8b") else raw)
    return path


def cut(content, keep):
    return content[: int(len(content) * keep)]


def table_bytes(folder):
    return written(folder / "whole.parquet", TABLE).read_bytes()


# fmt: off
MALFORMED = {
    # fault: (file, content, (code, place after the path, values in the message))
    "missing column": ("t.tsv", "scroe\tsentence1\tsentence2\n1\ta\tb\n",
        ("data.missing_column", ":1", "'score'", "'scroe'")),
    "missing column of a csv": ("t.csv", "score,Sentence1,sentence2\n1,a,b\n",
        ("data.missing_column", ":1", "'sentence1'", "'Sentence1'")),
    "other separator": ("t.csv", "score;sentence1;sentence2\n1;a;b\n",
        ("data.no_header", ":1", "';'")),
    "commas in a tsv": ("t.tsv", COMMAS + "1,a,b\n", ("data.no_header", ":1", "','")),
    "two columns of a name": ("t.tsv", "score\tscore\tsentence1\tsentence2\n", ("data.same_column", ":1", "'score'")),
    "too few fields": ("t.tsv", HEAD + "1\ta\tb\n2\tc\n", ("data.malformed_row", ":3", "2")),
    "too many fields": ("t.tsv", HEAD + "1\ta\tb\td\n", ("data.malformed_row", ":2", "4", "3")),
    "empty line": ("t.tsv", HEAD + "1\ta\tb\n\n2\tc\td\n", ("data.malformed_row", ":3", "empty")),
    "score is text": ("t.tsv", HEAD + "1\ta\tb\nhigh\tc\td\n", ("data.invalid_cell", ":3", "'score'", "'high'")),
    "score with an underscore": ("t.tsv", HEAD + "1_0\ta\tb\n", ("data.invalid_cell", ":2", "'score'", "'1_0'")),
    "score is NaN": ("t.tsv", HEAD + "1\ta\tb\nNaN\tc\td\n", ("data.invalid_cell", ":3", "'score'", "'NaN'")),
    "score is empty": ("t.tsv", HEAD + "\ta\tb\n", ("data.invalid_cell", ":2", "'score'", "empty")),
    "first sentence empty": ("t.tsv", HEAD + "1\t\tb\n", ("data.invalid_cell", ":2", "'sentence1'", "empty")),
    "second sentence blank": ("t.tsv", HEAD + "1\ta\t \u00a0\n", ("data.invalid_cell", ":2", "'sentence2'", "empty")),
    "not UTF-8": ("t.tsv", HEAD.encode() + b"1\ta\tb\n2\tcaf\xe9\td\n", ("data.wrong_encoding", ":3")),
    "quote never closed": ("t.csv", COMMAS + '1,a,b\n2,"c,d\n3,e,f\n',
        ("data.malformed_row", ":3")),
    "quote never closed in a large file": ("t.csv", COMMAS + '2,"c,d\n' + "3,eeeeeeee,f\n" * 20_000,
        ("data.malformed_row", ":2")),
    "text after a quote": ("t.csv", COMMAS + '1,"a"b,c\n', ("data.malformed_row", ":2", "','", '\'"\'')),
    "gzip cut off": ("t.tsv.gz", cut(gzip.compress((HEAD + MANY).encode()), 0.6), ("data.damaged_file", "")),
    "gzip of garbage": ("t.tsv.gz", b"\x1f\x8b" + bytes(40), ("data.damaged_file", "")),
    "not JSON": ("t.jsonl", OBJECT + "score: 1\n", ("data.malformed_row", ":2")),
    "empty line of a jsonl": ("t.jsonl", OBJECT + "\n" + OBJECT, ("data.malformed_row", ":2", "empty")),
    "JSON of a list": ("t.jsonl", OBJECT + '[1, "a", "b"]\n', ("data.malformed_row", ":2", "a list")),
    "JSON nested without end": ("t.jsonl", OBJECT + "[" * 200_000 + "\n", ("data.malformed_row", ":2")),
    "JSON without a key": ("t.jsonl", OBJECT + '{"score": 1, "sentence1": "a", "sentence_2": "b"}\n',
        ("data.missing_column", ":2", "'sentence2'", "'sentence_2'")),
    "JSON score in quotes": ("t.jsonl", OBJECT.replace("1,", '"1",'),
        ("data.invalid_cell", ":1", "'score'", "'1'")),
    "JSON score is null": ("t.jsonl", OBJECT.replace("1,", "null,"), ("data.invalid_cell", ":1", "'score'", "null")),
    "JSON score has 400 digits": ("t.jsonl", OBJECT.replace("1,", "9" * 400 + ","),
        ("data.invalid_cell", ":1", "'score'")),
    "JSON sentence is a number": ("t.jsonl", OBJECT.replace('"b"', "7"), ("data.invalid_cell", ":1", "'sentence2'")),
    "JSON half a character": ("t.jsonl", OBJECT.replace('"a"', r'"\ud83d"'),
        ("data.invalid_cell", ":1", "'sentence1'")),
    "parquet cut off": ("t.parquet", lambda tmp: cut(table_bytes(tmp), 0.8),
        ("data.damaged_file", "")),
    "parquet damaged within": ("t.parquet", lambda tmp: table_bytes(tmp)[:4] + bytes(40) + table_bytes(tmp)[44:],
        ("data.damaged_file", "")),
    "parquet sentence is a number": ("t.parquet", {**TABLE, "sentence1": [1, 2]},
        ("data.invalid_cell", ": row 1", "'sentence1'")),
    "parquet lacks a column": ("t.parquet", {"scores": [1.0], "sentence1": ["a"], "sentence2": ["b"]},
        ("data.missing_column", "", "'score'", "'scores'")),
    "parquet score is text": ("t.parquet", {**TABLE, "score": ["1", "2"]},
        ("data.invalid_cell", ": row 1", "'score'", "'1'")),
    "parquet score is null": ("t.parquet", {**TABLE, "score": [1.0, None]},
        ("data.invalid_cell", ": row 2", "'score'", "null")),
    "parquet sentence is binary": ("t.parquet", {**TABLE, "sentence2": [b"a", b"b"]},
        ("data.invalid_cell", ": row 1", "'sentence2'", "binary data")),
    "parquet sentence is null": ("t.parquet", {**TABLE, "sentence2": ["a", None]},
        ("data.invalid_cell", ": row 2", "'sentence2'", "null")),
    "empty tsv": ("t.tsv", "", ("data.no_header", ":1", "empty")),
    "empty parquet": ("t.parquet", {name: values[:0] for name, values in TABLE.items()}, ("data.no_rows", "")),
    "first line empty": ("t.tsv", "\n" + HEAD, ("data.no_header", ":1", "empty")),
    "header only": ("t.tsv", HEAD, ("data.no_rows", ":1")),
    "no header": ("t.tsv", "1\ta\tb\n2\tc\td\n", ("data.missing_column", ":1", "'sentence1'")),
    "one pair": ("t.tsv", HEAD + "1\ta\tb\n", ("data.one_pair", ":2")),
    "constant gold": ("t.tsv", HEAD + "3\ta\tb\n" * 4,
        ("data.one_score", ":2", "4", "3")),
    "a text file": ("t.txt", "a sentence\n", ("data.unsupported_format", "", "'t.txt'")),
    "a packed parquet": ("t.parquet.gz", "PAR1", ("data.unsupported_format", "", "'t.parquet.gz'")),
}
# fmt: on


FIRST, SECOND = Column("first_column", "sentence1"), Column("second_column", "sentence2")
SCORE, SUBSET = Column("score_column", "score"), Column("subset_column", "genre")


NAMES = ("t.tsv", "t.csv", "t.jsonl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pairs")


def pair_file(path, **columns):
    return PairFile(str(path), FIRST, SECOND, **{"score": SCORE, **columns})


# --- what is read ----------------------------------------------------------------------------------------------------

GOOD = {
    "a.tsv": 'score\tsentence1\tsentence2\n1\tsay "x"\tb\n2.5\t"c\td\n',
    "a.tsv.gz": 'score\tsentence1\tsentence2\n1\tsay "x"\tb\n2.5\t"c\td\n',
    "a.csv": 'score,sentence1,sentence2\n1,"say ""x""",b\n2.5,"""c",d\n',
    "a.csv.gz": '\ufeffscore,sentence1,sentence2\r\n1,"say ""x""",b\r\n2.5,"""c",d\r\n',
    "a.jsonl": "".join(
        json.dumps({"other": None, "sentence2": two, "score": score, "sentence1": one}) + "\n"
        for score, one, two in [(1, 'say "x"', "b"), (2.5, '"c', "d")]
    ),
    "a.parquet": {"sentence1": ['say "x"', '"c'], "other": [0, 1], "score": [1.0, 2.5], "sentence2": ["b", "d"]},
}
GOOD["a.jsonl.gz"] = GOOD["a.jsonl"]


@pytest.mark.parametrize("name", GOOD)
def test_every_format_gives_the_same_pairs(tmp_path, name):
    path = written(tmp_path / name, GOOD[name])
    assert pair_file(path).scored() == [Pair("", 1.0, 'say "x"', "b"), Pair("", 2.5, '"c', "d")]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2], pa.int8()),
        pa.array([1, 2], pa.uint64()),
        pa.array([1, 2], pa.float32()),
        pa.array([Decimal("1.0"), Decimal("2.0")]),
    ],
    ids=["int8", "uint64", "float32", "decimal"],
)
def test_parquet_numbers_of_any_type_and_dictionary_text(tmp_path, values):
    text = pa.array(["a", "b"]).dictionary_encode()
    large = pa.array(["c", "d"], pa.large_string())
    path = written(tmp_path / "t.parquet", {"score": values, "sentence1": text, "sentence2": large})
    assert pair_file(path).pairs == [Pair("", 1.0, "a", "c"), Pair("", 2.0, "b", "d")]


def test_the_user_names_columns_or_none_of_scores(tmp_path):
    path = written(tmp_path / "t.csv", ',gold,x,x,genre,a,b\n0,-3e-1,,,news,"one\ntwo",three\n1, 4 ,,,web,p,q\n')
    asked = PairFile(
        str(path), Column("first_column", "b"), Column("second_column", "a"), Column("score_column", "gold"), SUBSET
    )
    assert asked.pairs == [Pair("news", -0.3, "three", "one\ntwo"), Pair("web", 4.0, "q", "p")]
    path = written(tmp_path / "t.tsv", "sentence1\tsentence2\tscore\na\tb\tnone\n")
    (pair,) = pair_file(path, score=None).pairs
    assert math.isnan(pair.score)
    assert (pair.subset, pair.first, pair.second) == ("", "a", "b")


def test_relative_paths_and_long_cells(tmp_path, monkeypatch):
    here, data = tmp_path / "here", tmp_path / "data"
    for folder in (here, data):
        folder.mkdir()
        written(folder / "both.tsv", HEAD + f"1\t{folder.name}\tb\n2\tc\td\n")
    written(data / "one.tsv", HEAD + "1\tonly\tb\n2\tc\td\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("CSE_DATA", str(data))
    assert [pair_file(name).pairs[0].first for name in ("both.tsv", "one.tsv")] == ["here", "only"]
    monkeypatch.delenv("CSE_DATA")
    with refuses("data.missing_file", "one.tsv"):
        _ = pair_file("one.tsv").pairs
    long = "word " * 40_000
    path = written(tmp_path / "t.csv", f"score,sentence1,sentence2\n1,{long},b\n2,c,d\n")
    assert pair_file(path).pairs[0] == Pair("", 1.0, long, "b")


def test_missing_files_and_columns_suggest_the_nearest_name_and_the_parameter(tmp_path, monkeypatch):
    monkeypatch.delenv("CSE_DATA", raising=False)
    written(tmp_path / "medical_pairs.tsv", HEAD)
    with refuses("data.missing_file", "Did you mean 'medical_pairs.tsv'") as caught:
        _ = pair_file(tmp_path / "medical_pair.tsv").pairs
    assert caught.value.exit_code == 3
    assert caught.value.next_action
    path = written(tmp_path / "t.tsv", HEAD + "1\ta\tb\n")
    with refuses("data.same_column", "first_column", "second_column", "'sentence1'"):
        _ = PairFile(str(path), FIRST, Column("second_column", "sentence1"), SCORE).pairs
    path = written(tmp_path / "t.tsv", "gold\tsentence1\tsentence2\n1\ta\tb\n")
    with refuses("data.missing_column", "`score_column`", "'gold', 'sentence1', 'sentence2'"):
        _ = pair_file(path).pairs


def test_the_fingerprint_is_the_contents(tmp_path):
    names = {}
    for name in ("a.tsv", "a.tsv.gz", "b.tsv"):
        path = written(tmp_path / name, HEAD + ("1\ta\tb\n2\tc\td\n" if name != "b.tsv" else "1\ta\tb\n3\tc\td\n"))
        ((key, names[name]),) = pair_file(path).fingerprints("dev").items()
        assert key == f"{path}/dev"
    assert names["a.tsv"] == names["a.tsv.gz"] != names["b.tsv"]
    assert re.fullmatch("rows:[0-9a-f]{64}", names["a.tsv"])
    path = tmp_path / "t.tsv.gz"
    path.write_bytes(cut(gzip.compress((HEAD + MANY).encode()), 0.6))
    with refuses("data.damaged_file", path):
        pair_file(path).fingerprints("test")


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_messages_in_the_documentation_are_current(tmp_path):
    page = (ROOT / "docs" / "evaluators.md").read_text(encoding="utf-8")
    shown = re.findall(r"^t\..*$", page, re.MULTILINE)
    printed = set()
    for name, content, _ in MALFORMED.values():
        path = written(tmp_path / name, content(tmp_path) if callable(content) else content)
        with pytest.raises(CseError) as told:
            pair_file(path).scored()
        printed.add(re.sub(r"damaged after line \d+", "damaged", told.value.message.removeprefix(f"{tmp_path}/")))
    assert len(shown) == 10
    # The line a packed file breaks at is the packer's.
    assert {re.sub(r"damaged after line \d+", "damaged", line) for line in shown} <= printed


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_rejected_with_its_line(tmp_path, case):
    name, content, (code, place, *values) = MALFORMED[case]
    path = written(tmp_path / name, content(tmp_path) if callable(content) else content)
    with refuses(code, f"{path}{place}", *values) as caught:
        pair_file(path).scored()
    assert caught.value.next_action
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400 + len(str(path))


@pytest.mark.parametrize(
    ("rows", "code", "value"),
    [
        ("1\ta\tb\tweb\n2\ta\tc\tweb\n3\td\te\tnews\n", "data.one_pair", ":4: subset 'news'"),
        ("1\ta\tb\tweb\n2\ta\tc\tnews\n1\td\te\tweb\n3\td\tf\tnews\n", "data.one_score", ":2: subset 'web'"),
        ("1\ta\tb\tweb\n2\ta\tc\t\n", "data.invalid_cell", ":3: 'genre'"),
    ],
)
def test_every_subset_must_have_a_correlation(tmp_path, rows, code, value):
    path = written(tmp_path / "t.tsv", HEAD.replace("\n", "\tgenre\n") + rows)
    with refuses(code, f"{path}{value}"):
        pair_file(path, subset=SUBSET).scored()


@pytest.mark.parametrize("name", ["t.tsv", "t.csv"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_and_blank_last_lines_give_the_same_pairs(tmp_path, name, end):
    content = (HEAD + "1\ta\tb\n2\tc\td\n\n\n").replace("\t", "\t" if name == "t.tsv" else ",").replace("\n", end)
    found = pair_file(written(tmp_path / name, content)).scored()
    assert found == [Pair("", 1.0, "a", "b"), Pair("", 2.0, "c", "d")]


def quoted(rows, **how):
    made = io.StringIO(newline="")
    csv.writer(made, lineterminator="\n", delimiter="\t", **how).writerows([("score", "sentence1", "sentence2"), *rows])
    return made.getvalue()


SPOKEN = [(1, 'say "x" again', "b"), (2, 'a "quoted" word', "c d"), (3, "none", "e")]


@pytest.mark.parametrize("how", [{}, {"quoting": csv.QUOTE_NONNUMERIC}])
def test_a_tsv_that_a_csv_writer_wrote_causes_a_warning_with_the_number_of_cells(tmp_path, how):
    content = quoted(SPOKEN, **how).replace('"score"\t"sentence1"\t"sentence2"', HEAD.strip())
    path = written(tmp_path / "t.tsv", content)
    with pytest.warns(UserWarning, match=rf"{path}: every cell with a quote .* \(2 cells\)"):
        pairs = pair_file(path).pairs
    assert pairs[0].first == '"say ""x"" again"'  # quotes stay a part of the sentence


@pytest.mark.parametrize(
    "row",
    [
        ('"Hello," she said. "Bye."', "b"),  # one quote that is not doubled is the author's own
        ('say "x"', "b"),
        ('""', "b"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_quotes_that_an_author_wrote_cause_no_warning(tmp_path, row):
    more = quoted(SPOKEN) if '""' not in row else HEAD + "2\tc\td\n"
    path = written(tmp_path / "t.tsv", f"{more}4\t" + "\t".join(row) + "\n")
    assert pair_file(path).pairs[-1] == Pair("", 4.0, *row)


# --- whatever the cells are -------------------------------------------------------------------------------------------

CELLS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")).filter(str.strip)
LINES = CELLS.filter(lambda text: not set(text) & set("\t\n\r") and not text.startswith("\ufeff"))
ROWS = st.lists(st.tuples(st.floats(-1e9, 1e9), CELLS, CELLS), min_size=1, max_size=5)


@pytest.mark.slow
@given(rows=st.lists(st.tuples(st.floats(-1e9, 1e9), LINES, LINES), min_size=1, max_size=5), end=st.sampled_from("\n "))
def test_any_text_without_tabs_comes_back_from_a_tsv(folder, rows, end):
    text = HEAD + "\n".join("\t".join((repr(score), one, two)) for score, one, two in rows) + end.strip(" ")
    path = written(folder / "t.tsv", text)
    assert pair_file(path).pairs == [Pair("", *row) for row in rows]


@pytest.mark.slow
@given(rows=ROWS)
def test_any_text_comes_back_from_a_csv_json_lines_and_parquet(folder, rows):
    made = io.StringIO(newline="")
    csv.writer(made, lineterminator="\n").writerows([("score", "sentence1", "sentence2"), *rows])
    records = [dict(zip(("score", "sentence1", "sentence2"), row, strict=True)) for row in rows]
    columns = {name: [record[name] for record in records] for name in records[0]}
    contents = {"t.jsonl": "\n".join(map(json.dumps, records)), "t.parquet": columns}
    if not any("\r" in cell for _, *cells in rows for cell in cells):  # it is read as "\n"
        contents["t.csv"] = made.getvalue()
    for name, content in contents.items():
        assert pair_file(written(folder / name, content)).pairs == [Pair("", *row) for row in rows], name


@pytest.mark.slow
@given(rows=ROWS, damage=st.binary(min_size=1, max_size=4), at=st.integers(0, 400), name=st.sampled_from(NAMES))
def test_damage_is_read_as_other_pairs_or_told_with_the_file(folder, rows, damage, at, name):
    """Never a traceback, and never a row more or less without a word where a line end was not touched."""
    sep = {"t.tsv": "\t", "t.csv": ","}.get(name, "")
    table = "score,sentence1,sentence2\n" + "".join(f"{number},one,two\n" for number in range(9))
    raw = (table.replace(",", sep) if sep else OBJECT * 9).encode()
    at %= len(raw)
    changed = raw[:at] + damage + raw[at + len(damage) :]
    found = read_or_told(written(folder / name, changed))
    if isinstance(found, list):
        assert len(found) == 9 or len(changed.splitlines()) != len(raw.splitlines()) or b'"' in damage
    else:
        assert str(folder / name) in found.message
        assert found.next_action


def read_or_told(path):
    try:
        return pair_file(path).pairs
    except CseError as error:
        return error


def test_a_data_set_of_the_hub_is_read_by_its_columns(monkeypatch):
    import datasets

    rows = {"sentence1": ["a", "c"], "sentence2": ["b", "d"], "score": [1, 2.5], "other": [None, None]}
    asked = []

    def open_hub_set(name, split):
        asked.append((name, split))
        return datasets.Dataset.from_dict(rows)

    monkeypatch.setitem(sys.modules, "registry.resources.hub_sets", types.SimpleNamespace(open_hub_set=open_hub_set))
    own = pair_file("hf:owner/name:config", split="validation")
    assert own.scored() == [Pair("", 1.0, "a", "b"), Pair("", 2.5, "c", "d")]
    assert asked == [("hf:owner/name:config", "validation")]
    rows["sentence2"] = ["b", ""]
    with refuses("data.invalid_cell", "hf:owner/name, split 'test': row 2", "'sentence2'"):
        _ = pair_file("hf:owner/name").pairs
    with refuses("data.missing_column", "hf:owner/name, split 'test'", "'sentence3'", "`second_column`"):
        _ = PairFile("hf:owner/name", FIRST, Column("second_column", "sentence3"), SCORE).pairs
