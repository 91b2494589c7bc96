import gzip
import hashlib
import re
import subprocess
import sys

import pytest

from registry.resources import catalog
from registry.resources.rows import File, Layout, Source, lines, own_source
from tests.support.errors import refuses

SEVEN = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")


def pairs(toy, rows, expected=None):
    data = toy(
        "toy",
        f'[splits.dev]\npath = "dev.tsv"\nrows = {expected or len(rows)}\n',
        kind="pairs",
        columns='["subset", "score", "sentence1", "sentence2"]',
    )
    path = data / "dev.tsv"
    path.write_bytes("".join(f"{row}\n" for row in ["subset\tscore\tsentence1\tsentence2", *rows]).encode())
    return path


def test_every_entry_is_complete_and_names_a_commit():
    found = [catalog.entry(name) for name in catalog.names()]
    assert len(found) == len(list(catalog.FOLDER.glob("*.toml"))) >= 31
    for about in found:
        assert all((about.title, about.license, about.citation, about.columns)), about.name
        assert about.generator or about.url.startswith("https://"), about.name
        for name, split in about.splits.items():
            parts = [about.splits[part] for part in about.parts]
            assert split.path or split.files or split.shipped or about.generator, (about.name, name)
            assert name != "all" or split.path or split.rows == sum(part.rows for part in parts)
            assert split.sha256 or about.generator or about.name in ("wiki1m", "nli"), (about.name, name)
        if about.kind == "pairs":
            assert about.columns == catalog.PAIR_COLUMNS
    remotes = [(name, remote) for name in catalog.names() for remote in catalog.entry(name).sources.values()]
    assert len(remotes) >= 25
    for name, remote in remotes:
        assert re.search("[0-9a-f]{40}", remote.revision or remote.url), name
    commits = {}  # a run records one commit a repository
    for _, remote in remotes:
        assert commits.setdefault(remote.hub, remote.revision) == remote.revision or not remote.hub
    sizes = {name: catalog.entry(name).split("test").rows for name in ("sts12", "sts13", "sts14", "sts15", "sts16")}
    assert sizes == {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}
    assert catalog.entry("stsb").split("all").rows == 5749 + 1500 + 1379
    assert catalog.entry("sickr").split("all").rows == 9927
    assert catalog.entry("wiki1m").split("train").rows == 1_000_000


def test_everything_that_recipes_and_suites_read_can_be_fetched():
    """But for texts of this project's own, whose notes say that nobody publishes them, or that they come with it."""
    for name in catalog.names():
        about = catalog.entry(name)
        for split in about.splits:
            for root in catalog.roots(name, split):
                if not catalog.state(*root).sources and not catalog.entry(root[0]).generator:
                    own = catalog.entry(root[0])
                    assert ("Part of the package" if own.split(root[1]).shipped else "No public source") in own.note
    wanted = {("sickr", "test"), ("simclue", "test"), ("cstsb", "dev"), ("wiki1m", "train")}
    wanted |= {(name, split) for name in SEVEN + TRANSFER for split in catalog.entry(name).splits}
    for name, split in wanted:
        assert catalog.state(name, split).sources, (name, split)


HEAVY = {"torch", "datasets", "huggingface_hub", "pyarrow", "transformers", "pandas", "httpx", "httpx2"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import registry.resources.catalog as c; c.entry('stsb')", HEAVY),
        ("import registry.resources.models", {"torch", "transformers"}),
        ("from registry import papers; papers.badge_of('ifcl_en').lines; papers.listed_rows()", {*HEAVY, "scipy"}),
    ],
)
def test_resources_and_papers_import_nothing_heavy(code, heavy):
    code = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())


def test_unknown_names_are_answered_with_the_nearest():
    with refuses("data.unknown_dataset", "'sts_b'", "'stsb'"):
        catalog.entry("sts_b")
    with refuses("data.unknown_split", "'tset'", "'test'"):
        catalog.locate("stsb", "tset")


def test_broken_entries_are_told(toy):
    toy("toy", '[splits.train]\npath = "a"\nrows = 1\ncolumns = ["text"]\n[splits.dev]\npath = "b"\nrows = 1\n')
    with refuses("data.unknown_split", "'all'"):
        catalog.entry("toy").split("all")
    toy("broken", "[splits.train]\nrowz = 3\n")
    with refuses("data.invalid_entry", "broken.toml"):
        catalog.entry("broken")
    with refuses("data.no_pairs", "'toy'"):
        catalog.read_pairs("toy", "train")


def test_pairs_are_read_with_literal_quotes_and_their_subset_and_counted(toy):
    pairs(toy, ['x\t4.5\tHe said "no.\t\'tis fine"', "y\t0\ta\tb"])
    assert catalog.read_pairs("toy", "dev") == [
        ("x", 4.5, 'He said "no.', "'tis fine\""),
        ("y", 0.0, "a", "b"),
    ]
    catalog.entry.cache_clear()
    path = pairs(toy, ["x\t1.0\ta\tb"], expected=7)
    with refuses("data.wrong_row_count", path, "1 rows", "7"):
        catalog.read_pairs("toy", "dev")


AWKWARD = ["plain", "line\u2028separator", "next\x85line", "form\x0cfeed", "", "tab\there", " "]


@pytest.mark.parametrize(("name", "end"), [("t.txt", "\r"), ("t.txt", "\n"), ("t.txt.gz", "\r\n")])
def test_newlines_and_carriage_returns_end_a_line_and_other_characters_do_not(toy, name, end):
    data = toy("toy", f'[splits.train]\npath = "{name}"\nrows = {len(AWKWARD)}\n')
    content = "".join(f"{line}\n" for line in AWKWARD).encode()
    written = content.replace(b"\n", end.encode())
    (data / name).write_bytes(gzip.compress(written) if name.endswith(".gz") else written)
    assert [row["text"] for row in catalog.open_text("toy")] == AWKWARD
    assert catalog.locate("toy", "train").scanned == (len(AWKWARD), hashlib.sha256(content).hexdigest())


def test_line_ends_byte_order_marks_and_newlines_in_cells(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes("\ufefftext\ttranslation\r\na\tb\r\nc\td".encode())
    source = own_source(path)
    assert list(source.read(["translation", "text"])) == [("b", "a"), ("d", "c")]
    assert source.location(2).endswith("t.tsv:3")
    path = tmp_path / "t.csv"
    path.write_text('sent0,sent1\n"a\nb",c\n"say ""x""",d\n')
    source = Source(("text",), (File(path, Layout(columns={"text": "sent0"})),))
    assert list(source.read(["text"])) == [("a\nb",), ('say "x"',)]
    assert source.location(2).endswith("t.csv:4")
    path = tmp_path / "t.tsv"
    path.write_text("text\ttext\n")
    with refuses("data.no_header", "t.tsv:1"):
        own_source(path)


def test_columns_without_header_are_taken_in_the_entrys_order(toy):
    data = toy("toy", '[local]\nheader = false\n[splits.train]\npath = "t.tsv"\nrows = 2\n', columns='["text", "de"]')
    (data / "t.tsv").write_text("one\teins\ntwo\tzwei\n")
    source = catalog.locate("toy", "train")
    assert list(source.read(["de"])) == [("eins",), ("zwei",)]
    assert list(source.read(["text", "de"])) == [("one", "eins"), ("two", "zwei")]
    assert source.location(2).endswith("t.tsv:2")
    with refuses("data.missing_column", "'fr'"):
        list(source.read(["fr"]))


def test_columns_are_renamed_and_splits_joined_in_order(tmp_path, toy):
    path = tmp_path / "t.jsonl"
    path.write_text('{"sentence1": "a", "sentence2": "b", "score": 3.5}\n')
    source = Source(catalog.PAIR_COLUMNS, (File(path, Layout(columns={"subset": ""})),))
    assert list(source.read(catalog.PAIR_COLUMNS)) == [("", "3.5", "a", "b")]
    data = toy("toy", "".join(f'[splits.{s}]\npath = "{s}.txt"\nrows = 2\n' for s in ("train", "dev")))
    for split in ("train", "dev"):
        (data / f"{split}.txt").write_text(f"{split} 1\n{split} 2\n")
    assert [row["text"] for row in catalog.open_text("toy", "all")] == ["train 1", "train 2", "dev 1", "dev 2"]


def test_a_file_that_is_not_utf8_or_cut_off_is_told(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"fine\n\xff\xfe\n")
    with refuses("data.wrong_encoding", "t.txt:2"):
        list(lines(path))
    cut = tmp_path / "t.txt.gz"
    changed = bytearray(gzip.compress("".join(f"line {i}\n" for i in range(10_000)).encode()))
    changed[2000:2100] = bytes(100)
    cut.write_bytes(changed)
    with refuses("data.damaged_file", cut):
        list(lines(cut))
    for name in ("t.doc", "t.parquet.gz"):
        with refuses("data.unsupported_format", f"'{name}'"):
            own_source(tmp_path / name)


@pytest.mark.parametrize("cell", ["null", '["a"]'])
def test_a_typed_cell_that_is_not_text_is_an_error(tmp_path, cell):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"text": "fine"}}\n{{"text": {cell}}}\n')
    with refuses("data.invalid_cell", "t.jsonl:2"):
        list(Source(("text",), (File(path),)).rows())


def test_parquet_is_read_and_counted(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"sentence1": ["a", "b"], "score": [1, 2]}), path)
    table = File(path, Layout(columns={"subset": ""}))
    source = Source(("subset", "score", "sentence1"), (table,), expected=2, kind="pairs")
    assert list(source.rows()) == [("", "1", "a"), ("", "2", "b")]
    assert source.location(2).endswith("t.parquet: row 2")
    assert source.digest == hashlib.sha256(b"1.0\ta\n2.0\tb\n").hexdigest()


def test_a_fingerprint_follows_the_content_not_the_wrapping(toy):
    data = toy("toy", '[splits.train]\npath = "a.txt"\nrows = 1\n[splits.dev]\npath = "b.txt.gz"\nrows = 1\n')
    (data / "a.txt").write_bytes(b"same\n")
    (data / "b.txt.gz").write_bytes(gzip.compress(b"same\n"))
    assert catalog.fingerprint("toy", "train") == catalog.fingerprint("toy", "dev")
    (data / "a.txt").write_bytes(b"other\n")
    assert catalog.fingerprint("toy", "train") != catalog.fingerprint("toy", "dev")


def test_generated_rows_are_found_without_any_file(monkeypatch):
    monkeypatch.delenv("CSE_DATA", raising=False)
    found = catalog.find("wiki1m_joined", "train")
    assert found is not None
    assert found[0] == "generated"
    assert next(catalog.open_text("wiki1m_joined", "train")).keys() == {"text"}
    assert catalog.fingerprint("wiki1m_joined", "train") == catalog.fingerprint("wiki1m_joined", "train")


@pytest.mark.data
def test_every_local_split_has_the_rows_the_catalog_says(data):
    counted = {}
    for name in catalog.names():
        about = catalog.entry(name)
        for split in about.splits:
            if (found := catalog.find(name, split)) is not None and found[0] == "CSE_DATA":
                assert found[1].known is True, (name, split)
                counted[name, split] = about.splits[split].rows
    files = [path for path in data.rglob("*") if path.suffix in (".tsv", ".txt", ".gz") and "wordnet" not in path.parts]
    listed = {split.path for name in catalog.names() for split in catalog.entry(name).splits.values()}
    shipped = {"train/tatoeba_en_de.tsv.gz", "train/wiki1m_prefix.txt"}  # in the package too
    assert {str(path.relative_to(data)) for path in files} - listed == shipped
    assert len(counted) >= len(files) - len(shipped)
    assert max(counted.values()) == 1_000_000
