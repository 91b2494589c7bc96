"""A head on two processes with half of each view is the head on all rows: values, statistics and every gradient."""

import pytest
import torch
from torch import Tensor

from registry import HEADS
from registry.distributed import rank
from registry.testing.materials import WidthOnly, draw
from tests.support.processes import on_ranks

VIEWS = ("anchor", "repeated", "composed")
SETTINGS = {
    "each view by itself": ("batch_norm_elu", {"together": []}),
    "the pair views": ("batch_norm_elu", {"together": ["repeated", "composed"]}),
    "all": ("batch_norm_elu", {"together": "all"}),
    "relu": ("batch_norm_relu", {}),
    "mlp": ("batch_norm_mlp", {"blocks": 2, "expansion": 2}),
    "not synchronized": ("batch_norm_elu", {"together": [], "sync": False}),
}


def computed(setting: str, first: int = 0, stop: int = 4) -> dict[str, Tensor]:
    """Return values and gradients of some rows of each view, and the head's gradients and running statistics."""
    name, values = SETTINGS[setting]
    torch.manual_seed(0)
    head = HEADS[name].build(values)
    head.fit(6, WidthOnly(6))
    for weights in head.double().parameters():
        torch.nn.init.normal_(weights)
    rows = draw(0, 3, 4, 6).double()[:, first:stop].flatten(0, 1).requires_grad_()
    made = head(rows, [(view, stop - first) for view in VIEWS])
    made.pow(3).sum().backward()
    by_view = {
        name: value.detach().unflatten(0, (3, -1)) for name, value in (("values", made), ("gradient", rows.grad))
    }
    weights = {f"gradient of {name}": p.grad for name, p in head.named_parameters()}
    return {**by_view, **weights, **{name: buffer for name, buffer in head.named_buffers() if "running" in name}}


def halves() -> dict[str, dict[str, Tensor]]:
    """Return setting → what one of two processes computes."""
    return {setting: computed(setting, 2 * rank(), 2 * rank() + 2) for setting in SETTINGS}


@pytest.fixture(scope="module")
def ranks():
    return on_ranks(halves)


@pytest.mark.process
@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if setting != "not synchronized"])
def test_two_processes_give_what_one_does(setting, ranks):
    first, second = (found[setting] for found in ranks)
    for name, value in computed(setting).items():
        if name in ("values", "gradient"):
            together = torch.cat([first[name], second[name]], dim=1)
        elif name.startswith("gradient of "):
            together = first[name] + second[name]
        else:
            together = first[name]
            assert torch.equal(first[name], second[name])
        torch.testing.assert_close(together, value, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.process
def test_without_sync_each_process_has_separate_statistics(ranks):
    first, second = (found["not synchronized"]["norm.running_mean"] for found in ranks)
    assert not torch.allclose(first, second)
