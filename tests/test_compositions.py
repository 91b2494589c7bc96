"""Any part with any other: what a composition borrows really acts."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import resolve
from cse_cli.training.method import Method, StepState
from tests.support.shrunken import Small

LENGTH = 6
"""Of every queue here: one batch of 4 and half of the one before."""


class Training:
    """A tiny version of a recipe, dropout off, taking steps; weights are the same for the same encoder and seed."""

    def __init__(self, recipe: str, parts: Small, changes: list[str] | None = None) -> None:
        shrunk, dropped = parts.options(load(recipe).recipe)
        built = resolve(load(recipe, [*shrunk, *(changes or [])], dropped).recipe, seed=5)
        self.method: Method = built.method.double().train()
        for module in self.method.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        text = open_text(built.recipe.data, built.columns)
        self.batches = Batches(text, built.specs, 4, built.recipe.data.max_length, 7)
        self.optimizer = torch.optim.SGD([p for p in self.method.parameters() if p.requires_grad], lr=0.02)
        self.index = 0

    def look(self) -> tuple[StepState, dict[str, Tensor]]:
        """Return the step that comes next, computed, and its losses; nothing moves."""
        step = StepState(self.method, self.batches.batch(self.index), self.index, 10, torch.Generator().manual_seed(3))
        return step, self.method(step)

    def go(self) -> dict[str, float]:
        """Take a step; return its losses."""
        step, losses = self.look()
        self.method.objective(losses).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        for _, component in self.method.components():
            component.after_step(step)
        self.index += 1
        return {label: loss.item() for label, loss in losses.items()}


def literal(anchor: Tensor, positive: Tensor, queue: Tensor, weights: Tensor, score: Callable[[float, bool], float],
            temperature: float) -> float:  # fmt: skip
    """Return the mean of −log of the positive's share, pair by pair; `score` of a cosine, and whether it is i's own."""
    total = 0.0
    for i, one in enumerate(anchor.detach()):
        batch = [score(cosine(one, other), i == j) / temperature for j, other in enumerate(positive.detach())]
        earlier = [score(cosine(one, other), False) / temperature for other in queue]
        share = sum(map(exp, batch)) + sum(float(w) * exp(s) for w, s in zip(weights, earlier, strict=True))
        total += log(share) - batch[i]
    return total / len(anchor)


def cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


def focal(similarity: float, own: bool) -> float:
    return similarity**2 if own else similarity * (similarity + 0.3)


def plain(similarity: float, own: bool) -> float:
    return similarity


def held(training: Training) -> tuple[Tensor, Tensor]:
    """Return the queue's vectors and weights."""
    assert training.method.queue is not None
    negatives = training.method.queue.negatives()
    return negatives.vectors.double(), negatives.log_weights.double().exp()


NOTHING = torch.zeros(0, 16, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)


@pytest.fixture
def composed(tmp_path: Path) -> str:
    """Return the recipe that docs/compose.md writes: IFCL with the loss of Focal-InfoNCE."""
    page = (Path(__file__).resolve().parent.parent / "docs" / "compose.md").read_text(encoding="utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]
    path = tmp_path / "my_ifcl.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_focal_loss_over_batch_and_queue(composed, parts):
    """Both losses are eq. 2 over what IFCL calls negatives, with the queue's weights, and every step moves weights."""
    training = Training(composed, parts)
    before = {k: p.detach().clone() for k, p in training.method.named_parameters() if p.requires_grad}
    for _ in range(3):
        training.go()
    after = dict(training.method.named_parameters())
    assert sum(not torch.equal(before[k], after[k]) for k in before) > 0.8 * len(before)  # a key's bias has no gradient
    step, losses = training.look()
    vectors, weights = held(training)
    assert len(vectors) == LENGTH
    for view, (vectors_, weights_) in {"identical": (vectors, weights), "fraternal": NOTHING}.items():
        seen = (step.views["anchor"].sentence.double(), step.views[view].sentence.double())
        found = losses[view].item()
        assert found == pytest.approx(literal(*seen, vectors_, weights_, focal, 0.07), abs=1e-4)
        assert abs(found - literal(*seen, vectors_, weights_, plain, 0.07)) > 1e-2


@pytest.mark.slow
def test_focal_loss_reads_the_forgetting_weights(composed, parts):
    faint, strong = (Training(composed, parts, [f"queue.forgetting_rate={rate}"]) for rate in (0.4, 0.002))
    for training in (faint, strong):
        training.go()
    assert held(faint)[1].tolist() == pytest.approx([0.6] * 4)
    assert held(strong)[1].tolist() == pytest.approx([0.998] * 4)
    assert faint.look()[1]["identical"] < strong.look()[1]["identical"]
    assert faint.look()[1]["fraternal"] == strong.look()[1]["fraternal"]


@pytest.mark.slow
def test_a_momentum_encoder_in_place_of_ifcls_queue(parts):
    """Figure 4c: the identical twin comes from a slow copy, without gradient, and no earlier sentence is a negative."""
    training = Training("ifcl_en_momentum", parts, ["encoders.target.decay=0.5"])
    assert training.method.queue is None
    plain_ifcl = Training("ifcl_en", parts)
    found, expected = training.look()[1], plain_ifcl.look()[1]  # equal weights, no dropout, and the queue is empty
    assert {k: v.item() for k, v in found.items()} == pytest.approx({k: v.item() for k, v in expected.items()})
    online, target = (
        dict(training.method.encoder(name).named_parameters(remove_duplicate=False)) for name in ("online", "target")
    )
    key = "backbone.encoder.layer.0.attention.self.query.weight"
    start = online[key].detach().clone()
    training.go()
    assert target[f"target.{key}"].grad is None
    assert not torch.equal(online[key], start)
    torch.testing.assert_close(target[f"target.{key}"], (start + online[key]) / 2)
    step, losses = training.look()
    assert not step.views["identical"].sentence.requires_grad
    assert step.views["fraternal"].sentence.requires_grad
    seen = step.views["anchor"].sentence.double(), step.views["identical"].sentence.double()
    assert losses["identical"].item() == pytest.approx(literal(*seen, *NOTHING, plain, 0.05), abs=1e-4)
