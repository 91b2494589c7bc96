import importlib.util

import pytest
import torch
import torch.nn.functional as F

from cse_cli.mining.mine import as_rows
from cse_cli.mining.negatives import Filters, check_search, find_negatives
from registry.errors import MissingError
from tests.support.errors import refuses

ANCHORS, CORPUS, WIDTH = 40, 90, 5


def at(*cosines):
    """Return unit vectors with these cosines to the first axis."""
    first = torch.tensor(cosines)
    return torch.stack([first, (1 - first.square()).sqrt()], dim=1)


def found(filters, corpus, positives=((0,),), **more):
    made = find_negatives(at(1.0), corpus, positives, filters, **more)
    return made.rows.tolist()[0], made


CANDIDATES = at(0.8, 0.9, 0.78, 0.7, 0.5, 0.1)
"""Cosines with the anchor. Row 0 is the positive."""


@pytest.mark.parametrize(
    ("filters", "rows", "skipped"),
    [
        ({}, [1, 2], {}),
        ({"range_min": 1}, [2, 3], {}),
        ({"max_score": 0.75}, [3, 4], {"max_score": 2}),
        ({"absolute_margin": 0.05}, [3, 4], {"absolute_margin": 2}),
        ({"relative_margin": 0.2}, [4, 5], {"relative_margin": 3}),  # at most 0.64
        ({"relative_margin": 0.0, "range_min": 1}, [3, 4], {"relative_margin": 1}),
        ({"min_score": 0.6, "max_score": 0.75}, [3, -1], {"max_score": 2, "min_score": 2}),
        ({"range_max": 2, "absolute_margin": 0.05}, [-1, -1], {"absolute_margin": 2}),
    ],
)
def test_filters_by_hand(filters, rows, skipped):
    chosen, made = found(Filters(num_negatives=2, **filters), CANDIDATES)
    assert (chosen, made.skipped) == (rows, skipped)
    assert made.positive_scores[0].tolist() == pytest.approx([0.8])
    expected = [CANDIDATES[row, 0].item() if row >= 0 else -torch.inf for row in rows]
    assert made.scores[0].tolist() == pytest.approx(expected)


def test_the_margin_is_that_of_the_lowest_positive_and_an_anchor_is_not_its_own_negative():
    assert found(Filters(2, absolute_margin=0.05), CANDIDATES, ((0, 3),))[0] == [4, 5]
    assert found(Filters(2), CANDIDATES, same=((1,),))[0] == [2, 3]


def test_random_negatives_pass_the_filters_and_depend_on_the_seed():
    chosen = [
        found(Filters(2, range_max=5, max_score=0.85, sampling="random", seed=seed), CANDIDATES)[0]
        for seed in range(20)
    ]
    assert {row for rows in chosen for row in rows} == {2, 3, 4, 5}
    assert all(rows == sorted(rows) for rows in chosen)
    assert chosen[3] == found(Filters(2, range_max=5, max_score=0.85, sampling="random", seed=3), CANDIDATES)[0]


def test_a_range_without_enough_candidates_is_an_error():
    with refuses("mining.range_too_small", "--range-min 3", "--range-max 4", "--range-max 23"):
        Filters(num_negatives=2, range_min=3, range_max=4)


def random_pairs():
    torch.manual_seed(0)
    corpus = torch.randn(CORPUS, WIDTH)
    positives = [[place, *([place + ANCHORS] if place % 3 == 0 else [])] for place in range(ANCHORS)]
    return F.normalize(corpus[:ANCHORS] + 0.4 * torch.randn(ANCHORS, WIDTH), dim=1), corpus, positives


def test_blocks_do_not_change_the_result(monkeypatch):
    arguments = (*random_pairs(), Filters(4, absolute_margin=0.1))
    whole = find_negatives(*arguments)
    monkeypatch.setattr("cse_cli.mining.negatives.CELLS", 7 * CORPUS)
    blocks = find_negatives(*arguments)
    assert torch.equal(whole.rows, blocks.rows)
    assert whole.skipped == blocks.skipped


def test_faiss_finds_the_same_or_is_asked_for_by_name():
    arguments = (*random_pairs(), Filters(4, absolute_margin=0.1))
    if importlib.util.find_spec("faiss") is None:
        with pytest.raises(MissingError, match="faiss is not installed"):
            check_search("faiss")
    else:
        assert torch.equal(find_negatives(*arguments, search="faiss").rows, find_negatives(*arguments).rows)


class Teacher:
    """The interface of a `SentenceTransformer` that `mine_hard_negatives` reads, for vectors in memory."""

    device = torch.device("cpu")

    def __init__(self, vectors):
        self.vectors = vectors

    def encode_query(self, texts, **_):
        return F.normalize(torch.stack([self.vectors[text] for text in texts]), dim=1).numpy()

    encode_document = encode_query

    def similarity(self, queries, corpus):
        return torch.as_tensor(queries) @ torch.as_tensor(corpus).T

    def similarity_pairwise(self, queries, corpus):
        return (torch.as_tensor(queries) * torch.as_tensor(corpus)).sum(dim=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["triplet", "n-tuple"])
@pytest.mark.parametrize(
    "filters",
    [
        {}, {"range_min": 3}, {"range_max": 6, "absolute_margin": 0.2}, {"relative_margin": 0.05, "range_min": 1},
        {"max_score": 0.5, "min_score": 0.1}, {"absolute_margin": -0.1, "relative_margin": 0.1, "max_score": 0.8},
        {"range_max": 90},
    ],
)  # fmt: skip
def test_sentence_transformers_mines_the_same_negatives(form, filters):
    datasets, util = pytest.importorskip("datasets"), pytest.importorskip("sentence_transformers.util")
    anchors, corpus, positives = random_pairs()
    texts, candidates = [f"a{place}" for place in range(ANCHORS)], [f"c{place}" for place in range(CORPUS)]
    pairs = [(texts[place], candidates[row]) for place, rows in enumerate(positives) for row in rows]
    teacher = Teacher({**dict(zip(texts, anchors, strict=True)), **dict(zip(candidates, corpus, strict=True))})
    theirs = util.mine_hard_negatives(
        datasets.Dataset.from_dict({"anchor": [one for one, _ in pairs], "positive": [other for _, other in pairs]}),
        teacher, corpus=candidates, num_negatives=4, output_format=form, verbose=False, **filters,
    )  # fmt: skip
    made = find_negatives(anchors, corpus, positives, Filters(4, **filters))
    ours = as_rows(texts, positives, candidates, made, form)
    assert ours
    assert ours == [tuple(row.values()) for row in theirs]
