from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cse_cli.data.batches import Batches, Sampler, ViewSpec
from cse_cli.data.sources import open_text
from cse_cli.recipe.schema import Data
from registry.types import Augmenter
from tests.cse_cli.data.vocabularies import Shuffles, Words
from tests.support.errors import refuses

ROWS = 23


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "t.tsv"
    rows = "".join(f"sentence s{i}\tsatz d{i} x\n" for i in range(ROWS))
    path.write_text("text\ttranslation\n" + rows)
    return open_text(Data(file=str(path)), {"text", "translation"})


class OnEmbeddings(Augmenter):
    """Leaves text alone."""


def batches(text, batch_size=4, seed=0, spec=None, **more):
    return Batches(text, {"anchor": spec or ViewSpec("text", Words())}, batch_size, 8, seed, **more)


def same(a, b):
    return torch.equal(a.ids, b.ids) and torch.equal(a.mask, b.mask) and a.side.keys() == b.side.keys()


def test_an_epoch_sees_every_row_at_most_once_and_drops_the_rest(text):
    made = batches(text)
    assert made.steps_per_epoch == ROWS // 4 == 5
    first = [row for step in range(5) for row in made.indices(step)]
    second = [row for step in range(5, 10) for row in made.indices(step)]
    assert len(first) == len(set(first)) == 20
    assert set(first) | set(second) <= set(range(ROWS))
    assert first != second
    assert sorted(first) != first


def test_a_batch_depends_on_seed_and_step_alone(text):
    one, two = batches(text), batches(text)
    forward = [one.batch(step)["anchor"] for step in range(12)]
    backward = {step: two.batch(step)["anchor"] for step in reversed(range(12))}
    assert all(same(forward[step], backward[step]) for step in range(12))
    assert batches(text).indices(7) != batches(text, seed=1).indices(7)


def test_the_order_of_rows_does_not_change_between_versions(text):
    """Noted down once: another order would let no older run be resumed."""
    assert batches(text).indices(0) == [19, 21, 22, 20]


def test_tokens_are_those_of_the_rows(text):
    made = batches(text)
    rows = made.indices(3)
    expected = Words().pad(Words().ids([f"sentence s{i}" for i in rows], 8))
    assert same(made.batch(3)["anchor"], expected)


def test_views_share_the_sentences_and_the_tokenized_column(text):
    words = Words()
    specs = {"a": ViewSpec("text", words), "b": ViewSpec("text", words, augmenters=[OnEmbeddings()])}
    made = Batches(text, specs, 4, 8, 0)
    batch = made.batch(2)
    assert same(batch["a"], batch["b"])
    assert words.asked == ROWS


def test_a_side_column_has_its_own_vocabulary_and_the_same_rows(text):
    other = Words("de")
    made = batches(text, spec=ViewSpec("text", Words(), side={"translation": other}))
    side = made.batch(1)["anchor"].side["translation"]
    expected = other.pad(other.ids([f"satz d{i} x" for i in made.indices(1)], 8))
    assert torch.equal(side.ids, expected.ids)


def test_changed_text_depends_on_seed_step_and_view(text):
    spec = ViewSpec("text", Words(), augmenters=[Shuffles()])
    assert spec.changes_text
    made = Batches(text, {"a": spec, "b": spec}, 4, 8, 0)
    again = Batches(text, {"b": spec, "a": spec}, 4, 8, 0)
    batch = made.batch(6)
    assert same(batch["a"], again.batch(6)["a"])
    assert not same(batch["a"], batch["b"])
    assert not same(batch["a"], Batches(text, {"a": spec}, 4, 8, 1).batch(6)["a"])
    assert torch.equal(batch["a"].ids[:, 1:3], batch["b"].ids[:, 1:3])


@pytest.mark.parametrize("augmenters", [(), (Shuffles(),)])
def test_processes_together_see_the_batch_of_one(text, augmenters):
    spec = ViewSpec("text", Words(), side={"translation": Words()}, augmenters=augmenters)
    whole = batches(text, spec=spec).batch(3)["anchor"]
    parts = [batches(text, spec=spec, rank=rank, world=2).batch(3)["anchor"] for rank in range(2)]
    assert torch.equal(torch.cat([part.ids for part in parts]), whole.ids)
    sides = torch.cat([part.side["translation"].ids for part in parts])
    assert torch.equal(sides, whole.side["translation"].ids)


def test_a_batch_that_cannot_be_filled_or_shared_is_refused(text):
    with refuses("data.too_few_sentences", 24, 23):
        batches(text, batch_size=24)
    with refuses("data.uneven_batch", 5, 2):
        batches(text, batch_size=5, world=2)


def test_progress_is_reported_once_per_column(text):
    seen = []
    for _ in range(2):
        batches(text, progress=lambda done, rows: seen.append((done, rows)))
    assert seen == [(ROWS, ROWS)]


class Agrees(Shuffles):
    """The same, in every view alike."""

    draws_alike = True


def test_augmenters_that_draw_alike_change_all_views_equally(text):
    def made(*augmenters):
        return ViewSpec("text", Words(), augmenters=list(augmenters))

    specs = {"a": made(Agrees(), Shuffles()), "b": made(Shuffles(), Agrees()), "c": made(Agrees())}
    batch = Batches(text, specs, 4, 12, seed=0)
    found = {name: tokens.ids.tolist() for name, tokens in batch.batch(1).items()}
    # "sentence", its number, then what was drawn, between the special tokens.
    alike = {name: [row[place] for row in rows] for (name, rows), place in zip(found.items(), (3, 4, 3), strict=True)}
    alone = {name: [row[place] for row in found[name]] for name, place in (("a", 4), ("b", 3))}
    assert alike["a"] == alike["b"] == alike["c"]
    assert not set(alone["a"]) & set(alone["b"])
    again = {name: tokens.ids.tolist() for name, tokens in batch.batch(2).items()}
    assert not set(alike["c"]) & {row[3] for row in again["c"]}


class Last(Augmenter):
    """Keeps the last few sub-words of each text, as read."""

    def __init__(self, count):
        self.count = count

    def on_pieces(self, pieces, rng):
        return [replace(row, first=row.first[-self.count :]) for row in pieces]


class LastOfAll(Last):
    reads_whole_text = True


def test_augmenters_of_whole_text_see_its_end(tmp_path):
    path, words = tmp_path / "long.txt", Words()
    path.write_text(" ".join(f"w{place}" for place in range(50)) + "\n")
    long = open_text(Data(file=str(path)), {"text"})

    def row(augmenter):  # of eight tokens, the special ones included
        spec = ViewSpec("text", words, augmenters=[augmenter])
        return Batches(long, {"anchor": spec}, 1, 8, seed=0).batch(0)["anchor"].ids[0].tolist()

    def expected(*places):
        return [1, *(words.word(f"w{place}") for place in places), 2]

    assert row(LastOfAll(3)) == expected(47, 48, 49)
    assert row(LastOfAll(20)) == expected(30, 31, 32, 33, 34, 35)
    assert row(Last(3)) == expected(3, 4, 5)


def test_numbers_are_those_of_the_rows(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("text,rating\n" + "".join(f"sentence s{i},{i / 2}\n" for i in range(ROWS)))
    rated = open_text(Data(file=str(path)), {"text", "rating"})
    made = batches(rated, spec=ViewSpec("text", Words(), numbers=["rating"]))
    assert made.batch(3)["anchor"].numbers["rating"].tolist() == [row / 2 for row in made.indices(3)]
    second = batches(rated, spec=ViewSpec("text", Words(), numbers=["rating"]), rank=1, world=2)
    assert second.batch(3)["anchor"].numbers["rating"].tolist() == [row / 2 for row in made.indices(3)[2:]]


@pytest.mark.parametrize("cell", ["high", "nan", "inf"])
def test_a_label_that_is_no_number_is_named(tmp_path, cell):
    path = tmp_path / "pairs.csv"
    path.write_text(f"text,rating\na,1\nb,2e-1\nc,{cell}\nd,-4\n")
    with refuses("data.not_a_number", "'rating'", f"'{cell}'", "row 3"):
        batches(open_text(Data(file=str(path)), {"text", "rating"}), spec=ViewSpec("text", Words(), numbers=["rating"]))


# Batches without equal texts.


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(8, 20)), min_size=12, max_size=80), st.integers(2, 4))
def test_no_text_is_in_two_rows_of_a_batch(texts, size):
    texts += [(100 + row, 100 + row) for row in range(size)]  # a batch without a repeated text exists
    sampler = Sampler(len(texts), size, 5, texts=np.array(texts))
    epoch = sampler.epoch(1).tolist()
    assert len(epoch) == len(texts) // size
    for batch in epoch:
        seen = [text for row in batch for text in set(texts[row])]
        assert len(seen) == len(set(seen))
    once = [row for batch in epoch[: len(epoch) - sampler.repacked] for row in batch]
    assert len(once) == len(set(once))


def test_rows_that_wait_for_a_batch_are_used_in_the_next():
    texts = np.array([[0], [0], [0], [0], [1], [2], [3], [4]])
    sampler = Sampler(8, 2, 0, texts=texts)
    for number in range(20):  # the only way without rows twice: one 0 in every batch
        epoch = sampler.epoch(number)
        pairs = [sorted(texts[row].tolist()) for row in epoch]
        assert all(first == [0] or sampler.repacked for first, _ in pairs)
        assert all(first != second for first, second in pairs)


def test_too_many_copies_are_reported(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"same,b{number}\n" for number in range(6)) + "x,y\nz,w\n")
    text = open_text(Data(file=str(path)), {"a", "b"})
    specs = {"anchor": ViewSpec("a", Words()), "positive": ViewSpec("b", Words())}
    made = Batches(text, specs, 2, 8, 0, unique=True)
    (notice,) = made.notices
    assert "2 of the 4 batches" in notice
    assert Batches(text, specs, 2, 8, 0).notices == ()
    with refuses("data.too_few_distinct", "4 rows"):
        Batches(text, specs, 4, 8, 0, unique=True).batch(0)


def test_cells_have_the_number_of_their_text(tmp_path):
    (tmp_path / "one.csv").write_text("a,b\nx,y\ny,z\n")
    (tmp_path / "two.csv").write_text("a,b\nz,x\nw,v\n")
    files = (str(tmp_path / "one.csv"), str(tmp_path / "two.csv"))
    text = open_text(Data(file=files, limit=3), {"a", "b"})
    assert text.numbered().tolist() == [[0, 1], [1, 2], [2, 0]]


def test_steps_and_processes_do_not_change_a_batch(tmp_path):
    (tmp_path / "t.txt").write_text("".join(f"s{row % 8} {row % 2}\n" for row in range(33)))
    text = open_text(Data(file=str(tmp_path / "t.txt")), {"text"})

    def made(**more):
        return Batches(text, {"anchor": ViewSpec("text", Words())}, 4, 8, 1, unique=True, **more)

    one, resumed = made(), made()
    forward = [one.indices(step) for step in range(20)]
    assert [resumed.indices(step) for step in (17, 3, 19)] == [forward[17], forward[3], forward[19]]
    halves = [made(rank=rank, world=2).batch(17)["anchor"].ids for rank in range(2)]
    assert torch.equal(torch.cat(halves), one.batch(17)["anchor"].ids)
