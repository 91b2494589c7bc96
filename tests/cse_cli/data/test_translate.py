import gzip
import hashlib
import sqlite3
from multiprocessing import Pool

import pyarrow
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from cse_cli.data import translate as module
from cse_cli.data.languages import Pair
from cse_cli.data.sources import open_text
from cse_cli.data.translate import Request, Rows, is_dataset_name, language_of, open_rows, output_path, parse_shard
from cse_cli.data.translate import translate_rows as made_by
from cse_cli.data.translator import Settings
from cse_cli.recipe.schema import Data
from registry.errors import CseError, DiskError

ROWS = 2503


class Upper:
    """Translates into capitals, a hundred sentences a batch, backwards; is stopped after `patience` batches."""

    def __init__(self, patience=999, identity="upper"):
        self.patience, self.identity, self.seen, self.windows = patience, identity, [], []

    def translate(self, windows):
        for window in windows:
            self.windows.append(len(window))
            for start in range(0, len(window), 100):
                if self.patience == 0:
                    raise KeyboardInterrupt
                self.patience -= 1
                self.seen += window[start : start + 100]
                yield [(sentence, sentence.upper()) for sentence in reversed(window[start : start + 100])]


class Lines:
    """A text in memory."""

    def __init__(self, *lines):
        self.lines, self.rows = lines, len(lines)
        self.fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def cells(self, column):
        assert column == "text"
        return iter(self.lines)


def request(source, **more):
    return Request(str(source), Settings("m"), **more)


def rows_of(*lines):
    return Rows(Lines(*lines), "text", 0, len(lines))


def pairs(path):
    header, *lines, end = path.read_bytes().decode().split("\n")
    assert (header, end) == ("text\ttranslation", "")
    return [tuple(line.split("\t")) for line in lines]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("".join(f"line {i}\n" for i in range(ROWS)))
    return path


@pytest.fixture
def rows(source):
    return open_rows(request(source))


def test_line_i_translates_row_i(rows, tmp_path):
    made = made_by(rows, Upper(), tmp_path / "out" / "t.tsv")
    assert (made.rows, made.reused) == (ROWS, 0)
    parallel = open_text(Data(file=str(made.output)), {"text", "translation"})
    assert list(parallel.cells("text")) == list(rows)
    assert list(parallel.cells("translation")) == [line.upper() for line in rows]


def test_a_stopped_translation_goes_on_where_it_stopped(rows, tmp_path):
    output = tmp_path / "t.tsv"
    first = Upper(patience=7)
    with pytest.raises(KeyboardInterrupt):
        made_by(rows, first, output, window=500)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cse-home", "t.txt"]
    second = Upper()
    made = made_by(rows, second, output)
    assert len(first.seen) == made.reused == 700
    assert len(second.seen) == ROWS - 700
    unbroken = made_by(rows, Upper(identity="the same in one go"), tmp_path / "u.tsv")
    assert output.read_bytes() == unbroken.output.read_bytes()


def test_a_trial_of_a_few_rows_is_part_of_the_whole(source, tmp_path):
    made_by(open_rows(request(source, limit=1024)), Upper(), tmp_path / "a.tsv")
    second = Upper()
    made = made_by(open_rows(request(source)), second, tmp_path / "b.tsv")
    assert made.reused == 1024
    assert second.seen == [f"line {i}" for i in range(1024, ROWS)]


def test_another_text_shares_its_sentences(source, tmp_path):
    made_by(open_rows(request(source)), Upper(), tmp_path / "a.tsv")
    with gzip.open(tmp_path / "o.txt.gz", "wt") as file:
        file.write("new\nline 7\n")
    second = Upper()
    made = made_by(open_rows(request(tmp_path / "o.txt.gz")), second, tmp_path / "b.tsv")
    assert second.seen == ["new"]
    assert pairs(made.output) == [("new", "NEW"), ("line 7", "LINE 7")]


def test_a_finished_translation_is_not_made_again(rows, tmp_path):
    made_by(rows, Upper(), tmp_path / "a.tsv")
    made = made_by(rows, Upper(patience=0), tmp_path / "b.tsv")
    assert made.reused == made.rows
    other = Upper(identity="another model")
    made_by(rows, other, tmp_path / "c.tsv")
    assert len(other.seen) == ROWS


def test_a_repeated_sentence_is_translated_once_and_a_blank_one_never(tmp_path):
    translator = Upper()
    made = made_by(rows_of("a", "b", " ", "a", "", "a"), translator, tmp_path / "t.tsv", window=1)
    assert translator.seen == ["a", "b"]
    assert made.reused == 4
    assert pairs(made.output) == [("a", "A"), ("b", "B"), (" ", ""), ("a", "A"), ("", ""), ("a", "A")]


def test_tabs_and_line_ends_become_spaces(tmp_path):
    made = made_by(rows_of("a\tb\rc\u2028d", "a\nb"), Upper(), tmp_path / "t.tsv")
    assert made.output.read_bytes().decode().split("\n")[1] == "a b c\u2028d\tA B C\u2028D"


def test_windows_are_full_but_for_the_last(rows, tmp_path):
    translator = Upper()
    made_by(rows, translator, tmp_path / "t.tsv", window=1200)
    assert translator.windows == [1200, 1200, 103]


def test_progress_counts_rows(rows, tmp_path):
    seen = []
    made_by(rows, Upper(), tmp_path / "t.tsv", lambda done, all_: seen.append((done, all_)), window=500)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) == 26
    assert seen[-1] == (ROWS, ROWS)


SENTENCE = st.text(st.characters(blacklist_categories=["Cs"]), max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.lists(SENTENCE, min_size=1, max_size=30), st.integers(0, 4), st.integers(1, 7)), max_size=5
    )
)
def test_whatever_was_stored_before_no_row_gets_another_ones_translation(calls, tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls")
    identity, translated = str(folder), {}
    for number, (lines, patience, window) in enumerate(calls):
        for attempt in (Upper(patience, identity), Upper(identity=identity)):
            try:
                made = made_by(rows_of(*lines), attempt, folder / f"{number}.tsv", window=window)
            except KeyboardInterrupt:
                assert not (folder / f"{number}.tsv").exists()
            assert not set(attempt.seen) & set(translated)
            assert len(set(attempt.seen)) == len(attempt.seen)
            translated |= dict.fromkeys(attempt.seen)
        text, lines_made = made.output.read_bytes().decode().removeprefix("text\ttranslation\n"), []
        for line in lines:
            lines_made.append(f"{module._cell(line)}\t{module._cell(line.upper()) if line.strip() else ''}\n")
        assert text == "".join(lines_made)


def _save(arguments):
    path, number = arguments
    with module.Store(path) as store:
        for start in range(0, 3000, 30):
            store.save([(f"{i}", f"by {number}") for i in range(start + number % 2, start + 30)])
            store.commit()


@pytest.mark.process
def test_several_processes_write_one_store(tmp_path):
    with Pool(4) as pool:
        pool.map(_save, [(tmp_path / "s.sqlite", number) for number in range(4)])
    with module.Store(tmp_path / "s.sqlite") as store:
        found = store.find([f"{i}" for i in range(3000)])
    assert len(found) == 3000


def test_two_at_once_are_refused(rows, tmp_path, home):
    made_by(rows, Upper(), tmp_path / "t.tsv")
    (lock,) = (home / "cache" / "translations").glob("*.lock")
    with FileLock(lock), pytest.raises(CseError, match="another process"):
        made_by(rows, Upper(), tmp_path / "t.tsv")


def test_a_disk_that_refuses_is_told(rows, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(CseError, match="file"):
        made_by(rows, Upper(), tmp_path / "file" / "t.tsv")

    def full(self):
        self._file.execute("PRAGMA max_page_count = 1")  # what SQLite answers where the disk is full
        commit(self)

    commit = module.Store.commit
    monkeypatch.setattr(module.Store, "commit", full)
    with pytest.raises(DiskError, match=r"\.sqlite: database or disk is full(.|\n)*free some disk space"):
        made_by(rows, Upper(identity="full"), tmp_path / "t.tsv")
    assert not (tmp_path / "t.tsv").exists()


def test_a_damaged_store_is_named(rows, tmp_path, home):
    made_by(rows, Upper(), tmp_path / "t.tsv")
    (store,) = (home / "cache" / "translations").glob("*.sqlite")
    store.write_bytes(b"not a database" * 1000)
    with pytest.raises(CseError, match=rf"{store.name}: file is not a database(.|\n)*or delete it"):
        made_by(rows, Upper(), tmp_path / "t.tsv")


def test_a_damaged_translation_is_made_again_with_one_warning(tmp_path, home):
    lines = [f"the cat number {number} sleeps" for number in range(40)]
    made_by(rows_of(*lines), Upper(), tmp_path / "first.tsv")
    (store,) = (home / "cache" / "translations").glob("*.sqlite")
    whole = store.read_bytes()
    for number, byte in ((3, 0x01), (17, 0x80)):  # another letter, and no UTF-8 any more
        content = bytearray(whole)
        content[whole.index(lines[number].upper().encode()) + 5] ^= byte
        store.write_bytes(content)
        upper = Upper()
        with pytest.warns(UserWarning, match=r"\.sqlite: damaged translations are made again") as told:
            made_by(rows_of(*lines), upper, tmp_path / f"{number}.tsv")
        assert len(told) == 1
        assert upper.seen == [lines[number]]
        assert (tmp_path / f"{number}.tsv").read_bytes() == (tmp_path / "first.tsv").read_bytes()
        made_by(rows_of(*lines), again := Upper(), tmp_path / "again.tsv")
        assert again.seen == []


def test_a_store_of_a_version_without_checksums_is_used(tmp_path, home):
    made_by(rows_of("a b", "c"), Upper(), tmp_path / "first.tsv")
    (path,) = (home / "cache" / "translations").glob("*.sqlite")
    old = sqlite3.connect(path)
    with old:
        old.execute("ALTER TABLE translations DROP COLUMN crc32")
    old.close()
    made_by(rows_of("a b", "c", "d"), upper := Upper(), tmp_path / "second.tsv")
    assert upper.seen == ["d"]
    assert (tmp_path / "second.tsv").read_text() == "text\ttranslation\na b\tA B\nc\tC\nd\tD\n"


@pytest.mark.parametrize("shards", [1, 2, 7, 11])
def test_shards_are_the_whole_cut_into_pieces(source, tmp_path, shards):
    cut = [list(open_rows(request(source, shard=(i + 1, shards)))) for i in range(shards)]
    assert [row for piece in cut for row in piece] == [f"line {i}" for i in range(ROWS)]
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


def test_shards_in_a_glob_are_in_order_and_the_whole_takes_them_from_the_store(source, tmp_path):
    paths = []
    for i in range(1, 12):
        asked = request(source, shard=(i, 11), output=str(tmp_path / "t.tsv"))
        paths.append(made_by(open_rows(asked), Upper(), output_path(asked)).output)
    assert sorted(tmp_path.glob("t.*-of-11.tsv")) == paths
    assert paths[0].name == "t.01-of-11.tsv"
    whole = made_by(open_rows(request(source)), Upper(patience=0), tmp_path / "t.tsv")
    assert pairs(whole.output) == [pair for path in paths for pair in pairs(path)]


def test_a_shard_that_cannot_be_is_refused(source):
    assert parse_shard(None) == (1, 1)
    assert parse_shard("2/8") == (2, 8)
    for wrong in ("0/8", "9/8", "2", "2/", "-1/3", "a/b", ""):
        if wrong:
            with pytest.raises(CseError, match="is not a shard"):
                parse_shard(wrong)
    with pytest.raises(CseError, match="3 rows cannot be cut into 4 shards"):
        open_rows(request(source, limit=3, shard=(1, 4)))


def test_the_source_is_a_data_set_or_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "wiki_en").mkdir()
    assert [is_dataset_name(name) for name in ("wiki_en", "hf:owner/name", "wiki_enn")] == [True] * 3
    files = ("a.txt", "a.tsv.gz", "a.parquet", "b.jsonl", "x/y", "*.parquet", "folder", "~/a.csv.gz")
    assert [is_dataset_name(name) for name in files] == [False] * len(files)
    assert len(open_rows(request("graded_pairs", limit=5))) == 5
    with pytest.raises(CseError, match="no such file"):
        open_rows(request(tmp_path / "nowhere.txt"))
    with pytest.raises(CseError, match="unknown dataset"):
        open_rows(request("nowhere"))


def test_another_column_is_translated(tmp_path):
    (tmp_path / "p.tsv").write_text("text\ttitle\na\tb\nc\td\n")
    made = made_by(open_rows(request(tmp_path / "p.tsv", column="title")), Upper(), tmp_path / "t.tsv")
    assert pairs(made.output) == [("b", "B"), ("d", "D")]
    with pytest.raises(CseError, match="no column 'caption'; its columns are text, title"):
        open_rows(request(tmp_path / "p.tsv", column="caption"))


def test_any_text_that_a_recipe_takes_is_translated(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    parquet.write_table(pyarrow.table({"caption": ["a", "b"], "n": [1, 2]}), folder / "1.parquet")
    parquet.write_table(pyarrow.table({"caption": ["c\td"], "n": [3]}), folder / "2.parquet")
    (tmp_path / "j.jsonl").write_text('{"caption": "e"}\n{"caption": "f\\ng"}\n')
    expected = [("a", "A"), ("b", "B"), ("c d", "C D")]
    for number, source in enumerate([folder, folder / "*.parquet"]):
        made = made_by(open_rows(request(source, column="caption")), Upper(), tmp_path / f"{number}.tsv")
        assert pairs(made.output) == expected
    made = made_by(open_rows(request(tmp_path / "j.jsonl", column="caption")), Upper(), tmp_path / "j.tsv")
    assert pairs(made.output) == [("e", "E"), ("f g", "F G")]


def test_the_language_is_the_catalogue_s_where_it_knows_it(tmp_path):
    assert language_of(request("wiki1m")) == "en"
    assert language_of(request("simclue")) == "zh"
    assert language_of(request("multi30k_en_de")) == "en"
    assert language_of(request("multi30k_en_de", column="translation")) == "de"
    assert language_of(request("hf:a/b")) is None
    assert language_of(request("a.txt")) is None


@pytest.mark.parametrize(("source", "model", "more", "name"), [
    ("wiki_en", "a/opus", {}, "wiki_en.opus"),
    ("x/mine.txt.gz", "opus", {}, "mine.opus"),
    ("stsb", "opus", {"split": "dev", "column": "sentence1"}, "stsb.dev.sentence1.opus"),
    ("hf:owner/name:config@main", "opus", {}, "name-config-main.opus"),
    ("data/*.parquet", "opus", {}, "data.opus"),
    ("data/", "opus", {"shard": (2, 12)}, "data.opus.02-of-12"),
])  # fmt: skip
def test_the_output_lies_below_the_state_directory(home, source, model, more, name):
    asked = Request(source, Settings(model), **more)
    assert output_path(asked) == home / "translations" / f"{name}.tsv"


def test_another_target_language_has_another_output(home):
    german, french = (Request("w.txt", Settings("t5", languages=Pair(target=code))) for code in ("de", "fr"))
    assert (output_path(german).name, output_path(french).name) == ("w.t5.de.tsv", "w.t5.fr.tsv")


def test_the_output_lies_where_it_was_asked(tmp_path):
    path = tmp_path / "t.tsv"
    assert output_path(request("x", output=str(path))) == path
    path.write_text("precious")
    assert output_path(request("x", output=str(path), shard=(2, 8))) == tmp_path / "t.2-of-8.tsv"
    with pytest.raises(CseError, match="exists already"):
        output_path(request("x", output=str(path)))
    with pytest.raises(CseError, match=r"must end in \.tsv"):
        output_path(request("x", output=str(tmp_path / "t.txt")))
