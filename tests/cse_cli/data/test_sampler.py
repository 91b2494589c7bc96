from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cse_cli.data.batches import Batches, ViewPlan
from cse_cli.data.sampler import Sampler, shares
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Data
from tests.cse_cli.data.vocabularies import Words
from tests.support.errors import refuses

SOURCES = 'data.dataset=["tatoeba_open", "wiki1m_prefix"]'
TWO = {"small": range(10), "large": range(10, 70)}


def test_proportions_decide_the_rows_of_an_epoch_and_no_row_comes_twice_as_often_as_another():
    sampler = Sampler(70, 7, 3, TWO, proportions=(1, 1))
    assert sampler.steps_per_epoch == 10
    epochs = [sampler.epoch(number).flatten().tolist() for number in range(12)]
    assert [sum(row < 10 for row in epoch) for epoch in epochs] == [35] * 12
    used = Counter(row for epoch in epochs for row in epoch)
    assert {used[row] for row in TWO["small"]} == {42}  # 12 * 35 / 10
    assert {used[row] for row in TWO["large"]} == {7}  # 12 * 35 / 60
    assert epochs[0] != sorted(epochs[0])


@pytest.mark.parametrize(("proportions", "batches"), [(None, [2, 15]), ((1, 3), [4, 13])])
def test_a_batch_has_one_source_and_no_row_twice(proportions, batches):
    sampler = Sampler(70, 4, 3, TWO, proportions, one_source=True)
    for number in range(5):
        epoch = sampler.epoch(number).tolist()
        assert len(epoch) == sampler.steps_per_epoch == sum(batches)
        small = [batch[0] < 10 for batch in epoch]
        assert [sum(small), len(small) - sum(small)] == batches
        assert all({row < 10 for row in batch} == {first} for batch, first in zip(epoch, small, strict=True))
        assert all(len(set(batch)) == 4 for batch in epoch)
        assert small != sorted(small, reverse=True)


@settings(deadline=None)
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
    data = Data(file=str(path), unique_in_batch=True)
    text = open_text(data, {"a", "b"})
    plans = {"anchor": ViewPlan("a", Words()), "positive": ViewPlan("b", Words())}
    made = Batches(text, plans, 2, 8, 0, sampler=Sampler.of(data, text, 2, 0))
    (notice,) = made.notices
    assert "2 of the 4 batches" in notice
    assert Batches(text, plans, 2, 8, 0).notices == ()
    with refuses("data.too_few_distinct", "4 rows"):
        Sampler.of(data, text, 4, 0).epoch(0)


def test_cells_have_the_number_of_their_text(tmp_path):
    (tmp_path / "one.csv").write_text("a,b\nx,y\ny,z\n")
    (tmp_path / "two.csv").write_text("a,b\nz,x\nw,v\n")
    files = (str(tmp_path / "one.csv"), str(tmp_path / "two.csv"))
    text = open_text(Data(file=files, batches="one_source", limit=3), {"a", "b"})
    assert text.numbered().tolist() == [[0, 1], [1, 2], [2, 0]]
    assert text.sources == {files[0]: range(2), files[1]: range(2, 3)}


def test_steps_and_processes_do_not_change_a_batch(tmp_path):
    for name, rows in (("one", 9), ("two", 24)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} s{row % 8}\n" for row in range(rows)))
    files = (str(tmp_path / "one.txt"), str(tmp_path / "two.txt"))
    data = Data(file=files, batches="one_source", proportions=(2, 1), unique_in_batch=True)
    text = open_text(data, {"text"})

    def made(**more):
        plans = {"anchor": ViewPlan("text", Words())}
        return Batches(text, plans, 4, 8, 1, sampler=Sampler.of(data, text, 4, 1), **more)

    one, resumed = made(), made()
    forward = [one.indices(step) for step in range(20)]
    assert [resumed.indices(step) for step in (17, 3, 19)] == [forward[17], forward[3], forward[19]]
    halves = [made(rank=rank, world=2).batch(17)["anchor"].ids for rank in range(2)]
    assert torch.equal(torch.cat(halves), one.batch(17)["anchor"].ids)


def test_shares_are_rounded_to_the_total():
    assert shares(10, (1, 1, 1)) == [4, 3, 3]
    assert shares(17, (1, 3)) == [4, 13]
    assert shares(3, (0.9, 0.05, 0.05)) == [3, 0, 0]


def test_a_source_without_a_full_batch_is_an_error():
    with refuses("data.too_few_sentences", "'small'", "10", "11"):
        Sampler(70, 11, 0, TWO, one_source=True)


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        (["data.proportions=[1, 2]"], "recipe.conflict", ["several sources", "'dataset'"]),
        (['data.batches="one_source"'], "recipe.conflict", ["several sources"]),
        ([SOURCES, "data.proportions=[1, 2, 3]"], "recipe.invalid_value", ["2", "3"]),
        (["data.unique_in_batch=true", "data.streaming=true", "train.steps=3"], "recipe.conflict", ["streaming"]),
        (["data.weights=[1, 2]"], "recipe.unknown_key", ["weights"]),
    ],
)  # fmt: skip
def test_settings_of_a_mixture_that_do_not_fit_are_errors(values, code, named):
    with refuses(code, *named):
        load("mini/simcse_en", values)


def test_a_file_belongs_to_one_source(tmp_path):
    (tmp_path / "a.txt").write_text("x\n")
    files = (str(tmp_path / "a.txt"), str(tmp_path / "*.txt"))
    assert open_text(Data(file=files), {"text"}).rows == 1
    with refuses("data.repeated_file", "a.txt"):
        open_text(Data(file=files, batches="mixed"), {"text"})
