import json
import math

import pytest
import torch

from registry import ENCODERS
from registry.adamw import EarlierAdamW
from registry.encoders.flow import ActNorm, Glow, minimize
from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from registry.errors import RunFailedError
from tests.registry.encoders.vectors import Given, encoding, reopened
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert

TEXTS = sentences(60, seed=3)
SHAPES = [(8, 1, 1), (8, 3, 2), (16, 2, 3)]


def glow(width, levels, depth, rows=40):
    """A flow in double precision whose weights are all different from their first values, and rows to put in."""
    generator = torch.Generator().manual_seed(width + levels)
    made = Glow(width, levels, depth, 6, generator).double()
    x = torch.randn(rows, width, generator=generator, dtype=torch.float64) * 3 + 1
    with torch.no_grad():
        made(x, initialize=True)
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return made, x


def test_value_by_hand():
    # Columns 1, 3 and 10, 50: means 2 and 30, spreads 1 and 20.
    norm = ActNorm(2)
    x = torch.tensor([[1.0, 10.0], [3.0, 50.0]])
    norm.initialize(x)
    with torch.no_grad():
        torch.testing.assert_close(norm(x), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), atol=1e-4, rtol=0)
        assert norm.log_det().item() == pytest.approx(-math.log(20), abs=1e-4)
    # One step whose coupling is still zero: actnorm as above, reversed, so z = ±(1, 1); bits of a row are
    # −(log N(1) + log N(1) − log 20) / (2 ln 2), log N(1) = −(1 + log 2π) / 2.
    flow = Glow(2, 1, 1, 4, torch.Generator().manual_seed(0))
    x = torch.tensor([[1.0, 10.0], [3.0, 50.0]])
    with torch.no_grad():
        z = flow(x, initialize=True)
        torch.testing.assert_close(z, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), atol=1e-4, rtol=0)
        expected = (1 + math.log(2 * math.pi) + math.log(20)) / (2 * math.log(2))
        assert flow.bits(x).tolist() == pytest.approx([expected, expected], abs=1e-3)


@pytest.mark.parametrize(("width", "levels", "depth"), SHAPES)
def test_the_log_determinant_is_the_jacobians(width, levels, depth):
    flow, x = glow(width, levels, depth)
    for row in x[:3]:
        jacobian = torch.autograd.functional.jacobian(lambda v: flow(v[None])[0], row)
        assert torch.linalg.slogdet(jacobian).logabsdet.item() == pytest.approx(flow.log_det().item(), abs=1e-9)


def literal(flow, x, levels, depth):
    """The forward pass and its log-determinant, as the paper's equations tell it, a feature at a time."""
    kept, log_det = [], 0.0
    for level in range(levels):
        if level:
            half = len(x) // 2
            kept.append(x[half:])
            x = x[:half]
        for step in flow.steps[level * depth : (level + 1) * depth]:
            scale = [3 * float(s) for s in step.norm.log_scale]
            shift = step.norm.shift
            x = [(value + float(b)) * math.exp(s) for value, b, s in zip(x, shift, scale, strict=True)][::-1]
            log_det += sum(scale)
            half = len(x) // 2
            moved = step.shift(torch.tensor([x[:half]], dtype=torch.float64))[0].tolist()
            x = x[:half] + [a + b for a, b in zip(x[half:], moved, strict=True)]
    z = [value for part in [*kept, x] for value in part]
    log_p = sum(-0.5 * (value**2 + math.log(2 * math.pi)) for value in z) + log_det
    return z, -log_p / (len(z) * math.log(2))


@pytest.mark.parametrize(("width", "levels", "depth"), SHAPES)
def test_equals_the_literal_version(width, levels, depth):
    flow, x = glow(width, levels, depth)
    with torch.no_grad():
        for row in x[:3]:
            z, bits = literal(flow, row.tolist(), levels, depth)
            assert flow(row[None])[0].tolist() == pytest.approx(z, abs=1e-9)
            assert flow.bits(row[None]).item() == pytest.approx(bits, abs=1e-9)


def test_gradient():
    flow, x = glow(8, 2, 2, rows=3)
    parameters = tuple(flow.parameters())
    assert torch.autograd.gradcheck(flow.bits, (x.clone().requires_grad_(),))
    assert all(p.grad is None for p in parameters)
    flow.bits(x).mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in parameters)


@pytest.mark.slow
def test_training_comes_near_the_entropy_of_what_it_models():
    # Correlated normal rows: the best possible is their entropy per feature in bits.
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(8, 8, generator=generator)
    x = torch.randn(2048, 8, generator=generator) @ mixed
    entropy = 0.5 * (8 * math.log(2 * math.pi * math.e) + torch.logdet(mixed @ mixed.T).item()) / (8 * math.log(2))
    flow = Glow(8, 1, 4, 16, generator)
    losses = minimize(flow, (part for _ in range(5) for part in x.split(128)), 1e-2, 5, 0.0)
    assert len(losses) == 80
    assert losses[0] > losses[-1] + 0.1
    assert entropy - 0.1 < losses[-1] < entropy + 0.5


def test_warm_up_rises_to_the_rate_and_a_loss_that_is_not_finite_ends_the_run(monkeypatch):
    with refuses("encoders.flow_diverged", "nan", "step 0", "0.001") as caught:
        minimize(Glow(4, 1, 1, 2, torch.Generator()), [torch.full((2, 4), math.nan)], 1e-3, 0, 0.0)
    assert caught.type is RunFailedError
    rates = []
    step = EarlierAdamW.step
    monkeypatch.setattr(EarlierAdamW, "step", lambda self: rates.append(self.param_groups[0]["lr"]) or step(self))
    batches = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(0))
    minimize(Glow(4, 1, 1, 2, torch.Generator()), batches, 0.4, 4, 0.0)
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])


def test_steps_are_those_of_the_code():
    """`run_siamese.py` and `optimization_bert_flow.py`, written out: two sides of pairs, BERT's Adam, clipping at 1."""
    generator = torch.Generator().manual_seed(0)
    flow = Glow(8, 2, 2, 6, generator).double()
    sizes = torch.tensor([1.0, 1.6, 1.2], dtype=torch.float64).repeat_interleave(12)
    x = torch.randn(36, 8, generator=generator, dtype=torch.float64) * sizes[:, None]
    with torch.no_grad():
        flow(x[:12], initialize=True)
    before = [p.detach().clone() for p in flow.parameters()]
    means, squares = ([torch.zeros_like(p) for p in before] for _ in range(2))
    lengths = []
    for batch in x.split(12):
        loss = flow.bits(batch[:6]).mean() + flow.bits(batch[6:]).mean()
        slopes = torch.autograd.grad(loss, tuple(flow.parameters()))
        lengths.append(sum(float(slope.square().sum()) for slope in slopes) ** 0.5)
        for p, m, v, slope in zip(flow.parameters(), means, squares, slopes, strict=True):
            slope = slope / max(1.0, lengths[-1])
            m.mul_(0.9).add_(0.1 * slope)
            v.mul_(0.999).add_(0.001 * slope**2)
            p.data -= 1e-3 * (m / (v.sqrt() + 1e-6) + 0.01 * p.data)
    assert min(lengths) < 1 < max(lengths)  # with and without clipping
    expected = [p.detach().clone() for p in flow.parameters()]
    with torch.no_grad():
        for p, start in zip(flow.parameters(), before, strict=True):
            p.copy_(start)
    minimize(flow, x.split(12), 1e-3, 0, 0.01, initialize=False)
    far = sum(float((p.detach() - q).square().sum()) for p, q in zip(flow.parameters(), expected, strict=True)) ** 0.5
    moved = sum(float((q - start).square().sum()) for q, start in zip(expected, before, strict=True)) ** 0.5
    assert far <= 1e-6 * moved


def test_random_actnorms_start_as_in_the_code():
    """TensorFlow's default for a variable of shape (1, 1, 1, C), Glorot's uniform values with 1 input, C outputs."""
    base, encoder = flow_of(torch.randn(60, 16, generator=torch.Generator().manual_seed(0)), actnorm="random")
    encoder.learning_rate, encoder.weight_decay = 1e-30, 0.0  # no step moves anything
    encoder.fit(encoding(encoder), base.sentences)
    norms = [part for part in encoder._glow[0].modules() if isinstance(part, ActNorm)]
    assert {len(norm.shift) for norm in norms} == {16, 32}
    for norm in norms:
        bound = math.sqrt(6 / (1 + len(norm.shift)))
        values = torch.cat([norm.shift, norm.log_scale]).detach()
        assert 0.7 * bound < values.abs().max() < bound
        assert values.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.35)


def flow_of(rows, **values):
    base = Given(rows)
    encoder = ENCODERS["flow"].build({"fit_on": "target", "levels": 1, **values}, {"online": base})
    return base, encoder


@pytest.mark.slow
def test_fitting_leaves_everything_else_as_it_was_and_follows_the_seed():
    base, encoder = flow_of(torch.randn(100, 6, generator=torch.Generator().manual_seed(0)), batch_size=16, epochs=2)
    before = base.table.clone()
    encoder.fit(encoding(encoder), base.sentences)
    first = encoding(encoder)(base.sentences)
    assert len(encoder.bits) == 2 * 7  # the last batch of an epoch holds 4
    assert torch.equal(base.table, before)
    assert base.table.grad is None
    assert [name for name, _ in encoder.named_parameters()] == ["of.table"]
    assert not torch.equal(first, base.table.detach())
    found = []
    for seed in (1, 1, 2):
        base, encoder = flow_of(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), seed=seed)
        encoder.fit(encoding(encoder), base.sentences)
        found.append(encoding(encoder)(base.sentences))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_widths_that_cannot_be_halved_and_one_sentence_are_refused():
    base, encoder = flow_of(torch.randn(10, 12), levels=3)
    with refuses("encoders.indivisible_width", "levels = 3", "by 8", "width 12"):
        encoder.fit(encoding(encoder), base.sentences)
    base, encoder = flow_of(torch.ones(1, 4))
    with refuses("encoders.too_few_sentences", "flow", "target"):
        encoder.fit(encoding(encoder), base.sentences)


@pytest.mark.slow
def test_export_comes_back_and_another_version_is_refused(tmp_path):
    base = TransformerEncoder(str(tiny_bert(tmp_path)), pooling="first_last", first_layer_index=1)
    encoder = ENCODERS["flow"].build({"fit_on": "target", "depth": 2, "width": 5}, {"online": base})
    encoder.fit(encoding(encoder), TEXTS)
    folder = tmp_path / "out" / "model"
    again = reopened(encoder, folder, TEXTS)
    assert (again.fits, again.eval_pooling) == ("never", "first_last")
    assert not (folder / "config.json").exists()
    assert [child.name for child in folder.parent.iterdir()] == ["model"]
    assert open_encoder(str(folder), "cls")[0].eval_pooling == "cls"
    assert torch.equal(encoding(open_encoder(str(folder / "base"))[0])(TEXTS), encoding(base)(TEXTS))
    base = TransformerEncoder(str(tiny_bert(tmp_path)))
    encoder = ENCODERS["flow"].build({"fit_on": "target"}, {"online": base})
    encoder.export(tmp_path / "model", 12)
    file = tmp_path / "model" / "cse.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": "spline"}))
    with refuses("encoders.unknown_format", "cse.json", "spline"):
        open_encoder(str(tmp_path / "model"))
