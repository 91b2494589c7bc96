from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cse_cli.data.batches import ViewPlan
from cse_cli.data.stream import Stream, open_stream
from cse_cli.recipe.schema import Data
from registry.errors import CseError
from tests.cse_cli.data.vocabularies import Shuffles, Words
from tests.support.errors import refuses

SIZES = (7, 30, 1, 22, 14)


def shards(folder, sizes=SIZES, kind="parquet"):
    """Write numbered sentences, some of them blank, and return the glob of their files."""
    folder.mkdir(parents=True, exist_ok=True)
    row = 0
    for number, size in enumerate(sizes):
        text = [f"sentence s{i}" for i in range(row, row + size)]
        other = [f"satz d{i}" for i in range(row, row + size)]
        path = folder / f"part-{number}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.table({"text": [*text, " "], "translation": [*other, "x"]}), path, row_group_size=5)
        elif kind == "tsv":
            lines = zip(["text", *text, ""], ["translation", *other, "x"], strict=True)
            path.write_text("".join(f"{a}\t{b}\n" for a, b in lines))
        else:
            path.write_text("".join(f"{line}\n" for line in [*text, ""]))
        row += size
    return str(folder / f"*.{kind}")


def stream(file, batch_size=4, seed=0, buffer=10, columns=("text",), plan=None, **more):
    text = open_stream(Data(file=file, streaming=True, shuffle_buffer=buffer), set(columns))
    plan = plan or ViewPlan("text", Words())
    return Stream(text, {"anchor": plan}, batch_size, 8, seed, **more)


def epoch(made, number=0):
    return [cell for block in made.rows(number) for cell in block["text"]]


def all_rows(sizes=SIZES):
    return sorted(f"sentence s{i}" for i in range(sum(sizes)))


@pytest.mark.parametrize("kind", ["parquet", "txt", "tsv"])
@pytest.mark.parametrize("buffer", [2, 1000])
def test_an_epoch_has_every_row_once_in_an_order_of_its_own(tmp_path, kind, buffer):
    made = stream(shards(tmp_path, kind=kind), buffer=buffer)
    first, second = epoch(made), epoch(made, 1)
    assert sorted(first) == sorted(second) == all_rows()
    assert first != second
    assert first == epoch(stream(shards(tmp_path, kind=kind), buffer=buffer))
    assert first != epoch(stream(shards(tmp_path, kind=kind), buffer=buffer, seed=1))


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("sizes", [SIZES, (10, 11, 12, 13, 14, 15), (40,)])
def test_processes_see_different_rows_which_together_are_all(tmp_path, world, sizes):
    """Six shards go evenly to 2 and 3 processes; the others read every shard and keep every n-th row."""
    file = shards(tmp_path, sizes)
    each = [epoch(stream(file, world * 2, rank=rank, world=world)) for rank in range(world)]
    assert sorted(row for rows in each for row in rows) == all_rows(sizes)
    assert all(each)


def ids(batch):
    return [batch["anchor"].ids, *(side.ids for side in batch["anchor"].side.values())]


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(ids(a), ids(b), strict=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("buffer", [7, 1000])
def test_a_resumed_stream_gives_the_batches_of_an_unbroken_one(tmp_path, world, buffer):
    """At every step of two and a half epochs."""
    file, columns = shards(tmp_path), ("text", "translation")
    plan = ViewPlan("text", Words(), side={"translation": Words("de")}, augmenters=[Shuffles()])

    def made(rank):
        return stream(file, 2 * world, 3, buffer, columns, plan, rank=rank, world=world)

    steps = 5 * sum(SIZES) // (4 * world)
    unbroken = [made(rank) for rank in range(world)]
    states, batches = [], []
    for step in range(steps):
        states.append([each.state() for each in unbroken])
        batches.append([each.batch(step) for each in unbroken])
    for step in range(0, steps, 1 if world == 1 else 5):
        for rank in range(world):
            again = made(rank)
            again.load_state(step, states[step])
            for later in range(step, min(step + 5, steps)):
                assert equal(again.batch(later), batches[later][rank])


@pytest.mark.exhaustive
@settings(deadline=None, max_examples=15)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    buffer=st.integers(2, 50),
    world=st.integers(1, 3),
    stop=st.integers(0, 40),
    seed=st.integers(0, 9),
)
def test_any_stream_goes_on_at_any_step_as_if_it_had_not_stopped(sizes, buffer, world, stop, seed, tmp_path_factory):
    file = shards(tmp_path_factory.mktemp("shards"), sizes)
    share = max(1, sum(sizes) // (10 * world))
    for rank in range(world):
        try:
            whole = stream(file, share * world, seed, buffer, rank=rank, world=world)
            batches = [whole.batch(step) for step in range(stop + 3)]
        except CseError:  # too little data, which another test is of
            continue
        first = stream(file, share * world, seed, buffer, rank=rank, world=world)
        for step in range(stop):
            first.batch(step)
        again = stream(file, share * world, seed, buffer, rank=rank, world=world)
        again.load_state(stop, [first.state()] * world)
        assert all(equal(again.batch(step), batches[step]) for step in range(stop, stop + 3))


def test_views_share_tokens_and_columns_have_the_same_rows(tmp_path):
    plan = ViewPlan("text", Words(), side={"translation": Words("de")})
    made = stream(shards(tmp_path), columns=("text", "translation"), plan=plan)
    block = next(made.rows(0))
    batch = made.batch(0)["anchor"]
    expected = Words().pad(Words().ids(block["text"][:4], 8))
    assert torch.equal(batch.ids, expected.ids)
    side = Words("de").ids([row.replace("sentence s", "satz d") for row in block["text"][:4]], 8)
    assert torch.equal(batch.side["translation"].ids, Words().pad(side).ids)


def test_batches_follow_the_rows_and_drop_the_rest_of_an_epoch(tmp_path):
    made = stream(shards(tmp_path), 10)
    words = Words()
    for number in range(2):
        rows = iter(epoch(made, number))
        for step in range(7):
            expected = words.pad(words.ids(list(islice(rows, 10)), 8))
            assert torch.equal(made.batch(7 * number + step)["anchor"].ids, expected.ids)


def test_steps_come_in_turn_or_anew(tmp_path):
    made = stream(shards(tmp_path))
    first = made.batch(0)
    made.batch(1)
    assert equal(made.batch(0), first)
    with pytest.raises(ValueError, match="at step 1, not 5"):
        made.batch(5)


def test_too_little_data_is_told(tmp_path):
    with refuses("data.too_few_sentences", 80):
        stream(shards(tmp_path), 80).batch(0)
    made = stream(shards(tmp_path), 74)
    made.batch(0)
    made.batch(1)
    with refuses("data.too_few_sentences", 40, 2):
        stream(shards(tmp_path), 80, rank=1, world=2).batch(0)
    with refuses("data.uneven_batch", 5, 2):
        stream(shards(tmp_path), 5, world=2)


def test_changed_processes_or_shards_are_errors(tmp_path):
    file = shards(tmp_path)
    made = stream(file)
    with refuses("data.other_process_count", "1 processes", "across 2"):
        made.load_state(0, [made.state(), made.state()])
    shards(tmp_path, (*SIZES, 3))
    with refuses("data.changed_shards"):
        stream(file).load_state(0, [made.state()])


def test_what_cannot_be_streamed_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("text\na\n")
    with refuses("data.not_streamable", "t.csv"):
        stream(str(tmp_path / "t.csv"))
    with refuses("data.not_streamable", "'graded_pairs/train'"):
        open_stream(Data(dataset=("graded_pairs",), streaming=True), {"text"})
    (tmp_path / "t.tsv").write_text("text\ttranslation\na\tb\nc\n")
    with refuses("data.malformed_row", "t.tsv", "1 cell"):
        stream(str(tmp_path / "t.tsv"), 2).batch(0)


@pytest.mark.data
def test_a_data_set_of_the_catalog_is_streamed():
    text = open_stream(Data(dataset=("wiki1m_prefix",), streaming=True), {"text"})
    made = Stream(text, {"anchor": ViewPlan("text", Words())}, 4, 8, 0)
    assert len(epoch(made)) == 11914
