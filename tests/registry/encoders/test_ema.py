import copy
import math

import pytest
import torch
from torch import nn

from cse_cli.recipe.load import load
from cse_cli.training.checkpoint import load_method_state, method_state
from cse_cli.training.method import BoundView, Method, StepState, Term
from cse_cli.training.optimizer import make_optimizer
from registry import LOSSES
from registry.encoders.ema import Ema
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.heads.mlp import Mlp
from registry.heads.projection import Projection
from registry.testing.materials import OneStep
from tests.registry.encoders.vectors import tokens_of
from tests.support.errors import refuses
from tests.support.fakes import FakeEncoder
from tests.support.tiny import sentences, tiny_bert


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_bert(tmp_path_factory.mktemp("models")))


def online_of(model, heads=None, **options):
    encoder = TransformerEncoder(model, **options)
    encoder.attach(heads or {})
    return encoder


def nudge(encoder, by=0.5):
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(by)


def after(steps, target, total=100):
    step = OneStep(torch.zeros(2, target.dim), steps - 1)
    step.total = total
    target.after_step(step)


def method_of(online, target):
    views = {"query": BoundView("online", []), "key": BoundView("target", [])}
    entry = LOSSES["info_nce"]
    terms = {"info_nce": Term(entry, 1.0, {"anchor": "query", "positive": "key"}, True)}
    return Method({"online": online, "target": target}, views, None, {"info_nce": entry.build({})}, terms)


def step_of(method, index=0, count=4):
    tokens = tokens_of(method.encoder("online"), sentences(count))
    return StepState(method, dict.fromkeys(method.views, tokens), index, 100, torch.Generator().manual_seed(index))


@pytest.mark.slow
def test_every_weight_equals_the_encoders_at_the_start_or_the_first_step_is_refused(model):
    online = online_of(model, {"mlp": Mlp()})
    target = Ema(online, share=["embeddings"])
    theirs = online.state_dict()
    assert target.target.state_dict().keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in target.target.state_dict().items())
    tokens = tokens_of(online)
    assert torch.equal(target.encode_for_eval(tokens), online.encode_for_eval(tokens))
    online = online_of(model)
    target = Ema(online, share=["embeddings"])
    nudge(online.backbone.encoder)
    with refuses("encoders.copy_differs"):
        target.embed(tokens_of(online))


def test_a_copy_that_starts_from_random_weights(model):
    """ES4, PT3: BERT's own initialization: ones and zeros in the norms, N(0, 0.02) elsewhere. Heads are copied."""
    online = online_of(model, {"mlp": Mlp()})
    nudge(online)
    target = Ema(online, decay=0.9, schedule="constant", share=[], random_weights=True)
    mine, theirs = dict(target.target.named_parameters()), dict(online.named_parameters())
    for name, value in mine.items():
        if name.startswith("heads."):
            assert torch.equal(value, theirs[name])
        elif value.dim() == 1:
            assert torch.equal(value, torch.full_like(value, "LayerNorm.weight" in name)), name
        else:
            assert value.std() == pytest.approx(0.02, rel=0.5), name
            assert abs(value.mean()) < 0.005, name
    start = {name: value.clone() for name, value in mine.items()}
    target.embed(tokens_of(online))  # the copy differs from `of` on purpose
    after(1, target)
    for name, value in mine.items():
        torch.testing.assert_close(value, 0.9 * start[name] + 0.1 * theirs[name], rtol=0, atol=1e-6)
    words = online.backbone.embeddings.word_embeddings.weight
    before = words.detach().clone()
    sharing = Ema(online, share=["embeddings"], random_weights=True)
    assert sharing.target.backbone.embeddings.word_embeddings.weight is words
    assert torch.equal(words, before)


def test_one_update_by_hand():
    online = FakeEncoder(width=1)
    nn.init.constant_(online.linear.weight, 2.0)
    target = Ema(online, decay=0.75, schedule="constant", share=[])
    nn.init.constant_(online.linear.weight, 6.0)
    after(1, target)
    assert target.target.linear.weight.item() == 0.75 * 2 + 0.25 * 6
    after(2, target)
    assert target.target.linear.weight.item() == 0.75 * 3 + 0.25 * 6


def test_cosine_schedule_by_hand():
    ema = Ema(FakeEncoder(), share=[])
    found = [ema.decay_at(t, 100) for t in (0, 25, 50, 100, 150)]
    assert found == pytest.approx([0.85, 0.85 + 0.15 * (1 - math.sqrt(0.5)) / 2, 0.925, 1.0, 1.0], abs=1e-12)
    assert Ema(FakeEncoder(), share=[]).memory == pytest.approx(1 / 0.15)
    assert Ema(FakeEncoder(), decay=0.995, schedule="constant", share=[]).memory == pytest.approx(200)
    assert Ema(FakeEncoder(), decay=0.0, share=[]).memory == 1
    assert Ema(FakeEncoder(), decay=1.0, share=[]).memory == math.inf


@pytest.mark.parametrize(
    ("schedule", "total_steps", "decay", "update", "ahead"),
    [
        ("cosine", None, 0.85, "after_step", 0),
        ("cosine", 3, 0.85, "before_forward", 1),
        ("constant", 40, 0.85, "before_forward", 1),
        ("constant", None, 0.0, "after_step", 0),
    ],
)
def test_updates_equal_the_written_out_average(schedule, decay, update, ahead, total_steps):
    """Element by element, with the decay of step t (before the forward pass: of the step to come)."""
    online = FakeEncoder(width=3)
    target = Ema(online, decay=decay, schedule=schedule, total_steps=total_steps, update=update, share=[])
    slow = online.linear.weight.tolist()
    for t in range(1, 7):
        nudge(online, by=0.1 * t)
        after(t, target, total=5)
        eta = decay
        if schedule == "cosine":
            done = min((t + ahead) / (total_steps or 5), 1)
            eta = 1 - (1 - decay) * (math.cos(math.pi * done) + 1) / 2
        fast = online.linear.weight.tolist()
        slow = [[eta * s + (1 - eta) * f for s, f in zip(*rows, strict=True)] for rows in zip(slow, fast, strict=True)]
        assert torch.allclose(target.target.linear.weight, torch.tensor(slow), atol=1e-5)
        assert target.report() == {"decay": pytest.approx(eta)}


@pytest.mark.slow
def test_buffers_and_dropout_rates_are_taken_over(model):
    class Counting(Mlp):
        def fit(self, width, encoder):
            self.register_buffer("seen", torch.zeros(()))
            return super().fit(width, encoder)

    online = online_of(model, {"mlp": Counting()})
    target = Ema(online, share=["embeddings"])
    online.heads["mlp"].seen += 3
    after(1, target)
    assert target.target.heads["mlp"].seen == 3
    online = online_of(model, {"projection": Projection(dropout=0.3)}, dropout=0.2)
    rates = {None: {0.2, 0.3}, 0.0: {0.0}, 0.4: {0.4}}
    for dropout, expected in rates.items():
        target = Ema(online, share=["embeddings"], dropout=dropout)
        assert {m.p for m in target.modules() if isinstance(m, nn.Dropout)} == expected
    assert {m.p for m in online.modules() if isinstance(m, nn.Dropout)} == {0.2, 0.3}


@pytest.mark.slow
@pytest.mark.parametrize(("dropout", "expected"), [(None, True), (0.0, False), (0.5, True)])
def test_neither_train_nor_eval_changes_whether_the_target_drops(model, dropout, expected):
    online = online_of(model)
    method = method_of(online, Ema(online, share=["embeddings"], dropout=dropout))
    target, tokens = method.encoder("target"), tokens_of(online)
    for change in (lambda: None, method.train, method.eval, method.train, lambda: target.encode_for_eval(tokens)):
        change()
        first, second = (target.encode(tokens, target.embed(tokens)).sentence for _ in range(2))
        assert torch.equal(first, second) is not expected
        assert torch.equal(target.encode_for_eval(tokens), target.encode_for_eval(tokens))


def test_shared_parts_are_the_same_objects_and_keep_their_mode(model):
    online = online_of(model, {"mlp": Mlp(), "projection": Projection()})
    online.eval()
    target = Ema(online, share=["embeddings", "projection"], dropout=0.0)
    assert target.target.backbone.embeddings is online.backbone.embeddings
    assert target.target.heads["projection"] is online.heads["projection"]
    assert target.target.heads["mlp"] is not online.heads["mlp"]
    assert target.target.backbone.encoder is not online.backbone.encoder
    assert online.heads["projection"].network[2].p == 0.1
    for change in (target.train, lambda: target.encode_for_eval(tokens_of(online)), target.eval):
        change()
        assert not any(module.training for module in online.modules())
    online.train()
    target.eval()
    assert all(module.training for module in online.modules())


def test_shared_weights_are_trained_once_and_seen_by_both(model):
    online = online_of(model)
    method = method_of(online, Ema(online, share=["embeddings"]))
    optimizer = make_optimizer(method, load("mini/simcse_en").recipe.train)
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in trained} == {id(p) for p in online.parameters()}
    assert len(trained) == len(list(online.parameters()))
    words = online.backbone.embeddings.word_embeddings.weight
    start = words.detach().clone()
    method.objective(method(step_of(method))).backward()
    optimizer.step()
    assert not torch.equal(words, start)
    assert method.encoder("target").target.backbone.embeddings.word_embeddings.weight is words


def gradients(method):
    method.zero_grad()
    method.objective(method(step_of(method))).backward()
    return {name for name, p in method.named_parameters(remove_duplicate=False) if p.grad is not None and p.grad.any()}


@pytest.mark.slow
def test_a_detached_key_sends_no_gradient_into_the_target(model):
    online = online_of(model, {"mlp": Mlp()})
    method = method_of(online, Ema(online, share=[]))
    found = gradients(method)
    assert not any(name.startswith("encoders.target") for name in found)
    assert any(name.startswith("encoders.online.backbone.embeddings") for name in found)
    assert not method(step_of(method))["info_nce"].isnan()
    tokens = tokens_of(online)
    target = method.encoder("target")
    assert not target.encode(tokens, target.embed(tokens)).sentence.requires_grad


@pytest.mark.parametrize("site", ["word", "layer"])
def test_the_switch_lets_gradient_reach_only_the_embedding_layer(model, site):
    online = online_of(model, {"mlp": Mlp()}, augment_at=site, dropout=0.0)
    target = Ema(online, share=["embeddings"], target_gradient="embeddings")
    tokens = tokens_of(online)
    target.encode(tokens, target.embed(tokens)).sentence.pow(2).sum().backward()
    reached = {name for name, p in target.target.named_parameters() if p.grad is not None and p.grad.any()}
    assert reached == {name for name, _ in online.named_parameters() if name.startswith("backbone.embeddings.")}
    assert all(p.grad is None for n, p in online.named_parameters() if not n.startswith("backbone.embeddings."))


def test_a_head_that_the_loss_trains_besides(model):
    """MoCoSE's code: the optimizer moves the copy's projection, then the average does; all else is averaged alone."""
    torch.manual_seed(0)
    online = online_of(model, {"projection": Projection()}, dropout=0.0)
    target = Ema(online, 0.9, "constant", share=["embeddings"], target_gradient="embeddings", trained=["projection"])
    method = method_of(online, target)
    own = {name: p for name, p in target.target.named_parameters() if name.startswith("heads.projection")}
    followed = {name: p for name, p in target.target.named_parameters() if name.startswith("backbone.encoder")}
    assert all(p.requires_grad for p in own.values())
    assert not any(p.requires_grad for p in followed.values())
    step = step_of(method)
    method.objective(method(step)).backward()
    before = {name: p.detach().clone() for name, p in {**own, **followed}.items()}
    gradients = {name: p.grad.clone() for name, p in own.items()}
    assert any(gradient.abs().max() > 0 for gradient in gradients.values())
    torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.5).step()
    target.after_step(step)
    online_now = dict(online.named_parameters())
    for name, value in before.items():
        moved = value - 0.5 * gradients[name] if name in own else value
        expected = 0.9 * moved + 0.1 * online_now[name].detach()
        torch.testing.assert_close(dict(target.target.named_parameters())[name], expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_heads_left_out_and_the_width_that_remains_without_a_random_number(model):
    heads = {"projection": Projection(layers=1, width=24), "wide": Projection(layers=1, width=40)}
    online = online_of(model, heads)
    target = Ema(online, share=["embeddings"], without=["wide"])
    tokens = tokens_of(online)
    assert (online.dim, target.dim) == (40, 24)
    assert target.encode(tokens, target.embed(tokens)).sentence.shape == (8, 24)
    assert list(online.heads) == ["projection", "wide"]
    with refuses("encoders.heads_do_not_fit", "(wide)"):
        Ema(online, share=["embeddings"], without=["projection"])
    online = online_of(model, {"projection": Projection()})
    torch.manual_seed(4)
    expected = torch.rand(1)
    torch.manual_seed(4)
    Ema(online, share=["embeddings"], without=["projection"])
    assert torch.rand(1) == expected


@pytest.mark.slow
def test_goes_on_from_a_checkpoint_to_the_same_bit(model):
    def made():
        online = online_of(model, dropout=0.0)
        return method_of(online, Ema(online, share=["embeddings"]))

    first = made()
    for index in range(3):
        nudge(first.encoder("online").backbone.encoder, 0.01)
        first.encoder("target").after_step(step_of(first, index))
    second = made()
    load_method_state(second, copy.deepcopy(method_state(first)))
    for method in (first, second):
        nudge(method.encoder("online").backbone.encoder, 0.02)
        method.encoder("target").after_step(step_of(method, 3))
    states = method_state(first), method_state(second)
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert second.encoder("target").updates == 4
    second.encoder("target").embed(tokens_of(second.encoder("online")))  # the start is not checked any more


@pytest.mark.slow
def test_a_selected_target_is_whole(model):
    """What selection keeps of a target has the shared embedding layer of that step, not of the last one."""
    online = online_of(model, pooling="mean")
    target, tokens = Ema(online, share=["embeddings"]), tokens_of(online)
    nudge(online, 0.01)
    after(1, target)
    kept, expected = copy.deepcopy(target.state_dict()), target.encode_for_eval(tokens)
    nudge(online, 0.3)
    after(2, target)
    assert not torch.equal(target.encode_for_eval(tokens), expected)
    target.load_state_dict(kept)
    assert torch.equal(target.encode_for_eval(tokens), expected)


def test_refusals_name_what_there_is(model):
    online = online_of(model, {"mlp": Mlp()})
    wrong = [
        ({"share": ["embedings"]}, "unknown_part", ["share", "'embedings'", "Did you mean 'embeddings'?"]),
        ({"without": ["predictor"]}, "unknown_part", ["without", "'predictor'", "It has: mlp"]),
        ({"share": ["mlp"], "without": ["mlp"]}, "shared_and_removed", ["'mlp'"]),
        ({"share": [], "target_gradient": "embeddings"}, "gradient_not_shared", ["share"]),
        ({"trained": ["mlp"]}, "no_gradient", ["trained"]),
        ({"trained": ["pooler"]}, "unknown_head", ["trained", "'pooler'", "Its heads: mlp"]),
        ({"trained": ["mlp"], "share": ["mlp"]}, "unknown_head", ["trained", "'mlp'", "Its heads: none"]),
    ]
    for values, code, named in wrong:
        with refuses(f"encoders.{code}", *named):
            Ema(online, **values)
    with refuses("encoders.no_random_weights"):
        Ema(FakeEncoder(), share=[], random_weights=True)
    with pytest.raises(CseError, match="does not support heads"):
        Ema(online).attach({"mlp": Mlp()})
    with refuses("encoders.unknown_part", "'embeddings'"):
        Ema(FakeEncoder(), share=["embeddings"])
