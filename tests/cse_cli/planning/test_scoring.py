"""Times of evaluations: extended by hand, and measured with planted evaluators."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.planning.scoring import Part, measure_scoring, whole
from cse_cli.recipe.load import load
from cse_cli.training.build import resolve
from registry.errors import CseError
from registry.types import Evaluator
from tests.support.shrunken import recipe


def test_one_part_is_proportional():
    assert whole([Part(sentences=64, encoding=2.0, rest=0.5)], 640) == pytest.approx(25.0)


@pytest.mark.parametrize(("rests", "expected"), [((1, 4), 40), ((1, 16), 1600), ((1, 1), 1), ((1, 999), 99_900)])
def test_the_rest_grows_by_its_own_power(rests, expected):
    # 16 → 64 → 640 sentences: the rest is linear, quadratic, constant, and at most quadratic.
    parts = [Part(16, 0.0, rests[0]), Part(64, 0.0, rests[1])]
    assert whole(parts, 640) == pytest.approx(expected)


def test_a_fit_is_proportional_to_its_texts():
    assert whole([Part(10, 1.0, 0.0, texts=20, fitting=3.0)], 10, texts=60) == pytest.approx(1.0 + 9.0)


class Planted(Evaluator):
    """Evaluator of `rows` sentences that takes a second for 100 rows, on a planted clock."""

    metric: ClassVar[str] = "score"

    def __init__(self, clock, rows, first="row"):
        self.clock, self.rows, self.first, self.calls = clock, rows, first, []

    def __call__(self, encode):
        count = min(self.rows, self.limit or self.rows)
        self.calls.append(count)
        encode([f"{self.first} {place}" for place in range(count)])
        self.clock[0] += count / 100
        return {"score": 0.0}


class Stubborn(Planted):
    """Evaluator that ignores the limit."""

    def __call__(self, encode):
        self.calls.append(self.rows)
        encode([f"row {place}" for place in range(self.rows)])
        raise AssertionError("it was not stopped")


class Needy(Planted):
    """Evaluator that needs 100 rows."""

    def __call__(self, encode):
        if (self.limit or self.rows) < 100:
            raise CseError("too few rows", "use more", code="evaluators.too_few_rows")
        return super().__call__(encode)


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves by a hundredth of a second for each encoded sentence."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def encoded(self, sentences, side, prompts):
        now[0] += 0.01 * len(sentences)
        return torch.zeros(len(sentences), 4)

    monkeypatch.setattr(SentenceEncoder, "__call__", encoded)
    return now


def measured(evaluators, seconds=1000.0):
    encoder = SimpleNamespace(fits="never", max_length=64, dim=4)
    settings = SimpleNamespace(batch_tokens=None, max_length=64, view=None, encoder="online")
    experiment = SimpleNamespace(
        scored=encoder, recipe=SimpleNamespace(evaluate=settings), evaluators=evaluators, plans={}
    )
    return measure_scoring(experiment, choose("cpu", "fp32"), seconds)


def test_the_whole_is_found_from_parts(clock):
    evaluator = Planted(clock, 5000)
    found = measured({"one": evaluator})
    assert found.each == {"one": pytest.approx(50 + 50)}  # encoding and the rest
    assert found.together == pytest.approx(100)
    assert evaluator.calls == [5000, 5000, 32, 32, 128, 512]  # stopped before it encodes the whole
    assert evaluator.limit is None


def test_shared_sentences_are_encoded_once_together(clock):
    found = measured({"one": Planted(clock, 5000), "same": Planted(clock, 5000), "other": Planted(clock, 1000, "new")})
    assert found.each == {"one": pytest.approx(100), "same": pytest.approx(100), "other": pytest.approx(20)}
    assert found.together == pytest.approx(100 + 50 + 20)


def test_time_limits_the_parts(clock):
    evaluator = Planted(clock, 5000)
    measured({"one": evaluator}, seconds=2.0)
    assert evaluator.calls[2:] == [32, 32]


def test_an_evaluator_that_ignores_the_limit_is_stopped_and_named(clock):
    found = measured({"one": Planted(clock, 100), "stubborn": Stubborn(clock, 5000)})
    assert found.unmeasured == ("evaluator stubborn",)
    assert found.each["stubborn"] == 0.0


def test_an_evaluator_that_needs_more_rows_gets_them(clock):
    evaluator = Needy(clock, 1000)
    assert measured({"one": evaluator}).each["one"] == pytest.approx(20)
    assert min(evaluator.calls[2:]) == 128


def test_a_limit_of_the_recipe_stays(clock):
    evaluator = Planted(clock, 5000)
    evaluator.limit = 40
    assert measured({"one": evaluator}).each["one"] == pytest.approx(0.8)
    assert (evaluator.limit, max(evaluator.calls)) == (40, 40)


@pytest.mark.usefixtures("few_pairs")
def test_real_evaluators_of_a_fitted_encoder(tmp_path, parts):
    path = recipe(tmp_path, parts)
    text = path.read_text().replace(
        "[views.anchor]", '[encoders.white]\nname = "whitening"\nof = "online"\nfit_on = "target"\n[views.anchor]'
    )
    path.write_text(text.replace("[evaluate]\n", '[evaluate]\nencoder = "white"\n'))
    experiment = resolve(load(str(path)).recipe, 0)
    found = measure_scoring(experiment, choose("cpu", "fp32"), 0.1)
    assert found.unmeasured == ()
    assert 0 < found.each["dev"] < 60
    assert found.together == pytest.approx(found.each["dev"])
