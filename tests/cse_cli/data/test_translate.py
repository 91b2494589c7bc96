import gzip
import hashlib

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from cse_cli.data import columns as module
from cse_cli.data import translate as by_hand
from cse_cli.data.columns import ColumnMaker, Making
from cse_cli.data.sources import open_text
from cse_cli.data.translate import (
    TranslationRequest,
    is_dataset_name,
    open_column,
    output_path,
    parse_shard,
    source_language,
    write_translation,
)
from cse_cli.recipe.schema import Data, Part
from registry.errors import MissingError
from registry.types import ColumnGenerator
from tests.support.errors import refuses

ROWS = 2503


class Upper(ColumnGenerator):
    """Makes capitals, a hundred sentences per batch, and stops after `patience` batches."""

    def __init__(self, patience=999, identity="upper"):
        self.patience, self.named, self.seen = patience, identity, []

    def identity(self):
        return self.named

    def make(self, cells, count=None):
        for start in range(0, len(cells), 100):
            if self.patience == 0:
                raise KeyboardInterrupt
            self.patience -= 1
            self.seen += cells[start : start + 100]
            if count is not None:
                count(len(cells[start : start + 100]))
        return [cell.upper() for cell in cells]


class Lines:
    """A column in memory."""

    def __init__(self, *lines):
        self.lines, self.rows = lines, len(lines)

    def take(self, indices):
        return [self.lines[index] for index in indices]


def request(text, **more):
    params = {"model": "m", **({"column": more.pop("column")} if "column" in more else {})}
    return TranslationRequest(str(text), params, **more)


def build_by_name(monkeypatch):
    """Let parts whose name is a generator stand for it, so that tests can look into it."""
    monkeypatch.setattr(module, "build", lambda part: part.name)
    monkeypatch.setattr(
        ColumnMaker, "key", property(lambda maker: hashlib.sha256(maker.generator.named.encode()).hexdigest())
    )


@pytest.fixture(autouse=True)
def built(monkeypatch):
    build_by_name(monkeypatch)


def maker(generator):
    return ColumnMaker(Part.model_construct(name=generator, params={}))


def write(column, rows, generator, output, report=None):
    return write_translation(column, rows, maker(generator), output, Making(report=report))


def written(lines, generator, output, **more):
    return write(Lines(*lines), range(len(lines)), generator, output, **more)


def pairs(path):
    header, *lines, end = path.read_bytes().decode().split("\n")
    assert (header, end) == ("text\ttranslation", "")
    return [tuple(line.split("\t")) for line in lines]


@pytest.fixture
def blocks_of_100(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 100)
    monkeypatch.setattr(by_hand, "BLOCK", 100)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("".join(f"line {i}\n" for i in range(ROWS)))
    return path


@pytest.fixture
def rows(source):
    return open_column(request(source))


def test_line_i_translates_row_i(rows, source, tmp_path):
    made = write(*rows, Upper(), tmp_path / "out" / "t.tsv")
    assert (made.rows, made.reused) == (ROWS, 0)
    parallel = open_text(Data(file=str(made.output)), {"text", "translation"})
    lines = source.read_text().splitlines()
    assert list(parallel.cells("text")) == lines
    assert list(parallel.cells("translation")) == [line.upper() for line in lines]
    column, chosen = rows
    assert list(maker(Upper(patience=0)).make(column, chosen, Making())) == [line.upper() for line in lines]


@pytest.mark.usefixtures("blocks_of_100")
def test_a_stopped_translation_resumes_at_its_block(rows, tmp_path):
    output = tmp_path / "t.tsv"
    first = Upper(patience=7)
    with pytest.raises(KeyboardInterrupt):
        write(*rows, first, output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cse-home", "t.txt"]
    second = Upper()
    made = write(*rows, second, output)
    assert len(first.seen) == made.reused == 700
    assert len(second.seen) == ROWS - 700
    unbroken = write(*rows, Upper(identity="the same without a stop"), tmp_path / "u.tsv")
    assert output.read_bytes() == unbroken.output.read_bytes()


@pytest.mark.usefixtures("blocks_of_100")
def test_another_text_shares_its_equal_blocks(source, tmp_path):
    write(*open_column(request(source)), Upper(), tmp_path / "a.tsv")
    with gzip.open(tmp_path / "o.txt.gz", "wt") as file:
        file.writelines(f"line {i}\n" for i in range(150))
    second = Upper()
    made = write(*open_column(request(tmp_path / "o.txt.gz")), second, tmp_path / "b.tsv")
    assert second.seen == [f"line {i}" for i in range(100, 150)]
    assert (made.rows, made.reused) == (150, 100)


def test_a_finished_translation_is_not_repeated(rows, tmp_path):
    write(*rows, Upper(), tmp_path / "a.tsv")
    made = write(*rows, Upper(patience=0), tmp_path / "b.tsv")
    assert made.reused == made.rows
    other = Upper(identity="another model")
    write(*rows, other, tmp_path / "c.tsv")
    assert len(other.seen) == ROWS


def test_repeated_sentences_are_translated_once_and_blanks_never(tmp_path):
    translator = Upper()
    made = written(["a", "b", " ", "a", "", "a"], translator, tmp_path / "t.tsv")
    assert translator.seen == ["a", "b"]
    assert made.reused == 4
    assert pairs(made.output) == [("a", "A"), ("b", "B"), (" ", ""), ("a", "A"), ("", ""), ("a", "A")]


def test_tabs_and_line_ends_become_spaces(tmp_path):
    made = written(["a\tb\rc\u2028d", "a\nb"], Plain(), tmp_path / "t.tsv")
    assert made.output.read_bytes().decode().split("\n")[1] == "a b c\u2028d\tx"


class Plain(Upper):
    def make(self, cells, count=None):
        return ["x"] * len(cells)


@pytest.mark.usefixtures("blocks_of_100")
def test_progress_counts_rows(rows, tmp_path):
    seen = []
    write(*rows, Upper(), tmp_path / "t.tsv", lambda _, done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len({done for done, _ in seen}) == 26
    assert seen[-1] == (ROWS, ROWS)


SENTENCE = st.text(st.characters(blacklist_categories=["Cs", "Zl", "Zp", "Cc"]), max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.lists(SENTENCE, min_size=1, max_size=30), st.integers(0, 4), st.integers(1, 7)), max_size=5
    )
)
def test_no_row_gets_the_translation_of_another(calls, tmp_path_factory):
    directory = tmp_path_factory.mktemp("calls")
    for number, (lines, patience, block) in enumerate(calls):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module, "BLOCK", block)
            for attempt in (Upper(patience, str(directory)), Upper(identity=str(directory))):
                try:
                    made = written(lines, attempt, directory / f"{number}.tsv")
                except KeyboardInterrupt:
                    assert not (directory / f"{number}.tsv").exists()
        expected = [(line, line.upper() if line.strip() else "") for line in lines]
        assert pairs(made.output) == expected


def test_a_file_that_cannot_be_written_is_an_error(rows, tmp_path):
    (tmp_path / "file").write_text("")
    with refuses("data.cache_not_writable", "file"):
        write(*rows, Upper(), tmp_path / "file" / "t.tsv")


def test_a_damaged_block_is_translated_again_with_a_warning(tmp_path, home):
    lines = [f"the cat number {number} sleeps" for number in range(40)]
    written(lines, Upper(), tmp_path / "first.tsv")
    (block,) = (home / "cache" / "columns").rglob("*.txt")
    whole = block.read_bytes()
    for number, byte in ((3, 0x01), (17, 0x80)):  # another letter, and invalid UTF-8
        content = bytearray(whole)
        content[whole.index(lines[number].upper().encode()) + 5] ^= byte
        block.write_bytes(content)
        with pytest.warns(UserWarning, match=r"\.txt is damaged and is created again") as warned:
            written(lines, Upper(), tmp_path / f"{number}.tsv")
        assert len(warned) == 1
        assert (tmp_path / f"{number}.tsv").read_bytes() == (tmp_path / "first.tsv").read_bytes()
        written(lines, again := Upper(), tmp_path / "again.tsv")
        assert again.seen == []


@pytest.mark.parametrize("shards", [1, 2, 7, 11])
def test_shards_are_equal_parts_of_the_text(source, shards):
    cut = [open_column(request(source, shard=(i + 1, shards)))[1] for i in range(shards)]
    assert [row for part in cut for row in part] == list(range(ROWS))
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


@pytest.mark.usefixtures("blocks_of_100")
def test_shards_are_sorted_in_a_glob_and_reused_for_the_whole(source, tmp_path):
    paths = []
    for i in range(1, 12):
        asked = request(source, shard=(i, 11), output=str(tmp_path / "t.tsv"))
        paths.append(write(*open_column(asked), Upper(), output_path(asked)).output)
    assert sorted(tmp_path.glob("t.*-of-11.tsv")) == paths
    assert paths[0].name == "t.01-of-11.tsv"
    whole = write(*open_column(request(source)), Upper(patience=0), tmp_path / "t.tsv")
    assert pairs(whole.output) == [pair for path in paths for pair in pairs(path)]


def test_impossible_shards_are_errors(source):
    assert parse_shard(None) == (1, 1)
    assert parse_shard("2/8") == (2, 8)
    for wrong in ("0/8", "9/8", "2", "2/", "-1/3", "a/b"):
        with refuses("data.bad_shard", wrong):
            parse_shard(wrong)
    with refuses("data.too_many_shards", "3 rows", "4 shards"):
        open_column(request(source, limit=3, shard=(1, 4)))


def test_the_source_is_a_data_set_or_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "wiki_en").mkdir()
    assert [is_dataset_name(name) for name in ("wiki_en", "hf:owner/name", "wiki_enn")] == [True] * 3
    files = ("a.txt", "a.tsv.gz", "a.parquet", "b.jsonl", "x/y", "*.parquet", "folder", "~/a.csv.gz")
    assert [is_dataset_name(name) for name in files] == [False] * len(files)
    assert len(open_column(request("graded_pairs", limit=5))[1]) == 5
    with pytest.raises(MissingError):
        open_column(request(tmp_path / "nowhere.txt"))
    with pytest.raises(Exception, match="unknown dataset"):
        open_column(request("nowhere"))


def test_another_column_is_translated(tmp_path):
    (tmp_path / "p.tsv").write_text("text\ttitle\na\tb\nc\td\n")
    column = open_column(request(tmp_path / "p.tsv", column="title"))
    assert pairs(write(*column, Upper(), tmp_path / "t.tsv").output) == [("b", "B"), ("d", "D")]
    with refuses("data.unknown_column", "'caption'", "text, title"):
        open_column(request(tmp_path / "p.tsv", column="caption"))


def test_every_text_of_a_recipe_can_be_translated(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    parquet.write_table(pyarrow.table({"caption": ["a", "b"], "n": [1, 2]}), folder / "1.parquet")
    parquet.write_table(pyarrow.table({"caption": ["c\td"], "n": [3]}), folder / "2.parquet")
    (tmp_path / "j.jsonl").write_text('{"caption": "e"}\n{"caption": "fg"}\n')
    expected = [("a", "A"), ("b", "B"), ("c d", "C D")]
    for number, source in enumerate([folder, folder / "*.parquet"]):
        column = open_column(request(source, column="caption"))
        assert pairs(write(*column, Upper(), tmp_path / f"{number}.tsv").output) == expected
    column = open_column(request(tmp_path / "j.jsonl", column="caption"))
    assert pairs(write(*column, Upper(), tmp_path / "j.tsv").output) == [("e", "E"), ("fg", "FG")]


def test_the_source_language_is_that_of_the_catalog():
    assert source_language(request("wiki1m")) == "en"
    assert source_language(request("simclue")) == "zh"
    assert source_language(request("multi30k_en_de")) == "en"
    assert source_language(request("multi30k_en_de", column="translation")) == "de"
    assert source_language(request("hf:a/b")) is None
    assert source_language(request("a.txt")) is None


@pytest.mark.parametrize(("source", "model", "more", "name"), [
    ("wiki_en", "a/opus", {}, "wiki_en.opus"),
    ("x/mine.txt.gz", "opus", {}, "mine.opus"),
    ("stsb", "opus", {"split": "dev", "column": "sentence1"}, "stsb.dev.sentence1.opus"),
    ("hf:owner/name:config@main", "opus", {}, "name-config-main.opus"),
    ("data/*.parquet", "opus", {}, "data.opus"),
    ("data/", "opus", {"shard": (2, 12)}, "data.opus.02-of-12"),
    ("w.txt", "t5", {"target": "de"}, "w.t5.de"),
])  # fmt: skip
def test_the_default_output_is_in_the_state_directory(home, source, model, more, name):
    params = {"model": model, "to": more.pop("target", None), "column": more.pop("column", "text")}
    asked = TranslationRequest(source, params, **more)
    assert output_path(asked) == home / "translations" / f"{name}.tsv"


def test_the_output_is_the_given_path(tmp_path):
    path = tmp_path / "t.tsv"
    assert output_path(request("x", output=str(path))) == path
    path.write_text("precious")
    assert output_path(request("x", output=str(path), shard=(2, 8))) == tmp_path / "t.2-of-8.tsv"
    with refuses("data.output_exists", path):
        output_path(request("x", output=str(path)))
    with refuses("data.output_not_tsv", "t.txt"):
        output_path(request("x", output=str(tmp_path / "t.txt")))
