import copy
import math
from types import SimpleNamespace

import pytest
import torch

from cse_cli.training.method import BoundView, Method, StepState, Term
from registry import LOSSES
from registry.augmenters.fgsm import Fgsm, describe_loss, share_changed, share_coarse
from registry.encoders.ema import Ema
from registry.encoders.transformer import TransformerEncoder
from registry.machinery.signature import Input
from registry.tokens import Embedded, Encoded, Tokens
from registry.types import Encoder, Loss
from tests.support.errors import refuses
from tests.support.fakes import FakeEncoder, WordVocabulary
from tests.support.tiny import sentences, tiny_bert


class Linear(Encoder):
    """Sentence = sum of its token vectors: a loss on it has a gradient one can write down."""

    def __init__(self):
        super().__init__()
        self.dim = self.width = 2
        self.vocabulary = WordVocabulary()
        self.table = torch.nn.Embedding(32, 2)

    def embed(self, tokens):
        return self.table(tokens.ids)

    def encode(self, tokens, embeddings):
        sentence = (embeddings * tokens.mask.unsqueeze(-1)).sum(1)
        return Encoded(sentence, embeddings, embeddings, tokens)


class Weighed(Loss):
    """L = 3·Σᵢ anchorᵢ₀ − Σᵢ positiveᵢ₁²."""

    def forward(self, anchor, positive):
        return 3 * anchor[:, 0].sum() - positive[:, 1].square().sum()


INPUTS = SimpleNamespace(inputs=[Input(name, "sentences", optional=False) for name in ("anchor", "positive")])


def linear_method(**augmenters):
    views = {name: BoundView("online", augmenters.get(name, [])) for name in ("anchor", "positive")}
    terms = {"weighed": Term(INPUTS, 1.0, {"anchor": "anchor", "positive": "positive"}, False)}
    torch.manual_seed(0)
    return Method({"online": Linear()}, views, None, {"weighed": Weighed()}, terms)


def method_of(encoders, views, temperature=0.05):
    entry = LOSSES["info_nce"]
    terms = {"info_nce": Term(entry, 1.0, {"anchor": "query", "positive": "key"}, True)}
    return Method(encoders, views, None, {"info_nce": entry.build({"temperature": temperature})}, terms)


def step_of(method, texts=("ab c", "d"), index=0, length=32):
    encoder = method.encoder("online")
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(list(texts), length))
    return StepState(method, dict.fromkeys(method.views, tokens), index, 10, torch.Generator().manual_seed(index))


def run(method, step):
    """One training step without an optimizer."""
    method.objective(method(step)).backward()
    for _, component in method.components():
        component.after_step(step)


def test_exact_equals_the_gradient_by_hand():
    """∂L/∂anchor = (3, 0) at real tokens; ∂L/∂positive = (0, −2·Σ) there; nothing at padding."""
    method = linear_method(anchor=[Fgsm(0.25)], positive=[Fgsm(0.25)])
    step = step_of(method)
    method(step)
    plain, mask = step.unperturbed["positive"].detach(), step.batch["anchor"].mask.unsqueeze(-1)
    moved = {view: step.embedded[view].vectors.detach() - plain for view in ("anchor", "positive")}
    assert torch.allclose(moved["anchor"], 0.25 * mask * torch.tensor([1.0, 0.0]))
    sums = (plain * mask).sum(1)[:, 1]
    expected = -0.25 * sums.sign()[:, None, None] * mask * torch.tensor([0.0, 1.0])
    assert torch.allclose(moved["positive"], expected)


def test_stale_uses_the_previous_batch_at_the_same_place():
    """By hand as above, from the batch before; its places are cut or filled to the new batch's shape."""
    method = linear_method(anchor=[fgsm := Fgsm(0.25, "stale")])
    first, second = step_of(method, ["ab c d", "e"]), step_of(method, ["f", "g h", "i j k l m"], index=1)
    run(method, first)
    assert torch.equal(first.embedded["anchor"].vectors, first.unperturbed["anchor"])
    assert torch.equal(fgsm.previous, 3.0 * first.batch["anchor"].mask.unsqueeze(-1) * torch.tensor([1.0, 0.0]))
    method(second)
    moved = (second.embedded["anchor"].vectors - second.unperturbed["anchor"]).detach()
    expected = torch.zeros(3, 6, 2)
    expected[:2, :4, 0] = 0.25 * first.batch["anchor"].mask
    assert torch.allclose(moved, expected, atol=1e-6)
    third = step_of(method, ["n"], index=2)
    run(method, second)
    method(third)
    moved = third.embedded["anchor"].vectors - third.unperturbed["anchor"]
    assert torch.allclose(moved, torch.tensor([0.25, 0.0]), atol=1e-6)


def test_stale_takes_another_views_gradient_and_not_that_of_another_augmenters_probe():
    method = linear_method(anchor=[], positive=[fgsm := Fgsm(0.25, "stale", of="anchor")])
    step = step_of(method)
    run(method, step)
    assert torch.equal(fgsm.previous, 3.0 * step.batch["anchor"].mask.unsqueeze(-1) * torch.tensor([1.0, 0.0]))
    late = linear_method(anchor=[Fgsm(0.25, "stale", of="positive")])
    with refuses("augmenters.late_view", "'positive'", "[views.positive]"):
        late(step_of(late))
    method = linear_method(anchor=[fgsm := Fgsm(0.25, "stale")], positive=[Fgsm(0.25)])
    run(method, step := step_of(method))
    assert torch.equal(fgsm.previous, 3.0 * step.batch["anchor"].mask.unsqueeze(-1) * torch.tensor([1.0, 0.0]))
    assert fgsm._sources == []


def test_exact_takes_another_views_gradient_and_knows_the_views():
    method = linear_method(positive=[Fgsm(0.25, of="anchor")])
    step = step_of(method)
    method(step)
    moved = step.embedded["positive"].vectors - step.unperturbed["positive"]
    assert torch.allclose(moved, 0.25 * step.batch["anchor"].mask.unsqueeze(-1) * torch.tensor([1.0, 0.0]))
    early = linear_method(anchor=[Fgsm(0.25, of="positive")])
    early(step := step_of(early))
    assert (step.embedded["anchor"].vectors - step.unperturbed["anchor"])[..., 1].any()
    wrong = linear_method(positive=[Fgsm(0.25, of="ancor")])
    with refuses("training.unknown_view", "'ancor'", "'anchor'"):
        wrong(step_of(wrong))


@pytest.mark.parametrize("mode", ["exact", "stale"])
@pytest.mark.parametrize("site", ["word", "layer"])
def test_works_on_a_frozen_embedding_layer(tmp_path, mode, site):
    online = TransformerEncoder(str(tiny_bert(tmp_path)), freeze=["embeddings"], augment_at=site)
    views = {"query": BoundView("online", [Fgsm(1e-3, mode)]), "key": BoundView("online", [Fgsm(1e-3, mode)])}
    method = method_of({"online": online}, views)
    for index in range(2):
        run(method, step := step_of(method, sentences(4), index))
    moved = step.embedded["query"].vectors - step.unperturbed["query"]
    assert math.isclose(moved.abs().max().item(), 1e-3, rel_tol=1e-3)


@pytest.mark.parametrize("mode", ["exact", "stale"])
def test_a_detached_key_has_no_gradient_of_its_own_and_says_so(mode):
    torch.manual_seed(0)
    online = FakeEncoder()
    found = {}
    for of in (None, "query"):
        views = {"query": BoundView("online", [Fgsm(0.5, mode)]), "key": BoundView("target", [Fgsm(0.5, mode, of)])}
        method = method_of({"online": online, "target": Ema(online, share=[])}, views)
        for index in range(2):
            run(method, step := step_of(method, sentences(4), index))
        moved = (step.embedded["key"].vectors - step.unperturbed["key"]).detach()
        found[of] = (bool(moved.any()), [told for _, part in method.components() for told in part.notices()])
    assert found[None][0] is False
    assert [told for told in found[None][1] if "no gradient" in told] == found[None][1]
    assert "view 'key'" in found[None][1][0]
    assert found["query"] == (True, [])


def test_the_remembered_gradient_survives_a_checkpoint():
    method = linear_method(anchor=[fgsm := Fgsm(0.25, "stale")])
    run(method, step_of(method, ["ab c d", "e"]))
    fresh = linear_method(anchor=[Fgsm(0.25, "stale")])
    fresh.load_state_dict(copy.deepcopy(method.state_dict()))
    steps = [step_of(each, ["f", "g h"], index=1) for each in (method, fresh)]
    for each, step in zip((method, fresh), steps, strict=True):
        each(step)
    assert fgsm.previous.numel() > 0
    assert torch.equal(steps[0].embedded["anchor"].vectors, steps[1].embedded["anchor"].vectors)


def test_added_in_single_precision():
    tokens = Tokens(*(torch.ones(1, 1, dtype=torch.int64) for _ in range(4)))
    step = SimpleNamespace(gradient=lambda view: -torch.ones(1, 1, 2))
    made = Fgsm(1e-4).on_embeddings(Embedded(tokens, torch.ones(1, 1, 2, dtype=torch.bfloat16)), "anchor", step)
    assert made.vectors.dtype == torch.float32
    assert made.vectors.flatten().tolist() == pytest.approx([0.9999, 0.9999], abs=1e-7)


def test_what_is_lost_in_each_precision():
    """Half of 2⁻²³ is lost at 1; at 2⁻⁶ the spacing is 2⁻²⁹, at 0.04 2⁻²⁸ ≈ 3.7e-9 (fact sheet: 5e-9 moves 99.7%)."""
    values = torch.tensor([1.0, 2.0**-6])
    assert share_coarse(values, 2.0**-25) == 0.5
    assert share_changed(values, torch.full((2,), 2.0**-25), torch.float32) == 0.5
    words = 0.04 * torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    changes = torch.full_like(words, 5e-9)
    assert share_changed(words, changes, torch.float32) > 0.99
    assert share_changed(words, changes, torch.bfloat16) < 1e-3
    assert share_changed(words, changes, torch.float16) == 0
    assert 0 < share_coarse(words, 5e-9) < 0.5


def test_says_once_that_epsilon_is_too_small():
    method = linear_method(anchor=[fgsm := Fgsm(5e-9)])
    torch.nn.init.constant_(method.encoder("online").table.weight, 0.2)  # spacing 1.5e-8
    run(method, step_of(method))
    (told,) = fgsm.notices()
    assert told.startswith("view 'anchor': fgsm: epsilon = 5e-09 changes 0.00% of the elements")
    assert "below the spacing of numbers for 100.00%" in told
    run(method, step_of(method, index=1))
    assert fgsm.notices() == []


def test_a_large_epsilon_is_silent_but_not_in_low_precision():
    vectors, direction = torch.ones(1, 2, 2), torch.ones(1, 2, 2)
    assert describe_loss(1e-3, vectors, direction, torch.float32) is None
    told = describe_loss(1e-3, vectors, direction, torch.bfloat16)
    assert told is not None
    assert "This run uses bf16: set train.precision = 'fp32'" in told
    method = linear_method(anchor=[fgsm := Fgsm(1e-3)])
    torch.nn.init.constant_(method.encoder("online").table.weight, 1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = method(step := step_of(method))
    method.objective(losses).backward()
    fgsm.after_step(step)
    assert "bf16" in fgsm.notices()[0]
