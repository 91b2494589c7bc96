"""The step is the formula: one pass an encoder, gradients where they belong, hooks in order."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cse_cli.recipe.schema import WeightSchedule
from cse_cli.training.method import BoundView, Method, StepState, Term
from registry import LOSSES
from registry.losses.adaptive_layers import AdaptiveLayers
from registry.machinery.signature import forward_inputs
from registry.tokens import Embedded, Encoded, Tokens
from registry.types import Augmenter, Labels, Loss, Negatives, Pooled, Queue, Sentences, Step
from tests.support.fakes import FakeEncoder, WordVocabulary

TEXTS = ["one small dog", "a cat sat", "trees grow slowly in winter", "run"]


class Remember(Queue):
    """A queue of everything it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Tensor] = []

    def negatives(self) -> Negatives:
        vectors = torch.cat(self.rows) if self.rows else torch.zeros(0, 8)
        return Negatives(vectors, torch.zeros(vectors.shape[0]))

    def after_step(self, step: Step) -> None:
        self.rows.append(step.sentences("anchor"))


class Sign(Augmenter):
    """One signed-gradient step of size `epsilon`."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self.seen: Tensor | None = None

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:
        self.seen = step.gradient(view)
        return Embedded(embedded.tokens, embedded.vectors + self.epsilon * self.seen.sign())


def make(
    queue: Queue | None = None, weight: float = 1.0, augmenter: Augmenter | None = None, dropout: float = 0.1
) -> Method:
    torch.manual_seed(0)
    entry = LOSSES["info_nce"]
    return Method(
        {"online": FakeEncoder(dropout=dropout)},
        {"anchor": BoundView("online", [augmenter] if augmenter else []), "positive": BoundView("online", [])},
        queue,
        {"info_nce": entry.build({})},
        {"info_nce": Term(entry, weight, {"anchor": "anchor", "positive": "positive"}, queue=True)},
    )


def step_of(method: Method, texts: list[str] = TEXTS) -> StepState:
    tokens = WordVocabulary().pad(WordVocabulary().ids(texts, 16))
    return StepState(method, dict.fromkeys(method.views, tokens), 0, 10, torch.Generator().manual_seed(0))


def test_views_share_one_pass_and_differ_by_dropout() -> None:
    method = make()
    step = step_of(method)
    method(step)
    assert method.encoder("online").passes == 1
    assert not torch.equal(step.views["anchor"].sentence, step.views["positive"].sentence)
    assert step.views["anchor"].embeddings.shape == (4, 6, 8)


def test_stacking_views_of_different_lengths_changes_nothing() -> None:
    method = make(dropout=0.0)
    step = step_of(method)
    vocabulary = WordVocabulary()
    longer = vocabulary.pad(vocabulary.ids(["a b c d e f g h i j"] * 4, 16))
    step.batch = {"anchor": step.batch["anchor"], "positive": longer}
    method(step)
    encoder = method.encoder("online")
    alone = encoder.encode(step.batch["anchor"], encoder.embed(step.batch["anchor"]))
    torch.testing.assert_close(step.views["anchor"].sentence, alone.sentence)
    assert step.views["anchor"].hidden.shape == alone.hidden.shape


def test_the_objective_is_the_weighted_sum() -> None:
    method = make(weight=0.25)
    losses = method(step_of(method))
    assert set(losses) == {"info_nce"}
    torch.testing.assert_close(method.objective(losses), 0.25 * losses["info_nce"])


def test_the_queue_serves_earlier_steps_and_can_be_left_out() -> None:
    queue = Remember()
    method = make(queue, dropout=0.0)
    first = step_of(method)
    without = method(first)["info_nce"]
    for _, component in method.components():
        component.after_step(first)
    assert queue.negatives().vectors.shape == (4, 8)
    assert not queue.negatives().vectors.requires_grad
    assert method(step_of(method))["info_nce"] > without
    method.terms["info_nce"] = Term(LOSSES["info_nce"], 1.0, method.terms["info_nce"].views, queue=False)
    torch.testing.assert_close(method(step_of(method))["info_nce"], without)


def test_the_probe_computes_the_gradient_of_the_step() -> None:
    augmenter = Sign(0.0)
    method = make(augmenter=augmenter, dropout=0.3)
    plain = make(dropout=0.3)
    torch.manual_seed(7)
    probed = method(step_of(method))["info_nce"]
    torch.manual_seed(7)
    step = step_of(plain)
    direct = plain(step)["info_nce"]
    torch.testing.assert_close(probed, direct, rtol=0, atol=0)
    (expected,) = torch.autograd.grad(direct, [step.unperturbed["anchor"]])
    assert augmenter.seen is not None
    torch.testing.assert_close(augmenter.seen, expected, rtol=0, atol=0)
    assert all(p.grad is None for p in method.parameters())


class Draw(Augmenter):
    """Zero half of all numbers, at random."""

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:
        return Embedded(embedded.tokens, embedded.vectors * (torch.rand(embedded.vectors.shape) < 0.5))


def test_the_probe_draws_again_what_an_augmenter_before_it_drew() -> None:
    sign = Sign(0.0)
    method = make(dropout=0.3)
    method.views["anchor"] = BoundView("online", [Draw(), sign])
    torch.manual_seed(4)
    step = step_of(method)
    loss = method.objective(method(step))
    (expected,) = torch.autograd.grad(loss, step.unperturbed["anchor"])
    assert sign.seen is not None
    torch.testing.assert_close(sign.seen, expected)


def test_frozen_embeddings_still_have_a_gradient_to_ask_for() -> None:
    augmenter = Sign(1e-2)
    method = make(augmenter=augmenter)
    nn.Module.requires_grad_(method.encoder("online").table, False)
    method(step_of(method))
    assert augmenter.seen is not None
    assert augmenter.seen.abs().sum() > 0


class Seen(Loss):
    """Keep what it is given."""

    def forward(self, anchor: Pooled, positive: Sentences, others: tuple[Sentences, ...]) -> Tensor:
        self.given = anchor, positive, others
        return positive.sum()


class Doubled(FakeEncoder):
    """With a head that doubles."""

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        found = super().encode(tokens, embeddings)
        return replace(found, sentence=2 * found.sentence, pooled=found.sentence)


def test_a_loss_reads_pooled_and_several_views() -> None:
    entry: Any = SimpleNamespace(inputs=forward_inputs(Seen))
    seen = Seen()
    views = {"anchor": "anchor", "positive": "anchor", "others": ("positive", "anchor")}
    method = Method(
        {"online": Doubled(dropout=0.0)},
        {"anchor": BoundView("online", []), "positive": BoundView("online", [])},
        None,
        {"seen": seen},
        {"seen": Term(entry, 1.0, views, queue=False)},
    )
    method(step_of(method))
    anchor, positive, others = seen.given
    assert torch.equal(2 * anchor, positive)
    assert [torch.equal(each, positive) for each in others] == [True, True]


def test_a_view_with_a_dropout_rate_of_its_own_is_encoded_apart() -> None:
    method = make(dropout=0.0)
    method.views["positive"] = BoundView("online", [], dropout=0.5)
    encoder = method.encoder("online")
    step = step_of(method)
    method(step)
    rates = [part.p for part in encoder.modules() if isinstance(part, nn.Dropout)]
    assert rates == [0.0] * len(rates)
    assert encoder.passes == 2
    undropped = step.unperturbed["anchor"]
    assert torch.equal(step.views["anchor"].embeddings, undropped)
    dropped = step.views["positive"].embeddings
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * undropped[kept])
    assert 0.3 < kept.float().mean() < 0.7


@pytest.mark.parametrize(
    ("shape", "share", "expected"),
    [
        ("linear", 1.0, [0.2, 0.3, 0.4, 0.5, 0.6]),
        ("cosine", 1.0, [0.2, 0.2 + 0.4 * 0.14644661, 0.4, 0.2 + 0.4 * 0.85355339, 0.6]),
        ("quarter_cosine", 0.5, [0.2, 0.2 + 0.4 * 0.29289322, 0.6, 0.6, 0.6]),
        ("exponential", 1.0, [0.2, 0.2 * 3**0.25, 0.2 * 3**0.5, 0.2 * 3**0.75, 0.6]),
    ],
)
def test_a_weight_moves_over_training(shape: str, share: float, expected: list[float]) -> None:
    method = make(weight=0.2)
    schedule = WeightSchedule(end=0.6, shape=shape, share=share)
    method.terms["info_nce"] = replace(method.terms["info_nce"], schedule=schedule)
    found = []
    for index in range(5):
        step = step_of(method)
        step.index, step.total = index, 4
        losses = method(step)
        found.append((method.objective(losses, step) / losses["info_nce"]).item())
    assert found == pytest.approx(expected, abs=1e-6)


class Deep(FakeEncoder):
    """Three layers: the sentence times one, two and three. Its head doubles them."""

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        encoded = super().encode(tokens, embeddings)
        layers = torch.stack([encoded.sentence * scale for scale in (1.0, 2.0, 3.0)], dim=1)
        return replace(encoded, sentence=self.project(layers[:, -1]), pooled=layers[:, -1], layers=layers)

    def project(self, pooled: Tensor) -> Tensor:
        return 2 * pooled


class Norms(Loss):
    """Norms of the embeddings: every layer has another one."""

    steering = frozenset({"reference"})

    def forward(self, anchor: Sentences, before: Pooled, reference: Sentences) -> Tensor:
        return (anchor.norm(dim=1) / before.norm(dim=1) * before.norm(dim=1) / reference.norm(dim=1)).mean()


def test_a_loss_of_layers_reads_each_through_the_heads() -> None:
    loss = Norms()
    wrapper = AdaptiveLayers(loss, lower_weight=2.0, alignment_weight=0.0)
    entry: Any = SimpleNamespace(inputs=forward_inputs(Norms), name="norms", cls=Norms)
    views = {"anchor": "anchor", "before": "anchor", "reference": "other"}
    method = Method(
        {"online": Deep(dropout=0.0)},
        {"anchor": BoundView("online", []), "other": BoundView("online", [])},
        None,
        {"norms": loss, "layers": wrapper},
        {"layers": Term(entry, 1.0, views, queue=False)},
    )
    assert method.views_by_layer == {"anchor"}
    value = method(step_of(method))
    # Norms of the anchor in proportion to its last layer: 1, then 1/3 and 2/3, which weigh 2/2 each.
    assert value["layers"].item() == pytest.approx(1 + 1 / 3 + 2 / 3, abs=1e-5)


class Labeled(Loss):
    """The labels times the first entries of the embeddings."""

    def forward(self, anchor: Sentences, label: Labels) -> Tensor:
        return (anchor[:, 0] * label).sum()


def test_labels_come_from_the_column_of_the_term() -> None:
    entry: Any = SimpleNamespace(inputs=forward_inputs(Labeled), name="labeled", cls=Labeled)
    method = Method(
        {"online": FakeEncoder(dropout=0.0)},
        {"anchor": BoundView("online", [])},
        None,
        {"labeled": Labeled()},
        {"labeled": Term(entry, 1.0, {"anchor": "anchor"}, queue=False, column="rating")},
    )
    step = step_of(method)
    labels = torch.tensor([1.0, 0.0, 2.0, 0.5])
    step.batch = {"anchor": replace(step.batch["anchor"], numbers={"rating": labels, "other": -labels})}
    value = method(step)["labeled"]
    assert value.item() == pytest.approx((step.views["anchor"].sentence[:, 0] * labels).sum().item(), abs=1e-6)
