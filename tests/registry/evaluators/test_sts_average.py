import math

import pytest
import torch

from registry import EVALUATORS
from registry.evaluators.sts import Sts
from registry.evaluators.sts_average import StsAverage
from registry.resources import catalog
from registry.resources.catalog import Pair

ANGLES = {"a": 0, "b": 10, "c": 25, "d": 50, "e": 85, "f": 120}
SETS = {
    "stsb": [Pair("", 3.0, "a", "b"), Pair("", 2.0, "a", "c"), Pair("", 1.0, "a", "d")],  # as the cosines: 100
    # Gold ranks 1 3 2, cosine ranks 3 2 1: −50.
    "sickr": [Pair("x", 1.0, "a", "b"), Pair("x", 3.0, "a", "c"), Pair("y", 2.0, "a", "d")],
}


def by_angle(sentences):
    radians = torch.tensor([math.radians(ANGLES[s]) for s in sentences])
    return torch.stack([radians.cos(), radians.sin()], dim=1)


@pytest.fixture
def asked(monkeypatch):
    """Serve these sets instead of the catalog's; return what is asked for."""
    found = []
    monkeypatch.setattr(catalog, "read_pairs", lambda name, split: found.append((name, split)) or SETS[name])
    monkeypatch.setattr(catalog, "fingerprint", lambda name, split: f"digest of {name} {split}")
    return found


def test_value_by_hand(asked):
    scores = StsAverage(["stsb", "sickr"], "dev")(by_angle)
    assert scores["spearman"] == pytest.approx((100 - 50) / 2)
    assert asked == [("stsb", "dev"), ("sickr", "dev")]
    assert set(scores) == {"spearman", "pearson"}


@pytest.mark.parametrize("aggregate", ["all", "mean", "wmean"])
def test_it_is_the_mean_of_the_single_ones(asked, aggregate):
    singles = [Sts(name, "dev", aggregate)(by_angle) for name in ("stsb", "sickr", "stsb")]
    together = StsAverage(["stsb", "sickr", "stsb"], "dev", aggregate)(by_angle)
    for metric, value in together.items():
        assert value == sum(one[metric] for one in singles) / 3
    assert len(asked) == 6


def test_every_set_is_traceable(asked):
    digests = StsAverage(["stsb", "sickr"], "dev").fingerprints()
    assert digests == {"stsb/dev": "digest of stsb dev", "sickr/dev": "digest of sickr dev"}
    assert asked == []


def test_one_set_at_least():
    with pytest.raises(Exception, match="at least 1"):
        EVALUATORS["sts_average"].build({"datasets": []})
