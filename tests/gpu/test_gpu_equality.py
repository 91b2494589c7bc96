"""Every method computes the same on a GPU as on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.gpu import equality
from tests.support.shrunken import Small

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():  # before `recipes` reads many files
    pytest.skip("no GPU here", allow_module_level=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Tiny models without dropout."""
    return equality.parts(tmp_path_factory.mktemp("equality"))


@pytest.mark.parametrize("recipe", equality.recipes())
def test_first_ten_losses_on_a_gpu(recipe: str, plain: Small) -> None:
    found = equality.compared(recipe, plain, "cuda")
    assert found["holds"], found


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_tiny_training_on_a_gpu_ends_with_finite_losses(precision: str, tmp_path: Path) -> None:
    from benchmarks.training import material
    from benchmarks.training.cse_steps import CseSteps

    text, parallel = material.write_text("generated", tmp_path, 100)
    model = material.write_model("tiny", tmp_path / "model", None, text, 0.1)
    one = CseSteps(material.Setting(model, text, parallel, 16, precision=precision, device="cuda"), "simcse_en")
    losses = one.steps(4)
    one.close()
    assert all(0 < loss < 10 for loss in losses)
