"""Columns that generators make of a training text: rows, limits, chains, blanks, identity, and several processes."""

import hashlib
import multiprocessing
import os
import signal
from contextlib import suppress
from typing import ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cse_cli.data import columns as module
from cse_cli.data.columns import ColumnMaker, Making, OwnColumns, in_order
from cse_cli.data.sources import open_text, text_fingerprint
from cse_cli.recipe.schema import Data, Part
from registry import GENERATORS
from registry.machinery.core import Entry
from registry.machinery.parameters import UnvalidatedParameters
from registry.types import ColumnGenerator
from tests.support.errors import refuses
from tests.support.programs import until
from tests.support.seq2seq import SENTENCES, tiny_t5

MANY = [f"{a} and {b} {i}" for a in SENTENCES for b in SENTENCES for i in range(4)]


class Shout(ColumnGenerator):
    """Capitals, and nothing for the word `mute`."""

    made: ClassVar[list[str]] = []

    def __init__(self, column: str = "text", mark: str = "!") -> None:
        self.column, self.mark = column, mark

    def make(self, cells, count=None):
        self.made.extend(cells)
        if count is not None:
            count(len(cells))
        return ["" if cell == "mute" else cell.upper() + self.mark for cell in cells]


@pytest.fixture
def shout(monkeypatch):
    """Register `Shout` for one test, and return the list of the cells that it made."""
    monkeypatch.setattr(Shout, "made", [])
    monkeypatch.setitem(GENERATORS._entries, "shout", entry_of_shout())
    return Shout.made


def entry_of_shout():
    GENERATORS.scan()
    described: Entry = GENERATORS._describe("shout", Shout)
    return described


def shouted(**params):
    return Part(name="shout", params=UnvalidatedParameters(**{"column": "text", "mark": "!", **params}))


def data(path, limit=None, **columns):
    return Data(file=str(path), limit=limit, columns=columns)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("one\n\ntwo\nmute\nthree\none\n")
    return path


@pytest.mark.slow
def test_a_made_column_stands_beside_its_rows(text, shout):
    opened = open_text(data(text, loud=shouted()), {"text", "loud"})
    assert list(opened.cells("text")) == ["one", "two", "three", "one"]
    assert list(opened.cells("loud")) == ["ONE!", "TWO!", "THREE!", "ONE!"]
    assert opened.notices == (f"{text}: 2 blank rows skipped",)  # the blank line, and the cell made of "mute"
    assert shout == ["one", "two", "mute", "three"]  # repeated sentences once


@pytest.mark.slow
def test_a_text_is_the_same_as_its_file_with_both_columns(text, tmp_path, shout):
    made = open_text(data(text, translation=shouted()), {"text", "translation"})
    file = tmp_path / "both.tsv"
    pairs = zip(made.cells("text"), made.cells("translation"), strict=True)
    file.write_text("text\ttranslation\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))
    read = open_text(Data(file=str(file)), {"text", "translation"})
    assert made.parts[0][1].columns == read.parts[0][1].columns


@pytest.mark.slow
def test_nothing_is_made_again(text, shout):
    recipe = data(text, loud=shouted())
    first = open_text(recipe, {"text", "loud"}).fingerprint
    shout.clear()
    assert open_text(recipe, {"text", "loud"}).fingerprint == first
    longer = text.with_name("longer.txt")
    longer.write_text(text.read_text() + "four\n")
    open_text(data(text, limit=2, loud=shouted()), {"text", "loud"})
    assert shout == ["one", "two"]  # another block: its cells differ
    shout.clear()
    copied = text.with_name("copied.txt")
    copied.write_bytes(text.read_bytes())
    open_text(data(copied, loud=shouted()), {"text", "loud"})
    assert shout == []
    open_text(data(text, loud=shouted(mark="?")), {"text", "loud"})
    assert shout == ["one", "two", "mute", "three"]


@pytest.mark.slow
def test_columns_are_made_of_columns(text, shout):
    columns = {"twice": shouted(column="loud", mark="?"), "loud": shouted()}
    assert in_order(columns, {"twice"}) == ["loud", "twice"]
    opened = open_text(data(text, **columns), {"text", "twice"})
    assert list(opened.cells("twice")) == ["ONE!?", "TWO!?", "THREE!?", "ONE!?"]
    assert opened.columns == ("text", "twice")


@pytest.mark.slow
def test_several_files_are_one_text(text, shout):
    files = text.with_name("more")
    files.mkdir()
    for name in ("a.txt", "b.txt"):
        (files / name).write_text(f"{name}\n")
    opened = open_text(data(files, loud=shouted()), {"text", "loud"})
    assert list(opened.cells("loud")) == ["A.TXT!", "B.TXT!"]


@pytest.mark.slow
def test_the_identity_is_unknown_until_the_column_is_made(text, shout):
    recipe = data(text, loud=shouted())
    assert text_fingerprint(recipe, {"text", "loud"}) is None
    assert shout == []
    opened = open_text(recipe, {"text", "loud"})
    assert text_fingerprint(recipe, {"text", "loud"}) == opened.fingerprint
    assert text_fingerprint(data(text, loud=shouted(mark="?")), {"text", "loud"}) is None


@pytest.mark.slow
def test_sentences_of_evaluators_get_their_columns(shout):
    own = OwnColumns({"loud": shouted(), "twice": shouted(column="loud", mark="?")})
    cells = own.added({"text": ["a", "b", "a"]}, {"text", "twice", "unknown"})
    assert cells["twice"] == ["A!?", "B!?", "A!?"]
    assert shout == ["a", "b", "A!", "B!"]
    assert own.added({"text": ["a"], "loud": ["x"]}, {"loud"}) == {"text": ["a"], "loud": ["x"]}


@pytest.mark.slow
def test_making_a_column_leaves_the_random_state(text, shout, monkeypatch):
    monkeypatch.setattr(Shout, "make", lambda self, cells, count=None: [str(torch.rand(1).numel()) for _ in cells])
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    open_text(data(text, loud=shouted()), {"text", "loud"})
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_column_of_the_data_is_not_made_again(tmp_path, shout):
    path = tmp_path / "t.tsv"
    path.write_text("text\tloud\na\tA\n")
    with refuses("data.column_twice", path, "'loud'", "--unset data.columns.loud"):
        open_text(data(path, loud=shouted()), {"text", "loud"})


def test_a_data_set_that_has_no_such_source_column_is_refused(text, shout):
    with refuses("data.unknown_column", "'title'"):
        open_text(data(text, loud=shouted(column="title")), {"text", "loud"})


# --- blocks -----------------------------------------------------------------------------------------------------------


class Upper(ColumnGenerator):
    """Makes capitals, a hundred sentences per batch, and stops after `patience` batches."""

    def __init__(self, patience=999, identity="upper"):
        self.patience, self.named, self.seen = patience, identity, []

    def make(self, cells, count=None):
        for start in range(0, len(cells), 100):
            if self.patience == 0:
                raise KeyboardInterrupt
            self.patience -= 1
            self.seen += cells[start : start + 100]
            if count is not None:
                count(len(cells[start : start + 100]))
        return [cell.upper() for cell in cells]


@pytest.fixture
def upper(monkeypatch):
    """A function that makes a column of lines with an `Upper`. Blocks have 100 rows."""
    monkeypatch.setattr(module, "build", lambda part: part.name)
    monkeypatch.setattr(
        ColumnMaker, "key", property(lambda maker: hashlib.sha256(maker.generator.named.encode()).hexdigest())
    )
    monkeypatch.setattr(module, "BLOCK", 100)

    def make(generator, lines, report=None):
        maker = ColumnMaker(Part.model_construct(name=generator, params=UnvalidatedParameters()))
        return maker.make(lines, Making(report=report))

    return make


NUMBERED = [f"line {number}" for number in range(2503)]


def test_a_stopped_column_continues_at_its_block(upper):
    first, second = Upper(patience=7), Upper()
    with pytest.raises(KeyboardInterrupt):
        upper(first, NUMBERED)
    assert upper(second, NUMBERED) == [line.upper() for line in NUMBERED]
    assert (len(first.seen), len(second.seen)) == (700, 2503 - 700)
    assert upper(Upper(patience=0), NUMBERED) == [line.upper() for line in NUMBERED]
    upper(other := Upper(identity="another model"), NUMBERED)
    assert len(other.seen) == 2503


def test_another_text_shares_its_equal_blocks(upper):
    upper(Upper(), NUMBERED)
    upper(second := Upper(), NUMBERED[:150])
    assert second.seen == NUMBERED[100:150]


def test_progress_counts_rows(upper):
    seen = []
    upper(Upper(), NUMBERED, lambda _, done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len({done for done, _ in seen}) == 26
    assert seen[-1] == (2503, 2503)


SENTENCE = st.text(st.characters(blacklist_categories=["Cs", "Zl", "Zp", "Cc"]), max_size=4)
CALLS = st.lists(
    st.tuples(st.lists(SENTENCE, min_size=1, max_size=30), st.integers(0, 4), st.integers(1, 7)), max_size=5
)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=CALLS, number=st.integers(0, 2**60))
def test_no_row_gets_the_cell_of_another(upper, calls, number):
    for lines, patience, block in calls:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module, "BLOCK", block)
            with suppress(KeyboardInterrupt):
                upper(Upper(patience, str(number)), lines)
            made = upper(Upper(identity=str(number)), lines)
        assert made == [line.upper() if line.strip() else "" for line in lines]


def test_a_damaged_block_is_made_again_with_a_warning(upper, home):
    lines = [f"the cat number {number} sleeps" for number in range(40)]
    expected = upper(Upper(), lines)
    (block,) = (home / "cache" / "columns").rglob("*.txt")
    whole = block.read_bytes()
    block.write_bytes(whole[:-9])
    with pytest.warns(UserWarning, match=r"\.txt is damaged and is created again") as warned:
        assert upper(Upper(), lines) == expected
    assert len(warned) == 1
    upper(again := Upper(), lines)
    assert again.seen == []
    for content in (b"\xff" + whole[1:], b"x" * len(whole)):  # invalid UTF-8, and no lines
        block.write_bytes(content)
        with refuses("data.damaged_cache", block, "delete it"):
            upper(Upper(), lines)


# --- several processes ------------------------------------------------------------------------------------------------


@pytest.fixture
def two_workers(tmp_path, monkeypatch, forked_workers):
    """A function that translates `MANY` with two workers, and the expected lines."""
    monkeypatch.setattr(module, "BLOCK", 25)
    maker = ColumnMaker(
        Part(name="translate", params=UnvalidatedParameters(model=str(tiny_t5(tmp_path)), prefix="", max_length=32))
    )

    def call(report=None):
        return maker.make(MANY, Making(("cpu", "cpu"), report))

    return call, maker.generator.make(MANY)


@pytest.mark.process
def test_workers_translate_the_same_as_one_process(two_workers):
    call, expected = two_workers
    assert call() == expected
    until(lambda: not multiprocessing.active_children())  # the executor's thread joins them, too


@pytest.mark.process
def test_a_killed_worker_is_an_error_and_the_rest_is_kept(two_workers, home):
    call, expected = two_workers
    killed = []

    def kill(_, done, total):
        if not killed:
            killed.append(done)
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    with refuses("data.worker_killed", "--workers"):
        call(kill)
    until(lambda: not multiprocessing.active_children())
    kept = sum(path.read_text().count("\n") for path in (home / "cache" / "columns").rglob("*.txt"))
    assert kept >= killed[0] > 0
    assert call() == expected


@pytest.mark.process
def test_an_error_of_a_worker_is_raised(tmp_path, two_workers):
    call, _ = two_workers
    (tmp_path / "t5" / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(Exception, match="cannot be loaded"):
        call()
