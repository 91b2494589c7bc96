"""Malformed files of sentence pairs, with the expected errors."""

from __future__ import annotations

import gzip
import math

import pyarrow as pa
from pyarrow import parquet

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
    "too few fields of a csv": ("t.csv", COMMAS + "1,a,b\n2\n", ("data.malformed_row", ":3", "1")),
    "too many fields of a csv": ("t.csv", COMMAS + '1,"a\nb",c\n2,d,e,f\n', ("data.malformed_row", ":4", "3")),
    "empty line": ("t.tsv", HEAD + "1\ta\tb\n\n2\tc\td\n", ("data.malformed_row", ":3", "empty")),
    "empty line of a csv": ("t.csv", COMMAS + "1,a,b\n\n2,c,d\n", ("data.malformed_row", ":3", "empty")),
    "score is text": ("t.tsv", HEAD + "1\ta\tb\nhigh\tc\td\n", ("data.invalid_cell", ":3", "'score'", "'high'")),
    "score with a comma": ("t.tsv", HEAD + "4,5\ta\tb\n", ("data.invalid_cell", ":2", "'score'", "'4,5'")),
    "score with an underscore": ("t.tsv", HEAD + "1_0\ta\tb\n", ("data.invalid_cell", ":2", "'score'", "'1_0'")),
    "score is NaN": ("t.tsv", HEAD + "1\ta\tb\nNaN\tc\td\n", ("data.invalid_cell", ":3", "'score'", "'NaN'")),
    "score is infinite": ("t.csv", COMMAS + "-inf,a,b\n", ("data.invalid_cell", ":2", "'score'", "'-inf'")),
    "score too large": ("t.tsv", HEAD + "1e999\ta\tb\n", ("data.invalid_cell", ":2", "'score'", "'1e999'")),
    "score is empty": ("t.tsv", HEAD + "\ta\tb\n", ("data.invalid_cell", ":2", "'score'", "empty")),
    "first sentence empty": ("t.tsv", HEAD + "1\t\tb\n", ("data.invalid_cell", ":2", "'sentence1'", "empty")),
    "second sentence blank": ("t.tsv", HEAD + "1\ta\t \u00a0\n", ("data.invalid_cell", ":2", "'sentence2'", "empty")),
    "sentence of a csv empty": ("t.csv", COMMAS + '1,a,b\n1,"",b\n',
        ("data.invalid_cell", ":3", "'sentence1'", "empty")),
    "not UTF-8": ("t.tsv", HEAD.encode() + b"1\ta\tb\n2\tcaf\xe9\td\n", ("data.wrong_encoding", ":3")),
    "not UTF-8, csv": ("t.csv", COMMAS.encode() + b"1,a,caf\xe9\n", ("data.wrong_encoding", ":2")),
    "not UTF-8, jsonl": ("t.jsonl", OBJECT.encode() + b'{"score": 1, "sentence1": "\xff"}\n',
        ("data.wrong_encoding", ":2")),
    "UTF-16": ("t.tsv", HEAD.encode("utf-16"), ("data.wrong_encoding", ":1")),
    "quote never closed": ("t.csv", COMMAS + '1,a,b\n2,"c,d\n3,e,f\n',
        ("data.malformed_row", ":3")),
    "quote never closed in a large file": ("t.csv", COMMAS + '2,"c,d\n' + "3,eeeeeeee,f\n" * 20_000,
        ("data.malformed_row", ":2")),
    "text after a quote": ("t.csv", COMMAS + '1,"a"b,c\n', ("data.malformed_row", ":2", "','", '\'"\'')),
    "too few fields after a carriage return": ("t.csv", "score,sentence1,sentence2\r1,a,b\r2\r",
        ("data.malformed_row", ":3", "1")),
    "gzip cut off": ("t.tsv.gz", cut(gzip.compress((HEAD + MANY).encode()), 0.6), ("data.damaged_file", "")),
    "csv gzip cut off": ("t.csv.gz", cut(gzip.compress((HEAD + MANY).replace("\t", ",").encode()), 0.6),
        ("data.damaged_file", "")),
    "gzip of garbage": ("t.tsv.gz", b"\x1f\x8b" + bytes(40), ("data.damaged_file", "")),
    "not JSON": ("t.jsonl", OBJECT + "score: 1\n", ("data.malformed_row", ":2")),
    "JSON cut off": ("t.jsonl", OBJECT + OBJECT[:-3] + "\n", ("data.malformed_row", ":2")),
    "empty line of a jsonl": ("t.jsonl", OBJECT + "\n" + OBJECT, ("data.malformed_row", ":2", "empty")),
    "JSON of a list": ("t.jsonl", OBJECT + '[1, "a", "b"]\n', ("data.malformed_row", ":2", "a list")),
    "JSON of a number": ("t.jsonl", "3\n", ("data.malformed_row", ":1")),
    "JSON nested without end": ("t.jsonl", OBJECT + "[" * 200_000 + "\n", ("data.malformed_row", ":2")),
    "JSON without a key": ("t.jsonl", OBJECT + '{"score": 1, "sentence1": "a", "sentence_2": "b"}\n',
        ("data.missing_column", ":2", "'sentence2'", "'sentence_2'")),
    "JSON score in quotes": ("t.jsonl", OBJECT.replace("1,", '"1",'),
        ("data.invalid_cell", ":1", "'score'", "'1'")),
    "JSON score is null": ("t.jsonl", OBJECT.replace("1,", "null,"), ("data.invalid_cell", ":1", "'score'", "null")),
    "JSON score is true": ("t.jsonl", OBJECT.replace("1,", "true,"), ("data.invalid_cell", ":1", "'score'", "true")),
    "JSON score is NaN": ("t.jsonl", OBJECT.replace("1,", "NaN,"), ("data.invalid_cell", ":1", "'score'", "nan")),
    "JSON score has 400 digits": ("t.jsonl", OBJECT.replace("1,", "9" * 400 + ","),
        ("data.invalid_cell", ":1", "'score'")),
    "JSON sentence is a number": ("t.jsonl", OBJECT.replace('"b"', "7"), ("data.invalid_cell", ":1", "'sentence2'")),
    "JSON sentence is a list": ("t.jsonl", OBJECT.replace('"b"', '["b"]'),
        ("data.invalid_cell", ":1", "'sentence2'", "a list")),
    "JSON sentence is null": ("t.jsonl", OBJECT.replace('"a"', "null"),
        ("data.invalid_cell", ":1", "'sentence1'", "null")),
    "JSON half a character": ("t.jsonl", OBJECT.replace('"a"', r'"\ud83d"'),
        ("data.invalid_cell", ":1", "'sentence1'")),
    "parquet cut off": ("t.parquet", lambda tmp: cut(table_bytes(tmp), 0.8),
        ("data.damaged_file", "")),
    "parquet that is none": ("t.parquet", COMMAS + "1,a,b\n", ("data.damaged_file", "")),
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
    "parquet score is NaN": ("t.parquet", {**TABLE, "score": [1.0, math.nan]},
        ("data.invalid_cell", ": row 2", "'score'", "nan")),
    "parquet sentence is binary": ("t.parquet", {**TABLE, "sentence2": [b"a", b"b"]},
        ("data.invalid_cell", ": row 1", "'sentence2'", "binary data")),
    "parquet sentence is null": ("t.parquet", {**TABLE, "sentence2": ["a", None]},
        ("data.invalid_cell", ": row 2", "'sentence2'", "null")),
    "empty tsv": ("t.tsv", "", ("data.no_header", ":1", "empty")),
    "empty csv": ("t.csv.gz", "", ("data.no_header", ":1", "empty")),
    "empty jsonl": ("t.jsonl", "", ("data.no_rows", ":1")),
    "empty parquet": ("t.parquet", {name: values[:0] for name, values in TABLE.items()}, ("data.no_rows", "")),
    "first line empty": ("t.tsv", "\n" + HEAD, ("data.no_header", ":1", "empty")),
    "header only": ("t.tsv", HEAD, ("data.no_rows", ":1")),
    "header only, csv": ("t.csv", COMMAS, ("data.no_rows", ":1")),
    "no header": ("t.tsv", "1\ta\tb\n2\tc\td\n", ("data.missing_column", ":1", "'sentence1'")),
    "one pair": ("t.tsv", HEAD + "1\ta\tb\n", ("data.one_pair", ":2")),
    "constant gold": ("t.tsv", HEAD + "3\ta\tb\n" * 4,
        ("data.one_score", ":2", "4", "3")),
    "constant gold, parquet": ("t.parquet", {**TABLE, "score": [0, 0]},
        ("data.one_score", ": row 1", "2", "0")),
    "a text file": ("t.txt", "a sentence\n", ("data.unsupported_format", "", "'t.txt'")),
    "a spreadsheet": ("t.xlsx", "PK", ("data.unsupported_format", "", "'t.xlsx'")),
    "a packed parquet": ("t.parquet.gz", "PAR1", ("data.unsupported_format", "", "'t.parquet.gz'")),
}
# fmt: on
