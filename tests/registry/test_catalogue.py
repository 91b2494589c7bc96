import gzip
import hashlib
import subprocess
import sys
import time

import pytest

from registry import catalogue
from registry import hub as model_hub
from registry.catalogue import entries, formats, hub
from registry.errors import CseError, MissingError, RegistrationError, UnknownNameError

HEAD = """
title = "Toy"
kind = "{kind}"
language = "en"
licence = "none"
citation = "nobody"
columns = {columns}
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A catalogue of its own: write(name, body) adds an entry, and CSE_DATA is a folder of the test's."""
    folder = tmp_path / "entries"
    folder.mkdir()
    monkeypatch.setattr(entries, "FOLDER", folder)
    monkeypatch.setenv("CSE_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    entries.entry.cache_clear()

    def write(name, body, kind="text", columns='["text"]'):
        (folder / f"{name}.toml").write_text(HEAD.format(kind=kind, columns=columns) + body, encoding="utf-8")
        return tmp_path / "data"

    yield write
    entries.entry.cache_clear()


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


def test_every_entry_is_complete():
    found = [catalogue.entry(name) for name in catalogue.names()]
    assert len(found) == len(list(entries.FOLDER.glob("*.toml"))) >= 31
    for about in found:
        assert all((about.title, about.licence, about.citation, about.columns)), about.name
        assert about.generator or about.url.startswith("https://"), about.name
        for name, split in about.splits.items():
            parts = [about.splits[part] for part in about.parts]
            assert split.path or split.hub or about.generator, (about.name, name)
            assert name != "all" or split.path or split.rows == sum(part.rows for part in parts)
        if about.kind == "pairs":
            assert about.columns == catalogue.PAIR_COLUMNS


def test_no_revision_is_an_invented_commit():
    hubs = {name: about.hub for name in catalogue.names() if (about := catalogue.entry(name)).hub}
    assert len(hubs) >= 10
    assert {name for name, repository in hubs.items() if not repository.pinned} == set(hubs)
    assert {repository.revision for repository in hubs.values()} == {"main"}


def test_the_papers_sets_have_their_canonical_sizes():
    sizes = {name: catalogue.entry(name).split("test").rows for name in ("sts12", "sts13", "sts14", "sts15", "sts16")}
    assert sizes == {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}
    assert catalogue.entry("stsb").split("all").rows == 5749 + 1500 + 1379
    assert catalogue.entry("sickr").split("all").rows == 9927
    assert catalogue.entry("wiki1m").split("train").rows == 1_000_000


def test_importing_the_catalogue_imports_neither_torch_nor_datasets():
    code = "import sys, registry.catalogue as c; c.entry('stsb'); print({'torch', 'datasets'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown dataset 'sts_b'.*'stsb'"):
        catalogue.entry("sts_b")
    with pytest.raises(UnknownNameError, match=r"no split 'tset'.*'test'"):
        catalogue.locate("stsb", "tset")
    with pytest.raises(UnknownNameError, match="no split 'all'"):
        catalogue.entry("graded_pairs").split("all")


def test_a_broken_entry_names_its_file(toy):
    toy("toy", "[splits.train]\nrowz = 3\n")
    with pytest.raises(RegistrationError, match=r"toy\.toml"):
        catalogue.entry("toy")


def test_pairs_are_read_with_literal_quotes_and_their_subset(toy):
    pairs(toy, ['x\t4.5\tHe said "no.\t\'tis fine"', "y\t0\ta\tb"])
    assert catalogue.read_pairs("toy", "dev") == [
        ("x", 4.5, 'He said "no.', "'tis fine\""),
        ("y", 0.0, "a", "b"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x\t1.0\tonly one sentence", r"dev\.tsv:3: 3 columns where 4 are expected"),
        ("x\t1.0\ta\tb\tc", r"dev\.tsv:3: 5 columns where 4 are expected"),
        ("", r"dev\.tsv:3: 1 column where 4 are expected"),
        ("x\tgood\ta\tb", r"dev\.tsv:3: the score 'good' is no number"),
        ("x\tnan\ta\tb", r"dev\.tsv:3: the score 'nan' is no number"),
    ],
)
def test_a_malformed_pair_is_told_with_file_and_line(toy, row, message):
    pairs(toy, ["x\t1.0\ta\tb", row])
    with pytest.raises(CseError, match=message):
        catalogue.read_pairs("toy", "dev")


def test_a_row_count_that_differs_names_both_numbers_and_the_file(toy):
    path = pairs(toy, ["x\t1.0\ta\tb"], expected=7)
    with pytest.raises(CseError, match="1 rows where the catalogue expects 7") as caught:
        catalogue.read_pairs("toy", "dev")
    assert str(path) in str(caught.value)


def test_a_header_without_the_column_names_those_it_has(toy):
    path = pairs(toy, ["x\t1.0\ta\tb"])
    path.write_text("subset\tscore\tfirst\tsecond\nx\t1\ta\tb\n")
    with pytest.raises(CseError, match=r"dev\.tsv:1: no column 'sentence1', 'sentence2'") as caught:
        catalogue.read_pairs("toy", "dev")
    assert "'first'" in str(caught.value)


def test_text_without_scores_is_no_pairs(toy):
    toy("toy", '[splits.train]\npath = "t.txt"\nrows = 1\n')
    with pytest.raises(CseError, match="no scored pairs"):
        catalogue.read_pairs("toy", "train")


AWKWARD = ["plain", "line\u2028separator", "lone\rreturn", "next\x85line", "form\x0cfeed", "", "tab\there", " "]


@pytest.mark.parametrize("name", ["t.txt", "t.txt.gz"])
def test_only_a_newline_ends_a_line(toy, name):
    data = toy("toy", f'[splits.train]\npath = "{name}"\nrows = {len(AWKWARD)}\n')
    content = "".join(f"{line}\n" for line in AWKWARD).encode()
    (data / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert [row["text"] for row in catalogue.open_text("toy")] == AWKWARD
    assert catalogue.locate("toy", "train").scan() == (len(AWKWARD), hashlib.sha256(content).hexdigest())


def test_windows_line_ends_a_mark_at_the_start_and_a_missing_last_newline_are_no_content(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes("\ufefftext\ttranslation\r\na\tb\r\nc\td".encode())
    source = catalogue.FileSource((path,), catalogue.header(path))
    assert list(source.read(["translation", "text"])) == [("b", "a"), ("d", "c")]
    assert source.scan().rows == 2


def test_columns_without_header_are_taken_in_the_entrys_order(toy):
    data = toy("toy", '[local]\nheader = false\n[splits.train]\npath = "t.tsv"\nrows = 2\n', columns='["text", "de"]')
    (data / "t.tsv").write_text("one\teins\ntwo\tzwei\n")
    source = catalogue.locate("toy", "train")
    assert list(source.read(["de"])) == [("eins",), ("zwei",)]
    assert list(source.read(["text", "de"])) == [("one", "eins"), ("two", "zwei")]
    assert source.scan().rows == 2
    with pytest.raises(UnknownNameError, match="no column 'fr'"):
        list(source.read(["fr"]))


def test_columns_are_renamed_and_absent_ones_are_empty(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"sentence1": "a", "sentence2": "b", "score": 3.5}\n')
    source = catalogue.FileSource((path,), catalogue.PAIR_COLUMNS, source={"subset": ""})
    assert list(source.read(catalogue.PAIR_COLUMNS)) == [("", "3.5", "a", "b")]


def test_all_joins_the_splits_in_order(toy):
    data = toy("toy", "".join(f'[splits.{s}]\npath = "{s}.txt"\nrows = 2\n' for s in ("train", "dev")))
    for split in ("train", "dev"):
        (data / f"{split}.txt").write_text(f"{split} 1\n{split} 2\n")
    assert [row["text"] for row in catalogue.open_text("toy", "all")] == ["train 1", "train 2", "dev 1", "dev 2"]


def test_a_file_that_is_not_utf8_or_cut_off_is_told(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"fine\n\xff\xfe\n")
    with pytest.raises(CseError, match=r"t\.txt:2: not UTF-8"):
        list(formats.lines(path))
    cut = tmp_path / "t.txt.gz"
    cut.write_bytes(gzip.compress(b"a line\n" * 10_000)[:-20])
    with pytest.raises(CseError, match="damaged"):
        list(formats.lines(cut))
    with pytest.raises(CseError, match="cannot be read to its end"):
        catalogue.FileSource((cut,), ("text",)).scan()
    changed = bytearray(gzip.compress("".join(f"line {i}\n" for i in range(10_000)).encode()))
    changed[2000:2100] = bytes(100)
    cut.write_bytes(changed)
    with pytest.raises(CseError, match="damaged"):
        list(formats.lines(cut))
    with pytest.raises(CseError, match="cannot be read to its end"):
        catalogue.FileSource((cut,), ("text",)).scan()
    with pytest.raises(CseError, match=r"cannot tell how to read 't\.doc'"):
        formats.read(tmp_path / "t.doc", ["text"], headed=True)


@pytest.mark.parametrize("line", ["not json", "[1]", '{"other": 1}'])
def test_a_bad_json_line_is_told_with_its_number(tmp_path, line):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(CseError, match=r"t\.jsonl:2: "):
        list(formats.read(path, ["text"], headed=True))


def test_csv_cells_may_hold_newlines_and_short_rows_are_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('sent0,sent1\n"a\nb",c\n"say ""x""",d\n')
    source = catalogue.FileSource((path,), ("text",), source={"text": "sent0"})
    assert list(source.read(["text"])) == [("a\nb",), ('say "x"',)]
    assert source.scan().rows == 2
    path.write_text("sent0,sent1\na,b\nc\n")
    with pytest.raises(CseError, match=r"t\.csv:3: 1 columns where 2"):
        list(source.read(["text"]))


def test_parquet_is_read_and_counted(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"sentence1": ["a", "b"], "score": [1, 2]}), path)
    source = catalogue.FileSource((path,), ("subset", "score", "sentence1"), source={"subset": ""}, expected=2)
    assert list(source.read(source.columns)) == [("", "1", "a"), ("", "2", "b")]
    assert source.scan().rows == 2


def test_a_header_must_name_columns_once(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("text\ttext\n")
    with pytest.raises(CseError, match=r"t\.tsv:1: the first line must name the columns"):
        catalogue.header(path)


def test_a_fingerprint_follows_the_content_not_the_wrapping(toy):
    data = toy("toy", '[splits.train]\npath = "a.txt"\nrows = 1\n[splits.dev]\npath = "b.txt.gz"\nrows = 1\n')
    (data / "a.txt").write_bytes(b"same\n")
    (data / "b.txt.gz").write_bytes(gzip.compress(b"same\n"))
    assert catalogue.fingerprint("toy", "train") == catalogue.fingerprint("toy", "dev")
    (data / "a.txt").write_bytes(b"other\n")
    assert catalogue.fingerprint("toy", "train") != catalogue.fingerprint("toy", "dev")


def test_generated_pairs_are_found_without_any_file(monkeypatch):
    monkeypatch.delenv("CSE_DATA", raising=False)
    found = catalogue.find("graded_pairs", "dev")
    assert found is not None
    assert found[0] == "generated"
    made = catalogue.read_pairs("graded_pairs", "dev")
    assert len(made) == 1000
    assert next(catalogue.open_text("graded_pairs", "train")).keys() == {"text", "translation"}
    assert catalogue.fingerprint("graded_pairs", "dev") == catalogue.fingerprint("graded_pairs", "dev")


HUB = '[hub]\nid = "toys/toy"\n[splits.train]\npath = "toy/t.txt"\nhub = ["t.txt"]\nrows = 2\n'


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """A hub that is asked for real, at an address where nobody listens, with an empty cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    model_hub.unreachable.cache_clear()
    yield
    model_hub.unreachable.cache_clear()


def test_missing_data_is_told_within_five_seconds_with_three_ways_out(toy, offline):
    toy("toy", HUB)
    start = time.monotonic()
    with pytest.raises(MissingError) as caught:
        catalogue.locate("toy", "train")
    assert time.monotonic() - start < 5
    assert caught.value.exit_code == 3
    said = str(caught.value)
    for part in ("'toy'", "toy/t.txt", "CSE_DATA is", "hf download toys/toy", "HF_ENDPOINT", "3. "):
        assert part in said
    assert catalogue.find("toy", "train") is None


def test_missing_data_that_no_hub_has_is_told_without_asking(toy, monkeypatch):
    toy("toy", '[splits.train]\npath = "toy/t.txt"\nrows = 2\n')
    monkeypatch.setattr(hub, "unreachable", lambda: pytest.fail("asked the hub"))
    monkeypatch.delenv("CSE_DATA")
    with pytest.raises(MissingError, match="CSE_DATA is not set"):
        catalogue.locate("toy", "train")


def test_the_hubs_cache_comes_after_the_folder_and_before_the_hub(toy, offline, tmp_path):
    data = toy("toy", HUB)
    snapshot = tmp_path / "hub" / "datasets--toys--toy" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "t.txt").write_text("from\ncache\n")
    refs = snapshot.parent.parent / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    assert catalogue.find("toy", "train")[0] == "cache"
    assert [row["text"] for row in catalogue.open_text("toy")] == ["from", "cache"]
    (data / "toy").mkdir()
    (data / "toy" / "t.txt").write_text("from\nfolder\n")
    assert [row["text"] for row in catalogue.open_text("toy")] == ["from", "folder"]


def test_a_file_the_hub_gives_is_read(toy, offline, monkeypatch, tmp_path):
    import huggingface_hub

    toy("toy", HUB)
    asked = []

    def download(repository, *, revision, local_files_only=False, **options):
        if local_files_only:
            raise FileNotFoundError(repository)
        asked.append((repository, revision, options["allow_patterns"], options["repo_type"]))
        (tmp_path / "t.txt").write_text("from\nhub\n")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(hub, "unreachable", lambda: None)
    assert [row["text"] for row in catalogue.open_text("toy")] == ["from", "hub"]
    assert asked == [("toys/toy", "main", ["t.txt"], "dataset")]


@pytest.mark.data
def test_every_local_split_has_the_rows_the_catalogue_says(data):
    counted = {}
    for name in catalogue.names():
        about = catalogue.entry(name)
        for split in about.splits:
            if (found := catalogue.find(name, split)) is not None and found[0] == "CSE_DATA":
                source = found[1]
                assert source.scan().rows == about.splits[split].rows, (name, split)
                counted[name, split] = about.splits[split].rows
    files = [path for path in data.rglob("*") if path.suffix in (".tsv", ".txt", ".gz") and "wordnet" not in path.parts]
    listed = {split.path for name in catalogue.names() for split in catalogue.entry(name).splits.values()}
    assert {str(path.relative_to(data)) for path in files} <= listed
    assert len(counted) >= len(files)
    assert max(counted.values()) == 1_000_000


@pytest.mark.data
@pytest.mark.parametrize("name", ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "cstsb", "simclue"])
def test_every_pair_set_is_read_whole(name):
    about = catalogue.entry(name)
    made = catalogue.read_pairs(name, "test")
    assert len(made) == about.split("test").rows
    low, high = (1, 5) if name == "sickr" else (0, 5)
    assert all(low <= pair.score <= high and pair.first and pair.second for pair in made)
