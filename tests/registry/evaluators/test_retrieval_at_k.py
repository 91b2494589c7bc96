"""Retrieval on the user's own pairs: worked by hand, against a slow literal version, and in any order."""

import math
import random

import pytest
import torch

from registry import EVALUATORS
from registry.evaluators import retrieval_at_k
from registry.evaluators.retrieval_at_k import RetrievalAtK, ranks
from registry.resources import catalog
from tests.registry.evaluators.points import on_circle
from tests.support.errors import refuses

by_angle = on_circle(q1=0, q2=90, q3=50, a=10, b=40, c=85, d=100, e=55)


def own(tmp_path, rows, head="query\tpositive", name="pairs.tsv"):
    path = tmp_path / name
    path.write_text(f"{head}\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def literal(pairs, similarity):
    """Return the metrics written out: wrong candidates as near as a right answer stand before it."""
    candidates = list(dict.fromkeys(second for _, second in pairs))
    recalls, reciprocal = {1: [], 5: [], 10: []}, []
    for query in dict.fromkeys(first for first, _ in pairs):
        right = {second for first, second in pairs if first == query}
        wrong = [c for c in candidates if c not in right and c != query]
        nearest_first = sorted(right, key=lambda answer: -similarity(query, answer))
        found = [
            place + sum(similarity(query, other) >= similarity(query, answer) - 1e-6 for other in wrong)
            for place, answer in enumerate(nearest_first, start=1)
        ]
        for k, values in recalls.items():
            values.append(len([rank for rank in found if rank <= k]) / len(right))
        reciprocal.append(1 / min(found))
    means = {f"recall_at_{k}": 100 * sum(values) / len(values) for k, values in recalls.items()}
    return {**means, "mrr": 100 * sum(reciprocal) / len(reciprocal)}


def test_value_by_hand(tmp_path):
    # Angles to the candidates a 10, b 40, c 85, d 100, e 55:
    # q1 at 0 wants a, the nearest: rank 1. q2 at 90 wants d at 10, c at 5 is nearer: rank 2.
    # q3 at 50 wants b at 10 (rank 2, e at 5 is nearer) and c at 35 (then rank 3; a is at 40).
    file = own(tmp_path, [("q1", "a"), ("q2", "d"), ("q3", "b"), ("q3", "c"), ("q1", "a")])
    extra = own(tmp_path, [("q1", "a"), ("q2", "d"), ("q3", "b"), ("q3", "c"), ("e", "e")], name="with_e.tsv")
    found = RetrievalAtK(file=extra)(by_angle)
    # e asks for itself: rank 1. Recall at 1: (1 + 0 + 0 + 1) / 4; the reciprocals 1, 1/2, 1/2, 1.
    assert found == pytest.approx({"recall_at_1": 50.0, "recall_at_5": 100.0, "recall_at_10": 100.0, "mrr": 75.0})
    # Without e, q3 finds b first and c second: half its answers at 1.
    found = RetrievalAtK(file=file)(by_angle)
    assert found["recall_at_1"] == pytest.approx(100 * (1 + 0 + 1 / 2) / 3)
    assert found["mrr"] == pytest.approx(100 * (1 + 1 / 2 + 1) / 3)


def test_reciprocal_ranks_and_bm25(tmp_path):
    file = own(tmp_path, [("q1", "a"), ("q2", "d"), ("q3", "b"), ("q3", "c")])
    evaluator = RetrievalAtK(file=file)
    assert evaluator.series() == {}
    found = evaluator(by_angle)
    assert evaluator.series() == {"reciprocal_rank": pytest.approx([1, 1 / 2, 1]), "answer": [0, 1, -3]}
    assert found["mrr"] == pytest.approx(100 * sum(evaluator.series()["reciprocal_rank"]) / 3)
    rows = [("red cat", "a red cat sleeps"), ("dog", "the dog is red"), ("bird", "nothing in common"), ("sun", "x")]
    # "red" and "cat" find theirs, "dog" finds its own, and without a common word every candidate is as near.
    overlap = RetrievalAtK(file=own(tmp_path, rows)).word_overlap()
    assert overlap["mrr"] == pytest.approx(100 * (1 + 1 + 1 / 4 + 1 / 4) / 4)


def test_pairs_below_min_score_and_queries_are_candidates(tmp_path):
    rows = [("5", "q1", "b"), ("1", "q1", "a"), ("0", "q2", "c"), ("4", "q3", "e")]
    file = own(tmp_path, rows, head="score\tquery\tpositive")
    # q1 wants b at 40 but a at 10 is nearer: rank 2. q2 has no right answer and is not asked. q3 wants e: rank 1.
    assert RetrievalAtK(file=file, min_score=4.0)(by_angle)["mrr"] == pytest.approx(75.0)
    with refuses("evaluators.no_such_score", 6, "min_score = 5"):
        RetrievalAtK(file=file, min_score=6.0)
    # b asks for c and a asks for b, so b stands among the candidates with cosine 1 to itself.
    file = own(tmp_path, [("b", "c"), ("a", "b")])
    assert RetrievalAtK(file=file)(by_angle)["recall_at_1"] == 100.0


@pytest.mark.parametrize("vectors", [torch.ones, torch.zeros], ids=["collapsed", "zero"])
def test_ties_go_against_the_model(tmp_path, vectors):
    file = own(tmp_path, [(f"q{i}", f"a{i}") for i in range(20)])
    found = RetrievalAtK(file=file)(lambda sentences, side: vectors(len(sentences), 3))
    assert found == pytest.approx({"recall_at_1": 0.0, "recall_at_5": 0.0, "recall_at_10": 0.0, "mrr": 5.0})


def test_a_tie_is_what_a_float_cannot_tell(tmp_path):
    near = {"q": 0.0, "right": 10.0, "wrong": 10.0 + 1e-4}  # its cosine is 3e-7 less
    file = own(tmp_path, [("q", "right"), ("right", "wrong")])

    def encode(sentences, side, angles=near):
        radians = torch.tensor([math.radians(angles[s]) for s in sentences], dtype=torch.float64)
        return torch.stack([radians.cos(), radians.sin()], dim=1)

    assert RetrievalAtK(file=file)(encode)["recall_at_1"] == 50.0  # "right" finds "wrong"
    apart = {**near, "wrong": 10.0 + 1e-2}
    assert RetrievalAtK(file=file)(lambda sentences, side: encode(sentences, side, apart))["recall_at_1"] == 100.0


def made(size, queries, seed):
    """Return pairs with repeated queries and answers, and vectors some of which are equal."""
    rng = random.Random(seed)
    pairs = [(f"s{rng.randrange(queries)}", f"s{rng.randrange(size)}") for _ in range(size)]
    draws = torch.randint(0, 4, (size + queries, 3), generator=torch.Generator().manual_seed(seed)).double() - 1.5

    def encode(sentences, side):
        return draws[[int(s[1:]) for s in sentences]].float()

    def similarity(one, other):
        left, right = draws[int(one[1:])], draws[int(other[1:])]
        return float(left @ right / (left.norm() * right.norm()))

    return pairs, encode, similarity


@pytest.mark.parametrize(("size", "blocks"), [(3, (1, 1)), (10, (3, 7)), (40, (1, 1)), (40, (1024, 4096))])
@pytest.mark.slow
def test_matches_the_definition_written_out(tmp_path, monkeypatch, size, blocks):
    monkeypatch.setattr(retrieval_at_k, "ANSWERS", blocks[0])
    monkeypatch.setattr(retrieval_at_k, "CANDIDATES", blocks[1])
    for seed in range(3):
        pairs, encode, similarity = made(size, max(2, size // 3), seed)
        if len({second for _, second in pairs}) < 2:
            continue
        found = RetrievalAtK(file=own(tmp_path, pairs))(encode)
        assert found == pytest.approx(literal(pairs, similarity), abs=1e-9)


def test_each_side_is_encoded_in_one_call_and_nan_is_far(tmp_path):
    calls = []

    def encode(sentences, side):
        calls.append((side, list(sentences)))
        return torch.randn(len(sentences), 4)

    file = own(tmp_path, [("a  b", "c"), ("a b", "d"), ("c", " a\u00a0b")])
    evaluator = RetrievalAtK(file=file)
    evaluator(encode)
    assert calls == [("query", ["a b", "c"]), ("document", ["c", "d", "a b"])]
    assert evaluator.texts() == ["c", "d", "a b"]
    vectors = {"q": [1.0, 0.0], "a": [1.0, 0.2], "b": [math.nan, math.nan], "r": [0.0, 1.0]}
    file = own(tmp_path, [("q", "a"), ("r", "b")])
    found = RetrievalAtK(file=file)(lambda sentences, side: torch.tensor([vectors[s] for s in sentences]))
    assert found["recall_at_1"] == 50.0  # q finds a; for r, b is at 0 and a at 0.2


@pytest.mark.slow
def test_memory_is_bounded():
    """Of 2,048 queries and 20,000 candidates no more cosines are held at once than the blocks have."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(20_000, 2, generator=generator)
    seen = []

    class Watched(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                seen.append(result.numel())
            return result

    right = [[i] for i in range(2048)]
    with Watched():
        found = ranks(vectors[:2048], vectors, right, [[] for _ in right])
    assert [each[0] for each in found[:3]] == [each[0] for each in ranks(vectors[:3], vectors, right[:3], [[], [], []])]
    assert max(seen) <= retrieval_at_k.ANSWERS * retrieval_at_k.CANDIDATES


def test_columns_of_a_data_set():
    evaluator = RetrievalAtK(
        dataset="stsb_open", split="dev", query_column="sentence1", positive_column="sentence2", min_score=4.5
    )
    rows = catalog.read_pairs("stsb_open", "dev")
    asked = {" ".join(pair.first.split()) for pair in rows if pair.score >= 4.5}
    assert set(evaluator.texts()) == asked | {" ".join(pair.second.split()) for pair in rows}
    found = evaluator(lambda sentences, side: torch.zeros(len(sentences), 3))
    assert found["recall_at_1"] == pytest.approx(0.0)
    assert evaluator.fingerprints() == {"stsb_open/dev": catalog.fingerprint("stsb_open", "dev")}


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({}, "data.dataset_or_file", "retrieval_at_k"),
        ({"dataset": "stsb", "file": "a.tsv"}, "data.dataset_or_file", "'a.tsv'"),
        ({"file": "nowhere.tsv"}, "data.missing_file", "nowhere.tsv"),
    ],
)
def test_invalid_values_are_refused(values, code, named):
    with refuses(code, named):
        EVALUATORS["retrieval_at_k"].build(values)


def test_a_wrong_column_suggests_the_right_one_and_one_candidate_is_no_choice(tmp_path):
    with refuses("data.missing_column", "pairs.tsv:1", "'query'", "Did you mean 'queries'?"):
        RetrievalAtK(file=own(tmp_path, [("a", "b")], head="queries\tpositive"))
    wrong = RetrievalAtK(dataset="stsb_open", split="dev", query_column="sentence", positive_column="sentence2")
    with refuses("data.missing_column", "'stsb_open/dev'", "'sentence'", "set `query_column`"):
        wrong.texts()
    with refuses("evaluators.one_candidate", "retrieval_at_k"):
        RetrievalAtK(file=own(tmp_path, [("a", "b"), ("c", "b")]))
