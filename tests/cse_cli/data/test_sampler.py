import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cse_cli.data.batches import Batches, ViewPlan
from cse_cli.data.sampler import Sampler
from cse_cli.data.sources import open_text
from cse_cli.recipe.schema import Data
from tests.cse_cli.data.vocabularies import Words
from tests.support.errors import refuses


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
    text = open_text(Data(file=str(path)), {"a", "b"})
    plans = {"anchor": ViewPlan("a", Words()), "positive": ViewPlan("b", Words())}
    made = Batches(text, plans, 2, 8, 0, unique=True)
    (notice,) = made.notices
    assert "2 of the 4 batches" in notice
    assert Batches(text, plans, 2, 8, 0).notices == ()
    with refuses("data.too_few_distinct", "4 rows"):
        Batches(text, plans, 4, 8, 0, unique=True).batch(0)


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
        return Batches(text, {"anchor": ViewPlan("text", Words())}, 4, 8, 1, unique=True, **more)

    one, resumed = made(), made()
    forward = [one.indices(step) for step in range(20)]
    assert [resumed.indices(step) for step in (17, 3, 19)] == [forward[17], forward[3], forward[19]]
    halves = [made(rank=rank, world=2).batch(17)["anchor"].ids for rank in range(2)]
    assert torch.equal(torch.cat(halves), one.batch(17)["anchor"].ids)
