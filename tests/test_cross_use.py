"""Any part with any other: each cross recipe takes steps, and what it borrows really acts."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import resolve
from cse_cli.training.method import Method, Term
from cse_cli.training.step import StepState
from tests.support.chosen import these
from tests.support.shrunken import Small

FOLDER = Path(__file__).resolve().parent.parent / "recipes"
CROSS = {
    "cross/ifcl_focal": "ifcl_en",
    "cross/mocose_focal": "mocose_en",
    "cross/simcse_hippocampus": "simcse_en",
    "cross/conisi_queue": "conisi_s_en",
    "cross/conisi_fgsm": "conisi_s_en",
}
"""Recipe → the method that borrows."""
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
        self.batches = Batches(text, built.plans, 4, built.recipe.data.max_length, 7)
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

    def without_queue(self) -> dict[str, Tensor]:
        """Return the next step's losses as they were with an empty queue."""
        kept = dict(self.method.terms)
        self.method.terms = {k: Term(t.entry, t.weight, t.views, queue=False) for k, t in kept.items()}
        try:
            return self.look()[1]
        finally:
            self.method.terms = kept


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


def test_every_cross_recipe_is_here_and_has_a_mini_version():
    names = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("cross/*.toml")}
    assert names == {*CROSS, *(f"mini/{name}" for name in CROSS)}


@pytest.mark.parametrize("name", these(CROSS, [*CROSS, *(f"mini/{name}" for name in CROSS)]))
def test_steps_change_what_is_trained(name, parts):
    training = Training(name, parts)
    before = {k: p.detach().clone() for k, p in training.method.named_parameters() if p.requires_grad}
    losses = [training.go() for _ in range(3)]
    assert all(torch.isfinite(torch.tensor(list(step.values()))).all() for step in losses)
    after = dict(training.method.named_parameters())
    moved = sum(not torch.equal(before[k], after[k]) for k in before)
    assert moved > 0.8 * len(before)  # a key's bias in attention, for one, has no gradient


@pytest.mark.parametrize(("name", "parent"), CROSS.items())
def test_the_mini_version_borrows_the_same(name, parent):
    """What a cross recipe changes in its method, its mini version changes in the mini method: by component."""

    def parts_of(recipe):
        tables = load(recipe).recipe.resolved()
        queue = {("queue", tables["queue"]["name"])} if "queue" in tables else set()
        losses = {(f"losses.{k}", part["name"]) for k, part in tables["losses"].items()}
        views = {(f"views.{k}", tuple(a["name"] for a in view["augment"])) for k, view in tables["views"].items()}
        return queue | losses | views

    borrowed = parts_of(name) ^ parts_of(parent)
    assert borrowed
    assert borrowed == parts_of(f"mini/{name}") ^ parts_of(f"mini/{parent}")


@pytest.mark.parametrize(
    ("name", "anchor", "terms"),
    [
        ("cross/ifcl_focal", "anchor", {"identical": ("identical", True), "fraternal": ("fraternal", False)}),
        ("cross/mocose_focal", "query", {"focal_info_nce": ("key", True)}),
    ],
)
def test_focal_loss_over_batch_and_queue(name, anchor, terms, parts):
    """Both losses of IFCL, and MoCoSE's, are eq. 2 over what that method calls negatives, with the queue's weights."""
    training = Training(name, parts)
    for _ in range(3):
        training.go()
    step, losses = training.look()
    vectors, weights = held(training)
    assert len(vectors) == LENGTH
    for label, (view, queue) in terms.items():
        seen = (step.views[anchor].sentence.double(), step.views[view].sentence.double())
        old = (vectors, weights) if queue else NOTHING
        assert losses[label].item() == pytest.approx(literal(*seen, *old, focal, 0.07), abs=1e-4)
        assert abs(losses[label].item() - literal(*seen, *old, plain, 0.07)) > 1e-2


def test_focal_loss_in_ifcl_reads_the_forgetting_weights(parts):
    faint, strong = (Training("cross/ifcl_focal", parts, [f"queue.forgetting_rate={rate}"]) for rate in (0.4, 0.002))
    for training in (faint, strong):
        training.go()
    assert held(faint)[1].tolist() == pytest.approx([0.6] * 4)
    assert held(strong)[1].tolist() == pytest.approx([0.998] * 4)
    assert faint.look()[1]["identical"] < strong.look()[1]["identical"]
    assert faint.look()[1]["fraternal"] == strong.look()[1]["fraternal"]


def test_the_hippocampus_queue_in_simcse(parts):
    """At first there is nothing in it, and SimCSE's loss is SimCSE's; then its entries count with 1 − λ, 1 − 2λ."""
    training, alone = Training("cross/simcse_hippocampus", parts), Training("simcse_en", parts)
    assert training.go() == alone.go()
    for _ in range(2):
        training.go()
    vectors, weights = held(training)
    assert weights.tolist() == pytest.approx([0.996] * 2 + [0.998] * 4)
    step, losses = training.look()
    seen = step.views["anchor"].sentence.double(), step.views["positive"].sentence.double()
    assert losses["info_nce"].item() == pytest.approx(literal(*seen, vectors, weights, plain, 0.05), abs=1e-4)
    assert losses["info_nce"] > training.without_queue()["info_nce"]


def test_a_queue_beside_conisis_interaction(parts):
    """The contrastive term has further negatives, repeated pairs of earlier steps; the interaction is left alone."""
    training, alone = Training("cross/conisi_queue", parts), Training("conisi_s_en", parts)
    assert training.go() == alone.go()
    repeated = training.look()[0].views["repeated"].sentence
    training.go()
    vectors, weights = held(training)
    torch.testing.assert_close(vectors[-4:], F.normalize(repeated.double(), dim=-1), rtol=0, atol=1e-6)
    assert (weights == 1).all()
    step, losses = training.look()
    seen = step.views["anchor"].sentence.double(), step.views["repeated"].sentence.double()
    assert losses["info_nce"].item() == pytest.approx(literal(*seen, vectors, weights, plain, 0.05), abs=1e-4)
    without = training.without_queue()
    assert losses["info_nce"] > without["info_nce"]
    assert losses["interaction"] == without["interaction"]


def test_fgsm_in_conisi(parts):
    """Anchor and positive move by ε against the whole objective, the composed pair does not."""
    epsilon = 1e-3
    settings = ["views.anchor.augment.0.epsilon", "views.repeated.augment.1.epsilon"]
    moved, still = (
        Training("cross/conisi_fgsm", parts, [f"{path}={rate}" for path in settings]) for rate in (epsilon, 0.0)
    )
    step, losses = moved.look()
    other, unmoved = still.look()
    for view, distance in (("anchor", epsilon), ("repeated", epsilon), ("composed", 0.0)):
        change = (step.embedded[view].vectors - other.embedded[view].vectors).double()
        real = step.embedded[view].tokens.mask.bool()
        assert change[real].abs().max().item() == pytest.approx(distance, rel=1e-3)
        direction = other.gradient(view).sign()[real]
        if distance:
            assert (change[real].sign() == direction).double().mean() > 0.99
    assert moved.method.objective(losses) > still.method.objective(unmoved)
    assert losses["interaction"] != unmoved["interaction"]


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
