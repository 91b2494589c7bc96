"""When an encoder that is fitted is fitted, and to what."""

import torch

from cse_cli.core.devices import choose
from cse_cli.evaluation.evaluate import evaluate
from cse_cli.recipe.schema import Evaluate
from registry.types import Evaluator
from tests.support.errors import refuses
from tests.support.fakes import FakeEncoder


class Fitted(FakeEncoder):
    """Counts its fits, and tells evaluators by the vectors which one was the last."""

    def __init__(self, fits):
        super().__init__()
        self.fits = fits
        self.targets = []
        self.fitting = False

    def fit(self, encode, target):
        self.fitting = True
        assert encode(["as it is"]).tolist() == [[0.0, 0.0]]
        self.fitting = False
        self.targets.append(list(target))

    def encode_for_eval(self, tokens, embeddings=None):
        return torch.zeros(tokens.rows, 2) if self.fitting else torch.full((tokens.rows, 2), float(len(self.targets)))


class Asks(Evaluator):
    metric = "seen"
    metrics = ("seen",)

    def __init__(self, *texts):
        self.own = texts

    def texts(self):
        return self.own

    def __call__(self, encode):
        return {"seen": float(encode(["a"])[0, 0])}


def scores(encoder, only=()):
    evaluators = {"one": Asks("x", "y"), "two": Asks("z")}
    found = evaluate(encoder, evaluators, Evaluate(), choose("cpu"), only)
    return {name: values["seen"] for name, values in found.items()}


def test_once_for_a_state_or_for_each_evaluator_or_never():
    once, each, never = Fitted("once"), Fitted("each"), Fitted("never")
    assert scores(once) == {"one": 1.0, "two": 1.0}
    assert once.targets == [[]]
    assert scores(each) == {"one": 1.0, "two": 2.0}
    assert each.targets == [["x", "y"], ["z"]]
    assert scores(never) == {"one": 0.0, "two": 0.0}
    assert scores(each, ["two"]) == {"two": 3.0}
    assert each.targets[2] == ["z"]


def test_an_evaluator_without_sentences_is_named():
    with refuses("evaluate.no_sentences_to_fit", "'empty'"):
        evaluate(Fitted("each"), {"empty": Asks()}, Evaluate(), choose("cpu"))


class Widths(Evaluator):
    metric = "width"
    metrics = ("width",)

    def texts(self):
        return ["x"]

    def __call__(self, encode):
        return {"width": encode(["a", "b"]).shape[1]}


def test_a_width_cuts_what_is_scored_but_not_what_is_fitted():
    whole = Fitted("each")
    scored = {"one": Widths()}
    assert evaluate(whole, scored, Evaluate(), choose("cpu"))["one"]["width"] == 2
    assert evaluate(whole, scored, Evaluate(width=1), choose("cpu"))["one"]["width"] == 1
    with refuses("evaluate.too_wide", "3", "2 dimensions"):
        evaluate(whole, scored, Evaluate(width=3), choose("cpu"))
