"""What the GPU suite compares methods with, on a CPU: single and double precision."""

from __future__ import annotations

import pytest

from benchmarks.gpu import equality
from tests.support.shrunken import Small


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Tiny models without dropout."""
    return equality.parts(tmp_path_factory.mktemp("equality"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("recipe", ["simcse_en", "ifcl_en", "mocose_en"])
def test_double_precision_changes_losses_by_rounding(recipe: str, plain: Small) -> None:
    found = equality.compared(recipe, plain, "cpu")
    assert found["largest"] < 1e-6
    assert len(set(found["cpu"])) == equality.STEPS  # it trains: no two losses are alike


def test_another_rate_of_learning_is_found_out(plain: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = equality.losses("simcse_en", plain, "cpu")
    monkeypatch.setattr("cse_cli.training.optimizer.LearningRate.__call__", lambda *_: 1e-2)
    other = equality.losses("simcse_en", plain, "cpu")
    assert max(abs(a - b) for a, b in zip(ours, other, strict=True)) > 1e-3
