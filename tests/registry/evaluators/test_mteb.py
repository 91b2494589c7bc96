import importlib.util
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from registry import EVALUATORS
from registry.errors import MissingError
from registry.evaluators.mteb import MtebModel, preserve_random_state
from registry.evaluators.pairs import cosines
from registry.statistics import correlations
from registry.testing.contracts import _sum_of_words
from registry.testing.materials import PlainEncode
from tests.registry.evaluators.points import Points
from tests.support import mteb_task
from tests.support.errors import refuses
from tests.support.tiny import sentences

words = PlainEncode(_sum_of_words)


def build(task, **values):
    return EVALUATORS["mteb"].build({"task": task, **values})


def test_a_missing_package_is_said_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refuses("evaluators.no_package", "'STSBenchmark'", 'pip install "mteb') as caught:
        build("STSBenchmark")
    assert isinstance(caught.value, MissingError)


def test_texts_of_all_batches_are_encoded_in_order_and_at_once_and_images_refused():
    asked = []

    def encode(texts, side, prompts):
        asked.append((list(texts), side, prompts))
        return torch.tensor([[len(text), 1.0] for text in texts])

    about = {
        "task_metadata": SimpleNamespace(name="x", type="Retrieval"),
        "prompt_type": SimpleNamespace(value="query"),
    }
    made = MtebModel(encode, "x").encode([{"text": ["a", "bbb"]}, {"text": ["cc"]}], **about)
    assert asked == [(["a", "bbb", "cc"], "query", ["x-query", "x", "Retrieval-query", "Retrieval"])]
    assert isinstance(made, np.ndarray)
    assert made.tolist() == [[1, 1], [3, 1], [2, 1]]
    with refuses("evaluators.not_texts", "'Pictures'", "image, label"):
        MtebModel(words, "Pictures").encode([{"image": [0], "label": [1]}])


def test_similarities_by_hand():
    first, second = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 5.0]], dtype=np.float32)
    model = MtebModel(words, "x")
    torch.testing.assert_close(model.similarity(first, second), torch.tensor([[0.6, 0.8], [0.0, 1.0]]))
    torch.testing.assert_close(model.similarity_pairwise(first, second), torch.tensor([0.6, 1.0]))
    torch.testing.assert_close(model.similarity(first[0], second), torch.tensor([[0.6, 0.8]]))


@pytest.mark.parametrize("fails", [False, True])
def test_random_numbers_go_on_as_if_nothing_had_been_drawn(fails):
    def draws():
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    wanted = draws()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    try:
        with preserve_random_state():
            random.seed(9), np.random.seed(9), torch.manual_seed(9)
            assert draws() != wanted
            if fails:
                raise OSError
    except OSError:
        assert fails
    assert draws() == wanted


def test_main_score_by_hand(monkeypatch):
    name = mteb_task.serve(monkeypatch)
    vectors = {
        "a red cat": (1.0, 0.0), "the red cat": (2.0, 0.0),  # cosine 1
        "a small dog": (3.0, 4.0), "a big dog": (0.0, 1.0),  # 0.8
        "a woman sings": (0.0, 1.0), "the street": (1.0, 0.0),  # 0
        "two houses": (6.0, 8.0),  # 0.6 with the red cat
    }  # fmt: skip
    # Ranks of gold 4 3 2 1, of cosines 4 3 1 2: 1 − 6·(1 + 1)/(4·15) = 0.8.
    assert build(name)(Points(vectors)) == pytest.approx({"main_score": 80.0})


@pytest.mark.parametrize("size", [3, 10, 40])
def test_agrees_with_our_own_correlation(size, monkeypatch):
    left, right = sentences(size, seed=1), sentences(size, seed=2)
    gold = torch.rand(size, generator=torch.Generator().manual_seed(size)).mul(5).tolist()
    name = mteb_task.serve(monkeypatch, list(zip(left, right, gold, strict=True)))
    wanted = 100 * correlations(gold, cosines(words(left), words(right)))["spearman"]
    assert build(name)(words)["main_score"] == pytest.approx(wanted, abs=1e-4)


def test_an_undefined_score_is_zero_and_the_fingerprint_a_revision(monkeypatch):
    name = mteb_task.serve(monkeypatch)
    assert build(name)(lambda texts, *_: torch.ones(len(texts), 3)) == {"main_score": 0.0}
    assert build(mteb_task.serve(monkeypatch)).fingerprints() == {"mteb FewPairs/test": "0123abc"}


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({"task": "FewPears"}, "evaluators.unknown_task", "'FewPairs'"),
        ({"task": "FewPairs", "split": "tset"}, "data.unknown_split", "Did you mean 'test'?"),
        ({"task": "FewPairs", "languages": ["deu"]}, "evaluators.unknown_language", "'FewPairs'"),
        ({"task": "FewPairs", "languages": ["english"]}, "evaluators.unknown_language", "english"),
    ],
)
def test_wrong_names(values, code, named, monkeypatch):
    mteb_task.serve(monkeypatch)
    with refuses(code, named):
        build(**values).fingerprints()


def test_a_task_of_a_benchmark_has_its_splits(monkeypatch):
    name = mteb_task.serve(monkeypatch)
    benchmark = mteb_task.serve_benchmark(monkeypatch)
    assert build(name, benchmark=benchmark)(words) == build(name)(words)
    with refuses("evaluators.unknown_task", "'MTEB(few, v1)'", "'STS12'"):
        build("STS12", benchmark=benchmark)(words)


@pytest.mark.parametrize("ask", [lambda each: each(words), lambda each: each.fingerprints()], ids=["call", "before"])
def test_data_that_cannot_be_fetched(ask, monkeypatch):
    name = mteb_task.serve(monkeypatch)
    import mteb

    def unreachable(self, **_):
        raise ConnectionError("Couldn't reach 'tests/few' on the Hub")

    monkeypatch.setattr(type(mteb.get_task(name)), "load_data", unreachable)
    with refuses("evaluators.missing_data", "get_task('FewPairs').load_data()") as caught:
        ask(build(name))
    assert isinstance(caught.value, MissingError)
