import pytest

from registry.evaluators.sts import Sts
from registry.evaluators.sts_average import StsAverage
from registry.resources import catalog
from registry.resources.catalog import Pair
from tests.registry.evaluators.points import by_angle

SETS = {
    "stsb": [Pair("", 3.0, "a", "b"), Pair("", 2.0, "a", "c"), Pair("", 1.0, "a", "d")],  # as the cosines: 100
    # Gold ranks 1 3 2, cosine ranks 3 2 1: −50.
    "sickr": [Pair("x", 1.0, "a", "b"), Pair("x", 3.0, "a", "c"), Pair("y", 2.0, "a", "d")],
}


@pytest.fixture
def asked(monkeypatch):
    """Serve these sets instead of the catalog's; return what is asked for."""
    found = []
    monkeypatch.setattr(catalog, "read_pairs", lambda name, split: found.append((name, split)) or SETS[name])
    monkeypatch.setattr(catalog, "fingerprint", lambda name, split: f"digest of {name} {split}")
    return found


def test_value_by_hand_of_traceable_sets(asked):
    scores = StsAverage(["stsb", "sickr"], "dev")(by_angle)
    assert scores["spearman"] == pytest.approx((100 - 50) / 2)
    assert asked == [("stsb", "dev"), ("sickr", "dev")]
    assert set(scores) == {"spearman", "pearson"}
    asked.clear()
    digests = StsAverage(["stsb", "sickr"], "dev").fingerprints()
    assert digests == {"stsb/dev": "digest of stsb dev", "sickr/dev": "digest of sickr dev"}
    assert asked == []


@pytest.mark.parametrize("aggregate", ["all", "mean", "wmean"])
def test_it_is_the_mean_of_the_single_ones(asked, aggregate):
    singles = [Sts(name, "dev", aggregate)(by_angle) for name in ("stsb", "sickr", "stsb")]
    together = StsAverage(["stsb", "sickr", "stsb"], "dev", aggregate)(by_angle)
    for metric, value in together.items():
        assert value == sum(one[metric] for one in singles) / 3
    assert len(asked) == 6
