"""ConIsI on two processes of 8 sentences is ConIsI on one of 16: statistics, scores and every gradient."""

from __future__ import annotations

from random import Random

import pytest
import torch

from cse_cli.training.method import BoundView, Method, Term
from cse_cli.training.step import StepState
from registry import AUGMENTERS, ENCODERS, HEADS, LOSSES
from registry.distributed import rank
from registry.tokens import Sample
from tests.support.processes import on_ranks
from tests.support.tiny import sentences, tiny_bert

ROWS = 16
SETTINGS = {
    "each view by itself": ("batch_norm_elu", {"together": []}, "scalar"),
    "the pair views": ("batch_norm_elu", {"together": ["repeated", "composed"]}, "elementwise"),
    "all": ("batch_norm_elu", {"together": "all"}, "two_class"),
    "relu": ("batch_norm_relu", {}, "scalar"),
}


def conisi(model: str, setting: str, sync: bool = True) -> Method:
    """Return ConIsI-s without dropout, in double precision so that 1e-5 tells errors from rounding."""
    torch.manual_seed(0)
    name, values, score = SETTINGS[setting]
    encoder = ENCODERS["transformer"].build({"model": model, "dropout": 0.0})
    encoder.attach({"head": HEADS[name].build({**values, "sync": sync})})
    views = {"anchor": [], "repeated": ["self"], "composed": ["other"]}
    bound = {
        view: BoundView("online", [AUGMENTERS["pair"].build({"partner": partner}) for partner in partners])
        for view, partners in views.items()
    }
    losses = {
        "info_nce": LOSSES["info_nce"].build({"temperature": 0.5}),
        "interaction": LOSSES["interaction"].build({"head": score}, {"online": encoder}),
    }
    for layer in [*encoder.heads.modules(), *losses["interaction"].modules()]:
        if isinstance(layer, torch.nn.Linear):
            torch.nn.init.normal_(layer.weight, std=0.3)
    terms = {
        "info_nce": Term(LOSSES["info_nce"], 0.2, {"anchor": "anchor", "positive": "repeated"}, queue=True),
        "interaction": Term(LOSSES["interaction"], 0.8, {"same": "repeated", "different": "composed"}, queue=True),
    }
    return Method({"online": encoder}, bound, None, losses, terms).double()


def step_of(method: Method, place: int = 0, world: int = 1) -> StepState:
    """Return the step of one process: text hooks see the whole batch, as in training."""
    vocabulary, share = method.encoder("online").vocabulary, ROWS // world
    batch = {}
    for name, view in method.views.items():
        samples, rng = [Sample(text) for text in sentences(ROWS, seed=5)], Random(name)
        for augmenter in view.augmenters:
            samples = augmenter.on_text(samples, rng)
        batch[name] = vocabulary.tokens(samples[place * share : (place + 1) * share], 16)
    return StepState(method, batch, 0, 10, torch.Generator().manual_seed(0))


def computed(method: Method, step: StepState, forward: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return gradients of all parameters, running statistics, and the loss."""
    loss = method.objective(forward(step))
    loss.backward()
    found = {f"gradient of {name}": p.grad for name, p in method.named_parameters() if p.grad is not None}
    statistics = {name: buffer for name, buffer in method.named_buffers() if "running" in name}
    return {**found, **statistics, "loss": loss.detach()}


def of_each(model: str) -> dict[str, dict[str, torch.Tensor]]:
    """Return setting → what one of two processes computes."""
    found = {}
    for setting in SETTINGS:
        method = conisi(model, setting)
        parallel = torch.nn.parallel.DistributedDataParallel(
            method, broadcast_buffers=False, find_unused_parameters=True
        )
        found[setting] = computed(method, step_of(method, rank(), 2), parallel)
    alone = conisi(model, "each view by itself", sync=False)
    found["not synchronized"] = computed(alone, step_of(alone, rank(), 2), alone)
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_bert(tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="module")
def ranks(model):
    return on_ranks(of_each, model)


@pytest.mark.process
@pytest.mark.parametrize("setting", SETTINGS)
def test_two_processes_give_the_gradient_of_one_big_batch(setting, model, ranks):
    method = conisi(model, setting)
    expected = computed(method, step_of(method), method)
    names = {name.removeprefix("gradient of ") for name in expected}
    assert "losses.interaction.linear.weight" in names
    assert any(name.startswith("encoders.online.heads") for name in names)
    for found in ranks:
        assert found[setting].keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[setting][name], value, rtol=1e-5, atol=1e-9, msg=name)


@pytest.mark.process
def test_without_sync_each_process_has_separate_statistics(model, ranks):
    method = conisi(model, "each view by itself")
    whole = computed(method, step_of(method), method)
    mean = "encoders.online.heads.head.norm.running_mean"
    first, second = (found["not synchronized"][mean] for found in ranks)
    assert not torch.allclose(first, second)
    torch.testing.assert_close((first + second) / 2, whole[mean])
