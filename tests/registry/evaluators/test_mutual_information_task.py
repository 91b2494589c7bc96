import math

import pytest
import torch

from registry.evaluators.mutual_information import mutual_information
from registry.evaluators.mutual_information_task import MutualInformationTask
from registry.resources.catalog import Pair
from tests.support.errors import refuses

ANGLES = {"a": 0, "b": 10, "c": 90, "d": 100, "e": 200, "f": 230}
PAIRS = [
    Pair("", 5.0, "a", " b"),
    Pair("", 4.999, "e", "a"),
    Pair("", 5.0, "c ", "d"),
    Pair("", 0.0, "f", "b"),
    Pair("", 5.0, "e", "f"),
]


class Turning:
    """Sentences are angles; remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def encode_view(self, view, columns, training=False):
        self.asked.append((view, columns, training))
        radians = torch.tensor([math.radians(ANGLES[cell]) for cell in next(iter(columns.values()))])
        return torch.stack([radians.cos(), radians.sin()], dim=1)


def test_value_by_hand_of_sentences_encoded_together(pairs):
    """Pairs of 5 only: a with b, c with d. Right 10 degrees apart, wrong 100 and 80."""
    pairs(PAIRS)
    right, wrong = math.cos(math.radians(10)), (math.cos(math.radians(100)), math.cos(math.radians(80)))
    logs = [right - math.log(math.exp(right) + math.exp(one)) for one in wrong]
    found = MutualInformationTask("anchor", mi_n=2, temperature=1.0)(Turning())
    assert found["mutual_information"] == pytest.approx(math.log(2) + sum(logs) / 2, abs=1e-6)
    assert found["bound"] == math.log(2)
    encode = Turning()
    MutualInformationTask("anchor", mi_n=2)(encode)
    MutualInformationTask("other", mi_n=2, column="sentence1", training=False)(encode)
    sides = ["a", "c", "e", "b", "d", "f"]
    assert encode.asked == [("anchor", {"text": sides}, True), ("other", {"sentence1": sides}, False)]


@pytest.mark.parametrize("size", [2, 3])
def test_equals_the_bound_of_the_pairs_written_out(pairs, size):
    pairs(PAIRS)
    encode = Turning()
    sides = encode.encode_view("", {"": ["a", "c", "e"]}), encode.encode_view("", {"": ["b", "d", "f"]})
    found = MutualInformationTask("anchor", mi_n=size)(encode)
    assert found == mutual_information(*sides, size, 0.05)


def test_too_few_pairs_are_told(pairs):
    pairs([Pair("", 1.0, "a", "b"), Pair("", 0.0, "a", "c")])
    with refuses("evaluators.no_such_score", "stsb/all", 5, "set gold = 1"):
        MutualInformationTask("anchor")(Turning())
    pairs(PAIRS)
    with refuses("evaluators.too_few_rows", "stsb/all", 128, "set mi_n = 3 or less"):
        MutualInformationTask("anchor")(Turning())
