"""Malformed files of sentence pairs, and what is said of each after its path."""

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
    # what is wrong: (file, content, what the message says after the path)
    "missing column": ("t.tsv", "scroe\tsentence1\tsentence2\n1\ta\tb\n",
        r":1: no column 'score'\. Did you mean 'scroe'\?"),
    "missing column of a csv": ("t.csv", "score,Sentence1,sentence2\n1,a,b\n",
        r":1: no column 'sentence1'\. Did you mean 'Sentence1'"),
    "other separator": ("t.csv", "score;sentence1;sentence2\n1;a;b\n",
        r":1: the header is one column, .* with ';' in it"),
    "commas in a tsv": ("t.tsv", COMMAS + "1,a,b\n", r":1: the header is one column, .* with ',' in it"),
    "two columns of a name": ("t.tsv", "score\tscore\tsentence1\tsentence2\n", r":1: 2 columns are called 'score'"),
    "too few fields": ("t.tsv", HEAD + "1\ta\tb\n2\tc\n", r":3: 2 columns where the header has 3"),
    "too many fields": ("t.tsv", HEAD + "1\ta\tb\td\n", r":2: 4 columns where the header has 3"),
    "too few fields of a csv": ("t.csv", COMMAS + "1,a,b\n2\n", r":3: 1 column where the header has 3"),
    "too many fields of a csv": ("t.csv", COMMAS + '1,"a\nb",c\n2,d,e,f\n', r":4: 4 columns where the header has 3"),
    "empty line": ("t.tsv", HEAD + "1\ta\tb\n\n2\tc\td\n", r":3: an empty line"),
    "empty line of a csv": ("t.csv", COMMAS + "1,a,b\n\n", r":3: an empty line"),
    "score is text": ("t.tsv", HEAD + "1\ta\tb\nhigh\tc\td\n", r":3: 'score' is 'high', not a finite number"),
    "score with a comma": ("t.tsv", HEAD + "4,5\ta\tb\n", r":2: 'score' is '4,5', not a finite number"),
    "score with an underscore": ("t.tsv", HEAD + "1_0\ta\tb\n", r":2: 'score' is '1_0', not a finite number"),
    "score is NaN": ("t.tsv", HEAD + "1\ta\tb\nNaN\tc\td\n", r":3: 'score' is 'NaN', not a finite number"),
    "score is infinite": ("t.csv", COMMAS + "-inf,a,b\n", r":2: 'score' is '-inf', not a finite number"),
    "score too large": ("t.tsv", HEAD + "1e999\ta\tb\n", r":2: 'score' is '1e999', not a finite number"),
    "score is empty": ("t.tsv", HEAD + "\ta\tb\n", r":2: 'score' is empty, not a finite number"),
    "first sentence empty": ("t.tsv", HEAD + "1\t\tb\n", r":2: 'sentence1' is empty"),
    "second sentence blank": ("t.tsv", HEAD + "1\ta\t \u00a0\n", r":2: 'sentence2' is empty"),
    "sentence of a csv empty": ("t.csv", COMMAS + '1,a,b\n1,"",b\n', r":3: 'sentence1' is empty"),
    "not UTF-8": ("t.tsv", HEAD.encode() + b"1\ta\tb\n2\tcaf\xe9\td\n", r":3: not UTF-8"),
    "not UTF-8, csv": ("t.csv", COMMAS.encode() + b"1,a,caf\xe9\n", r":2: not UTF-8"),
    "not UTF-8, jsonl": ("t.jsonl", OBJECT.encode() + b'{"score": 1, "sentence1": "\xff"}\n', r":2: not UTF-8"),
    "UTF-16": ("t.tsv", HEAD.encode("utf-16"), r":1: not UTF-8"),
    "quote never closed": ("t.csv", COMMAS + '1,a,b\n2,"c,d\n3,e,f\n',
        r":3: a quote that opens in this row is never closed"),
    "quote never closed in a large file": ("t.csv", COMMAS + '2,"c,d\n' + "3,eeeeeeee,f\n" * 20_000,
        r":2: a quote that opens in this row is never closed"),
    "text after a quote": ("t.csv", COMMAS + '1,"a"b,c\n', r":2: not CSV: ',' expected after '\"'"),
    "carriage return": ("t.csv", "score,sentence1,sentence2\r1,a,b\r",
        r":1: a carriage return in a cell without quotes"),
    "gzip cut off": ("t.tsv.gz", cut(gzip.compress((HEAD + MANY).encode()), 0.6), r": damaged after line [1-9]\d*: "),
    "csv gzip cut off": ("t.csv.gz", cut(gzip.compress((HEAD + MANY).replace("\t", ",").encode()), 0.6),
        r": damaged after line [1-9]\d*: "),
    "gzip of garbage": ("t.tsv.gz", b"\x1f\x8b" + bytes(40), r": damaged after line 0: "),
    "not JSON": ("t.jsonl", OBJECT + "score: 1\n", r":2: not JSON: Expecting value at character 1"),
    "JSON cut off": ("t.jsonl", OBJECT + OBJECT[:-3] + "\n", r":2: not JSON: .* at character \d+"),
    "empty line of a jsonl": ("t.jsonl", OBJECT + "\n" + OBJECT, r":2: not JSON: an empty line"),
    "JSON of a list": ("t.jsonl", OBJECT + '[1, "a", "b"]\n', r":2: a list where an object is expected"),
    "JSON of a number": ("t.jsonl", "3\n", r":1: 3 where an object is expected"),
    "JSON nested without end": ("t.jsonl", OBJECT + "[" * 200_000 + "\n", r":2: not JSON"),
    "JSON without a key": ("t.jsonl", OBJECT + '{"score": 1, "sentence1": "a", "sentence_2": "b"}\n',
        r":2: no key 'sentence2'\. Did you mean 'sentence_2'"),
    "JSON score in quotes": ("t.jsonl", OBJECT.replace("1,", '"1",'),
        r":1: 'score' is the text '1', not a finite number"),
    "JSON score is null": ("t.jsonl", OBJECT.replace("1,", "null,"), r":1: 'score' is null, not a finite number"),
    "JSON score is true": ("t.jsonl", OBJECT.replace("1,", "true,"), r":1: 'score' is true, not a finite number"),
    "JSON score is NaN": ("t.jsonl", OBJECT.replace("1,", "NaN,"), r":1: 'score' is nan, not a finite number"),
    "JSON score has 400 digits": ("t.jsonl", OBJECT.replace("1,", "9" * 400 + ","),
        r":1: 'score' is 9{57}…, not a finite number"),
    "JSON sentence is a number": ("t.jsonl", OBJECT.replace('"b"', "7"), r":1: 'sentence2' is 7, not text"),
    "JSON sentence is a list": ("t.jsonl", OBJECT.replace('"b"', '["b"]'), r":1: 'sentence2' is a list, not text"),
    "JSON sentence is null": ("t.jsonl", OBJECT.replace('"a"', "null"), r":1: 'sentence1' is null, not text"),
    "JSON half a character": ("t.jsonl", OBJECT.replace('"a"', r'"\ud83d"'), r":1: 'sentence1' holds half a character"),
    "parquet cut off": ("t.parquet", lambda tmp: cut(table_bytes(tmp), 0.8),
        r": not a Parquet file that can be read: "),
    "parquet that is none": ("t.parquet", COMMAS + "1,a,b\n", r": not a Parquet file that can be read: "),
    "parquet damaged within": ("t.parquet", lambda tmp: table_bytes(tmp)[:4] + bytes(40) + table_bytes(tmp)[44:],
        r": not a Parquet file that can be read: "),
    "parquet sentence is a number": ("t.parquet", {**TABLE, "sentence1": [1, 2]},
        r": row 1: 'sentence1' is 1, not text"),
    "parquet lacks a column": ("t.parquet", {"scores": [1.0], "sentence1": ["a"], "sentence2": ["b"]},
        r": no column 'score'\. Did you mean 'scores'"),
    "parquet score is text": ("t.parquet", {**TABLE, "score": ["1", "2"]},
        r": row 1: 'score' is the text '1', not a finite number"),
    "parquet score is null": ("t.parquet", {**TABLE, "score": [1.0, None]},
        r": row 2: 'score' is null, not a finite number"),
    "parquet score is NaN": ("t.parquet", {**TABLE, "score": [1.0, math.nan]},
        r": row 2: 'score' is nan, not a finite number"),
    "parquet sentence is binary": ("t.parquet", {**TABLE, "sentence2": [b"a", b"b"]},
        r": row 1: 'sentence2' is binary data, not text"),
    "parquet sentence is null": ("t.parquet", {**TABLE, "sentence2": ["a", None]},
        r": row 2: 'sentence2' is null, not text"),
    "empty tsv": ("t.tsv", "", r":1: no header: the file is empty"),
    "empty csv": ("t.csv.gz", "", r":1: no header: the file is empty"),
    "empty jsonl": ("t.jsonl", "", r":1: the file has no pairs"),
    "empty parquet": ("t.parquet", {name: values[:0] for name, values in TABLE.items()}, r": the file has no pairs"),
    "first line empty": ("t.tsv", "\n" + HEAD, r":1: no header: the first line is empty"),
    "header only": ("t.tsv", HEAD, r":1: the file has no pairs"),
    "header only, csv": ("t.csv", COMMAS, r":1: the file has no pairs"),
    "no header": ("t.tsv", "1\ta\tb\n2\tc\td\n", r":1: no column 'sentence1'\."),
    "one pair": ("t.tsv", HEAD + "1\ta\tb\n", r":2: the only pair: a correlation needs two"),
    "constant gold": ("t.tsv", HEAD + "3\ta\tb\n" * 4,
        r":2: this and all other scores, 4 together, are 3: nothing to rank"),
    "constant gold, parquet": ("t.parquet", {**TABLE, "score": [0, 0]},
        r": row 1: this and all other scores, 2 together, are 0"),
    "a text file": ("t.txt", "a sentence\n", r": a table of pairs cannot be read from 't\.txt'"),
    "a spreadsheet": ("t.xlsx", "PK", r": a table of pairs cannot be read from 't\.xlsx'"),
    "a packed parquet": ("t.parquet.gz", "PAR1", r": a table of pairs cannot be read from 't\.parquet\.gz'"),
}
# fmt: on
