"""What is not in the folder: looked up among downloads, fetched from one of several sources, taken out of archives."""

import gzip
import io
import json
import os
import sys
import tarfile
import warnings

import pytest

from registry.errors import MissingError
from registry.resources import catalog
from registry.resources.rows import member_of
from tests.support.errors import refuses

COMMIT = "0" * 40
HUB = f'[sources.hub]\nhub = "toys/toy"\nrevision = "{COMMIT}"\n'
WEB = '[sources.web]\nurl = "https://example.org/abc/"\n'
TRAIN = '[splits.train]\npath = "toy/t.txt"\nrows = 2\n'


def texts():
    return [row["text"] for row in catalog.open_text("toy")]


def packed(members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return made.getvalue()


def test_search_order_is_directory_download_network(toy, network):
    data = toy("toy", HUB + TRAIN + 'files.hub = ["t.txt"]\nbytes.hub = 9\n')
    assert catalog.find("toy", "train") is None
    with pytest.raises(MissingError):
        catalog.locate("toy", "train")
    network.publish(f"toys/toy@{COMMIT}/t.txt", b"from\nhub\n")
    state = catalog.state("toy", "train")
    assert (state.origin, state.sources, state.files, state.bytes) == (
        None, (f"hf:toys/toy@{COMMIT[:12]}",), ("t.txt",), 9,
    )  # fmt: skip
    assert texts() == ["from", "hub"]
    assert catalog.state("toy", "train").origin == "cache"
    network.asked.clear()
    assert texts() == ["from", "hub"]
    assert network.asked == []
    (data / "toy").mkdir()
    (data / "toy" / "t.txt").write_text("from\nfolder\n")
    assert texts() == ["from", "folder"]
    assert catalog.state("toy", "train").path == str(data / "toy" / "t.txt")


def test_missing_data_names_what_was_tried_and_the_ways_out(toy, network, monkeypatch):
    toy("toy", HUB + WEB + TRAIN + 'files.hub = ["t.txt"]\nfiles.web = ["t.txt"]\n')
    with pytest.raises(MissingError) as caught:
        catalog.locate("toy", "train")
    assert caught.value.exit_code == 3
    for part in ("'toy'", "toy/t.txt", "CSE_DATA is", "toys/toy", "example.org", "404", "cse data download toy", "3. "):
        assert part in str(caught.value)
    assert network.asked == [f"toys/toy@{COMMIT}", "https://example.org/abc/t.txt"]
    toy("other", TRAIN)
    monkeypatch.delenv("CSE_DATA")
    network.asked.clear()
    with refuses("data.missing_dataset", "CSE_DATA is not set"):
        catalog.locate("other", "train")
    assert network.asked == []


def digest_of(*lines):
    """Return the digest of a text's rows, by hand."""
    from hashlib import sha256

    return sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


@pytest.mark.parametrize(
    ("first", "second", "read", "warned"),
    [
        (b"a\nb\n", None, ["a", "b"], False),
        (b"a\n", b"a\nb\n", ["a", "b"], False),  # rows are missing
        (None, b"a\nb\n", ["a", "b"], False),  # the file is
        (b"a\nB\n", b"a\nb\n", ["a", "b"], False),  # as many rows, others
        (b"a\n\xff\n", b"a\nb\n", ["a", "b"], False),  # no text
        (b"a\nB\n", None, ["a", "B"], True),  # nothing better is to be had
        (b"A\nb\n", b"a\nB\n", ["A", "b"], True),
    ],
)
def test_the_source_with_the_known_rows_wins(toy, network, first, second, read, warned):
    known = f'sha256 = "{digest_of("a", "b")}"\n'
    toy("toy", HUB + WEB + TRAIN + known + 'files.hub = ["t.txt"]\nfiles.web = ["t.txt"]\n')
    if first is not None:
        network.publish(f"toys/toy@{COMMIT}/t.txt", first)
    if second is not None:
        network.publish("https://example.org/abc/t.txt", second)
    for again in (False, True):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert texts() == read
            catalog.fingerprint("toy", "train")
        assert [known[10:74] in str(each.message) for each in told] == [True] * (warned and not again)
        network.asked.clear()
    assert network.asked == []


def test_a_cached_later_source_does_not_replace_an_earlier_one(toy, network):
    known = f'sha256 = "{digest_of("a", "b")}"\n'
    toy("toy", HUB + WEB + TRAIN + known + 'files.hub = ["t.txt"]\nfiles.web = ["t.txt"]\n')
    network.publish(f"toys/toy@{COMMIT}/t.txt", b"a\nb\n")
    network.publish("https://example.org/abc/t.txt", b"a\nB\n")
    network.download(
        "https://example.org/abc/t.txt", network.downloaded / "addresses" / "example.org" / "abc" / "t.txt"
    )
    assert catalog.find("toy", "train") is None
    assert texts() == ["a", "b"]
    assert catalog.find("toy", "train") is not None


def test_a_file_from_an_address_is_fetched_again_by_force(toy, network):
    toy("toy", WEB + TRAIN + 'files.web = ["folder/t.txt"]\n')
    network.publish("https://example.org/abc/folder/t.txt", b"a\nb\n")
    assert texts() == ["a", "b"]
    network.publish("https://example.org/abc/folder/t.txt", b"c\nd\n")
    assert texts() == ["a", "b"]
    catalog.fetch("toy", "train", force=True)
    assert texts() == ["c", "d"]
    assert [path.name for path in network.downloaded.rglob("*") if path.is_file()] == ["t.txt"]


ARCHIVE = (
    HUB
    + """
archive = "all.tar"
encoding = "latin-1"
pattern = "(?P<text>.*)"
[splits.train]
rows = 3
files.hub = [
  { file = "T/t.pos", constants = { label = "1" } },
  { file = "T/t.neg", constants = { label = "0" } },
]
"""
)


@pytest.mark.parametrize("before", ["", "./", "SentEval/data/downstream/"])
def test_members_of_an_archive_are_found_by_their_path_end(toy, network, before):
    toy("toy", ARCHIVE, kind="labeled", columns='["label", "text"]')
    members = {
        f"{before}T/t.pos": b"caf\xe9  au lait \n\n",
        f"{before}T/t.neg": b"b",
        f"__MACOSX/{before}T/t.pos": b"no",
    }
    network.publish(f"toys/toy@{COMMIT}/all.tar", packed(members))
    rows = [tuple(row.values()) for row in catalog.open_text("toy")]
    assert rows == [("1", "café au lait"), ("1", ""), ("0", "b")]
    source = catalog.locate("toy", "train")
    assert source.location(3).endswith("all.tar/" + f"{before}T/t.neg:1".removeprefix("./"))


def test_a_replaced_archive_is_read_again(tmp_path):
    archive = tmp_path / "all.tar"
    for number, member in enumerate(["old/t.pos", "new/t.pos"]):
        archive.write_bytes(packed({member: b"a"}))
        os.utime(archive, ns=(number, number))
        assert member_of(archive, "t.pos") == member


@pytest.mark.parametrize(
    ("content", "code", "value"),
    [(packed({"T/t.pos": b"a\n"}), "missing_dataset", "T/t.neg"), (b"no archive", "damaged_file", "all.tar")],
    ids=["without the member", "no archive"],
)
def test_an_archive_without_the_rows_is_an_error(toy, network, content, code, value):
    toy("toy", ARCHIVE, kind="labeled", columns='["label", "text"]')
    network.publish(f"toys/toy@{COMMIT}/all.tar", content)
    with refuses(f"data.{code}", value):
        catalog.locate("toy", "train")


BESIDE = WEB + 'remove = "\\u200b"\n[splits.train]\nrows = 2\n'
BESIDE += 'files.web = [{ file = "t.en.gz", column = "text" }, { file = "t.de", column = "de" }]\n'


def test_files_side_by_side_are_one_table(toy, network):
    toy("toy", BESIDE, columns='["text", "de"]')
    network.publish("https://example.org/abc/t.en.gz", gzip.compress(b"one\r\ntwo\r\n"))
    network.publish("https://example.org/abc/t.de", "\ufeffeins\nzw\u200bei\n".encode())
    source = catalog.locate("toy", "train")
    assert list(source.rows()) == [("one", "eins"), ("two", "zwei")]
    assert list(source.read(["de"])) == [("eins",), ("zwei",)]
    assert len(source.paths) == 2


def test_files_side_by_side_must_be_as_long(toy, network):
    toy("toy", BESIDE, columns='["text", "de"]')
    network.publish("https://example.org/abc/t.en.gz", gzip.compress(b"one\ntwo\n"))
    network.publish("https://example.org/abc/t.de", b"eins\n")
    with refuses("data.damaged_file", "t.en.gz", "t.de"):
        list(catalog.locate("toy", "train").rows())


def test_a_mirror_replaces_github(toy, network, monkeypatch):
    toy("toy", WEB.replace("example.org", "raw.githubusercontent.com/me") + TRAIN + 'files.web = ["t.txt"]\n')
    monkeypatch.setenv("CSE_GITHUB_MIRROR", "https://mirror.example/gh/")
    network.publish("https://mirror.example/gh/me/abc/t.txt", b"a\nb\n")
    assert texts() == ["a", "b"]


def test_a_split_may_be_the_first_rows_of_a_longer_file(toy, network):
    toy("toy", WEB + "longer = true\n" + TRAIN + 'files.web = ["t.txt"]\n')
    network.publish("https://example.org/abc/t.txt", b"a\nb\nc")
    assert texts() == ["a", "b"]


def test_a_line_of_another_form_is_told(toy, network):
    toy("toy", WEB + "skip = 1\npattern = '(?P<text>\\w+)\\t\\d'\n" + TRAIN + 'files.web = ["t"]\n')
    network.publish("https://example.org/abc/t", b"head\na\t1\nb\n")
    with refuses("data.malformed_row", "abc/t:3", "'b'"):
        texts()


@pytest.mark.parametrize(
    "body",
    [
        TRAIN + 'files.web = ["t"]\n',  # no such source
        '[sources.both]\nhub = "a/b"\nrevision = "main"\nurl = "https://example.org/"\n' + TRAIN,
        '[sources.hub]\nhub = "a/b"\n' + TRAIN,  # no revision
    ],
)
def test_a_source_that_cannot_be_is_refused(toy, body):
    toy("toy", body)
    with refuses("data.invalid_entry", "toy.toml"):
        catalog.entry("toy")


def test_all_is_joined_from_wherever_its_parts_are(toy, network):
    part = '[splits.{0}]\nrows = 1\npath = "{0}.txt"\nfiles.hub = ["{0}.txt"]\n'
    data = toy("toy", HUB + part.format("a") + part.format("b"))
    (data / "a.txt").write_text("here\n")
    network.publish(f"toys/toy@{COMMIT}/b.txt", b"there\n")
    assert catalog.roots("toy", "all") == [("toy", "a"), ("toy", "b")]
    assert [row["text"] for row in catalog.open_text("toy", "all")] == ["here", "there"]


def test_a_wrong_number_of_rows_names_the_command(toy, network):
    toy("toy", HUB + TRAIN + 'files.hub = ["t.txt"]\n')
    network.publish(f"toys/toy@{COMMIT}/t.txt", b"a\n")
    with refuses("data.wrong_row_count", "1 rows", "cse data download --force toy"):
        texts()
    network.publish(f"toys/toy@{COMMIT}/t.txt", b"a\nb\n")
    catalog.fetch("toy", "train", force=True)
    assert texts() == ["a", "b"]


def test_the_digest_is_of_what_is_read_not_of_how_it_is_written(toy):
    """By hand: subset left out, score a float, white space single."""
    data = toy(
        "toy",
        '[splits.dev]\npath = "t.tsv"\nrows = 1\n[splits.test]\npath = "t.jsonl"\nrows = 1\n',
        kind="pairs",
        columns='["subset", "score", "sentence1", "sentence2"]',
    )
    (data / "t.tsv").write_text("subset\tscore\tsentence1\tsentence2\nx\t5\t a  b \tc\n")
    (data / "t.jsonl").write_text(json.dumps({"sentence1": "a b", "sentence2": "c", "score": 5, "subset": "y"}))
    expected = digest_of("5.0\ta b\tc")
    assert [catalog.fingerprint("toy", split) for split in ("dev", "test")] == [f"rows:{expected}"] * 2


# --- every source, rebuilt from the local copy ------------------------------------------------------------------------

LINES = {  # a line as the source writes it; senteval.tar was never seen, this is what SentEval's readers expect
    "sickr": "7\t{sentence1}\t{sentence2}\t{score}\t{subset}",
    "cstsb": "{subset}-0001||{sentence1}||{sentence2}||{score}",
    "sst2": "{text} \t{label}",
    "trec": "{label}:fine {text}",
    "mrpc": "{label}\t1\t2\t{sentence1}\t{sentence2}",
}
HEADED = ("sickr", "mrpc")


def rebuilt(name, remote, parts, rows):
    """Yield the name and the content of each file of a split at a source."""
    theirs = {column: remote.columns.get(column, column) for column in rows[0]}
    if parts[0].column:
        for part in parts:
            yield part.file, "".join(f"{row[part.column]}\r\n" for row in rows)
        return
    start = 0
    for part in parts:
        mine = [row for row in rows[start:] if part.constants.items() <= row.items()] if part.constants else rows
        start += len(mine)
        if remote.pattern:
            form = LINES.get(name, "{text} ")
            yield part.file, "".join(f"{form.format(**row)}\n" for row in ([rows[0]] if name in HEADED else []) + mine)
        elif part.file.endswith(".txt"):
            yield part.file, "".join(f"{row['text']}\n" for row in mine) + ("cut of" if remote.longer else "")
        else:
            named = [{theirs[column]: cell for column, cell in row.items() if theirs[column]} for row in mine]
            yield part.file, [{**row, **{"score": float(row["score"])}} if "score" in row else row for row in named]


def written(file, content, encoding):
    if isinstance(content, str):
        raw = content.encode(encoding)
    elif file.endswith(".parquet"):
        import pyarrow as pa
        from pyarrow import parquet

        made = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(content), made)
        return made.getvalue()
    else:
        raw = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in content).encode()
    return gzip.compress(raw, 1) if file.endswith(".gz") else raw


SOURCES = [
    (name, split, key)
    for name in catalog.names()
    for split, part in catalog.entry(name).splits.items()
    for key in part.files
    if part.sha256
]


@pytest.mark.data
@pytest.mark.parametrize(("name", "key"), dict.fromkeys((name, key) for name, _, key in SOURCES))
def test_every_source_gives_the_rows_that_the_catalog_knows(name, key, network, monkeypatch):
    about = catalog.entry(name)
    remote = about.sources[key]
    members = {}
    splits = [split for one, split, other in SOURCES if (one, other) == (name, key)]
    for split in splits:
        rows = list(catalog.open_text(name, split))
        for file, content in rebuilt(name, remote, about.splits[split].files[key], rows):
            members[file.replace("*", "00000")] = written(file, content, remote.encoding)
    base = f"{remote.hub}@{remote.revision}/" if remote.hub else remote.url
    if remote.archive:
        network.publish(base + remote.archive, packed(members))
    for file, content in {} if remote.archive else members.items():
        network.publish(base + file, content)
    monkeypatch.delenv("CSE_DATA")
    alone = about.model_copy(update={"sources": {key: remote}})
    monkeypatch.setattr(sys.modules["registry.resources.catalog"], "entry", lambda _: alone)
    for split in splits:
        assert catalog.fetch(name, split).known is True, split


def test_scores_that_a_source_writes_as_text_are_numbers(toy, network):
    """SimCLUE's labels are: {"label": "1"}."""
    body = WEB + 'columns = { score = "label", subset = "" }\n[splits.test]\nrows = 2\nfiles.web = ["t.jsonl"]\n'
    toy("toy", body, kind="pairs", columns=json.dumps(catalog.PAIR_COLUMNS))
    rows = [{"sentence1": "a", "sentence2": "b", "label": label} for label in ("1", "0")]
    network.publish("https://example.org/abc/t.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    assert [pair.score for pair in catalog.read_pairs("toy", "test")] == [1.0, 0.0]
