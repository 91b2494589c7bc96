"""What the GPU suite compares methods with, on a CPU: single and double precision."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu import equality
from tests.support.shrunken import Small

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(("gap", "expected"), [(1e-5, True), (1e-3, True), (2e-3, False)])
def test_rounding_is_told_from_an_error(
    gap: float, expected: bool, plain: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losses(*_: Any, double: bool = False, draw: int = 0) -> list[float]:
        return [1.0 + (gap if double else 1.5e-3 * draw / equality.DRAWS)]

    monkeypatch.setattr(equality, "losses", losses)
    assert equality.compared("simcse_en", plain, "cpu")["holds"] is expected


def test_a_few_rounding_errors_change_the_losses_a_little(plain: Small) -> None:
    ours, other = (equality.losses("simcse_en", plain, "cpu", draw=draw) for draw in (0, 1))
    assert 0 < max(abs(a - b) for a, b in zip(ours, other, strict=True)) < 1e-5
