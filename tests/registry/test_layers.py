"""Constants of the layers of every head and loss, next to the code that has them: norms and initial weights.

The comparisons with code in `registry/papers/audits/` read these lines.
"""

import pytest
import torch
from torch import Tensor, nn

from registry import HEADS, LOSSES
from registry.heads.batch_norm import EPSILON, BatchNorm
from registry.machinery.core import Entry
from registry.testing import Materials
from registry.types import Head
from tests.registry.test_contracts import VALUES
from tests.support.tiny import tiny_bert

MODEL = 3e-7
"""ε of the encoder's own layer norms, which no library has as its default."""
BERT = "dense N(0, 0.02²), bias 0"
LOADED = "dense checkpoint, bias checkpoint"
TORCH = "dense torch, bias torch"
NORM = "layer norm ε model, affine"
EXPECTED = {
    "heads/batch_norm_elu": {"batch norm ε 1e-05, affine", BERT},  # conisi.md: no code
    "heads/batch_norm_mlp": {"batch norm ε 1e-05, affine", TORCH},  # SG-BERT; torch's defaults
    "heads/batch_norm_relu": {  # DiffCSE @f724b2c, diffcse/models.py:42-46
        "batch norm ε 1e-05, affine", "batch norm ε 1e-05, plain", "dense N(0, 0.02²), no bias",
    },
    "heads/feed_forward": {TORCH},
    "heads/mlp": {BERT},  # SimCSE @49fa580, simcse/models.py:28, and `_init_weights` of BertPreTrainedModel
    "heads/pooler": {LOADED},
    "heads/predictor": {BERT, NORM},  # MoCoSE @45cbc81, mocose.py:88
    "heads/projection": {BERT, NORM},  # MoCoSE @45cbc81, mocose.py:59,63
    "heads/pseudo_tokens": {TORCH},
    "losses/denoising": {BERT, NORM, "layer norm ε 1e-05, affine"},  # DenoSent @35d05f5, model.py:20,29-44
    "losses/interaction": {BERT},
    "losses/masked_language_modeling": {BERT, NORM},
    "losses/reconstruction": {BERT, NORM},
    "losses/replaced_token_detection": {LOADED, NORM, TORCH},
    "losses/side_language_model": {BERT, LOADED, NORM},
}  # fmt: skip
"""Component → its layers. A component that is missing has no dense layer and no norm."""


def initial(values: Tensor | None, weight: Tensor) -> str:
    """Name the distribution of initial values. That of torch is uniform, that of the random checkpoint has σ = 0.3."""
    if values is None:
        return "none"
    if not values.any():
        return "0"
    numbers = weight.detach().double()
    deviation, normal = numbers.std().item(), (numbers.abs().max() > 2 * numbers.std()).item()
    if deviation > 0.2:
        return "checkpoint"
    return f"N(0, {deviation:.2f}²)" if normal else "torch"


def layers(part: nn.Module) -> set[str]:
    """Describe the layers of a module."""
    found = set()
    for module in part.modules():
        match module:
            case nn.Linear(weight=weight, bias=None):
                found.add(f"dense {initial(weight, weight)}, no bias")
            case nn.Linear(weight=weight, bias=bias):
                # A bias of 64 numbers has no exact deviation, so its name is that of the weight or "0".
                found.add(f"dense {initial(weight, weight)}, bias {initial(bias, weight)}")
            case nn.LayerNorm(eps=eps, elementwise_affine=affine):
                found.add(f"layer norm ε {'model' if eps == MODEL else f'{eps:g}'}, {'affine' if affine else 'plain'}")
            case BatchNorm(weight=weight):
                found.add(f"batch norm ε {EPSILON:g}, {'plain' if weight is None else 'affine'}")
    return found


@pytest.fixture(scope="module")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    model = tiny_bert(tmp_path_factory.mktemp("models"), width=64, layer_norm_eps=MODEL)
    return Materials(model=model, values=VALUES)


@pytest.mark.parametrize("entry", [*HEADS, *LOSSES], ids=lambda entry: f"{entry.kind}/{entry.name}")
def test_layers_are_those_of_the_code(entry: Entry, materials: Materials) -> None:
    torch.manual_seed(0)
    part = materials.build(entry)
    if isinstance(part, Head):
        part.fit(64, materials.encoder)
    assert (layers(part) if isinstance(part, nn.Module) else set()) == EXPECTED.get(f"{entry.kind}/{entry.name}", set())
