import math

import pytest
import torch

from registry.heads.pseudo_tokens import PseudoTokens
from registry.testing.materials import WidthOnly
from tests.registry.heads.literal import linear
from tests.support.errors import refuses

WIDTH, HEADS = 6, 2


def fitted(tokens=3, **options):
    torch.manual_seed(2)
    head = PseudoTokens(tokens, attention_heads=HEADS, **options)
    assert head.fit(WIDTH, WidthOnly(WIDTH)) == WIDTH
    head.double().eval()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return head


def attention(module, asking, asked):
    """Head by head, query by query, one exponential at a time."""
    size = WIDTH // HEADS
    queries = [linear(module.query, x) for x in asking]
    keys, values = ([linear(part, x) for x in asked] for part in (module.key, module.value))
    found = []
    for q in queries:
        out = []
        for part in (slice(start, start + size) for start in range(0, WIDTH, size)):
            scores = [
                math.exp(sum(a * b for a, b in zip(q[part], k[part], strict=True)) / math.sqrt(size)) for k in keys
            ]
            weights = [score / sum(scores) for score in scores]
            columns = zip(*[v[part] for v in values], strict=True)
            out += [sum(w * x for w, x in zip(weights, column, strict=True)) for column in columns]
        found.append(out)
    return found


def test_one_attention_twice_equals_the_literal_form():
    """PT7: the authors' `models.py:249-254` calls the same module for both steps."""
    head = fitted()
    pooled = torch.randn(4, WIDTH, dtype=torch.float64)
    expected = []
    for c in pooled.tolist():
        expressed = attention(head.attention, head.pseudo.tolist(), [c])
        expected += attention(head.attention, [c], expressed)
    assert torch.allclose(head(pooled, ()), torch.tensor(expected, dtype=torch.float64), atol=1e-12)


def test_without_dropout_the_pseudo_tokens_play_no_part():
    """PT1: the first softmax has one column."""
    few, pooled = fitted(tokens=1), torch.randn(4, WIDTH, dtype=torch.float64)
    many = fitted(tokens=9)
    many.load_state_dict({**few.state_dict(), "pseudo": many.pseudo.detach()})
    assert torch.allclose(few(pooled, ()), many(pooled, ()), atol=1e-12)
    many(pooled, ()).square().sum().backward()
    assert many.pseudo.grad is not None
    assert many.pseudo.grad.abs().max() < 1e-12
    value = few.attention.value
    linear = (pooled @ value.weight.T + value.bias) @ value.weight.T + value.bias
    assert torch.allclose(few(pooled, ()), linear, atol=1e-12)


def test_dropout_makes_them_matter_in_training_alone():
    head, pooled = fitted(tokens=64, dropout=0.5), torch.randn(4, WIDTH, dtype=torch.float64)
    plain = head(pooled, ())
    assert not torch.allclose(head.train()(pooled, ()), plain, atol=1e-3)
    head.dropout = head.attention.dropout.p = 0.0
    assert torch.allclose(head(pooled, ()), plain, atol=1e-12)


def test_gradient_of_the_shared_weights_is_the_sum_over_both_steps():
    """r = V(Vc + b) + b without dropout: dr/dV and dr/db by the product rule, in loops (PT7)."""
    head = fitted()
    pooled = torch.randn(4, WIDTH, dtype=torch.float64)
    head(pooled, ()).sum().backward()
    value = head.attention.value
    above = [sum(row[k] for row in value.weight.tolist()) for k in range(WIDTH)]
    for k in range(WIDTH):
        for j in range(WIDTH):
            inner = sum(above[k] * c[j] for c in pooled.tolist())
            outer = sum(linear(value, c)[j] for c in pooled.tolist())
            assert value.weight.grad[k, j].item() == pytest.approx(inner + outer, rel=1e-9)
        assert value.bias.grad[k].item() == pytest.approx(len(pooled) * (above[k] + 1), rel=1e-9)


def test_starts_as_torch_starts():
    """PT8: the authors' modules are made after BERT's initialization has run (`models.py:390-394`)."""
    head = PseudoTokens(128, attention_heads=8)
    head.fit(256, WidthOnly(256))
    assert head.pseudo.std().item() == pytest.approx(1.0, rel=0.02)
    for part in (head.attention.query, head.attention.key, head.attention.value):
        assert part.weight.abs().max().item() == pytest.approx(1 / 16, rel=1e-2)
        assert 0 < part.bias.abs().max() <= 1 / 16


@pytest.mark.parametrize(("heads", "code"), [(4, "heads.indivisible_width"), (None, "heads.no_attention_heads")])
def test_heads_that_do_not_fit_are_refused(heads, code):
    with refuses(code, "attention_heads", WIDTH):
        PseudoTokens(attention_heads=heads).fit(WIDTH, WidthOnly(WIDTH))
