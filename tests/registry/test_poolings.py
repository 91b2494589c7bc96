"""Poolings: values by hand, plug-ins, which are trained, saved and opened again, and errors."""

import os
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from cse_cli.data.identity import plugin_poolings
from cse_cli.recipe.load import load
from registry import POOLINGS
from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from registry.machinery import plugins
from registry.machinery.core import Poolings
from registry.poolings import masked_mean, needs_all_states, pool, pool_tokens
from registry.types import BUILT_IN
from tests.registry.encoders.test_every_family import own_states
from tests.registry.encoders.vectors import tokens_of
from tests.support.errors import refuses
from tests.support.families import tiny

LOWER = torch.tensor([[[3.0, 5.0], [1.0, 1.0], [9.0, 9.0]]])
STATES = [torch.zeros(1, 3, 2) + 1, LOWER, torch.tensor([[[1.0, 2.0], [4.0, -6.0], [100.0, 100.0]]])]
MASK = torch.tensor([[1, 1, 0]])


@pytest.mark.parametrize(
    ("name", "first", "value"),
    [
        ("cls", 0, [1.0, 2.0]),
        ("last", 0, [4.0, -6.0]),
        ("mean", 0, [2.5, -2.0]),
        ("weighted_mean", 0, [3.0, -10 / 3]),  # (1·1 + 2·4)/3 and (2 − 12)/3
        ("last2", 0, [2.25, 0.5]),  # means of (2, 3.5) and (2.5, −2.5)
        ("first_last", 0, [1.75, -0.5]),  # means of (1, 1.5) and (2.5, −2.5)
        ("first_last", 1, [2.25, 0.5]),
    ],
)
@pytest.mark.parametrize("function", [pool, pool_tokens])
def test_by_hand(function, name, first, value):
    assert function(name, STATES, MASK, first)[0].tolist() == pytest.approx(value)


def test_padding_on_the_left_and_rows_without_tokens():
    states, mask = [STATES[2].flip(1)], torch.tensor([[0, 1, 1]])
    assert [pool_tokens(name, states, mask)[0].tolist() for name in ("cls", "last")] == [[4.0, -6.0], [1.0, 2.0]]
    assert {name for name in BUILT_IN if needs_all_states(name)} == {"last2", "first_last"}
    assert masked_mean(torch.ones(1, 2, 3), torch.zeros(1, 2)).tolist() == [[0.0, 0.0, 0.0]]
    dirty = [STATES[2].masked_fill(MASK.unsqueeze(-1) == 0, torch.nan)]
    for name in ("last", "mean", "weighted_mean", "cls"):
        assert torch.equal(pool_tokens(name, dirty, MASK), pool_tokens(name, STATES, MASK))


def test_a_file_brings_a_pooling(tmp_path, monkeypatch):
    file = tmp_path / "own_pooling.py"
    file.write_text(
        "import torch\nfrom registry import POOLINGS\n\n\n@POOLINGS.register('own_max')\n"
        "def maximum(states, mask):\n    'Return the largest values.'\n"
        "    return states[0].masked_fill(mask[..., None] == 0, -torch.inf).amax(1)\n"
    )
    monkeypatch.setenv(plugins.VARIABLE, os.environ.get(plugins.VARIABLE, ""))
    monkeypatch.setattr(plugins, "_loaded", dict(plugins._loaded))
    monkeypatch.setattr(POOLINGS, "_entries", dict(POOLINGS._entries))
    plugins.add(file)
    assert POOLINGS["own_max"](STATES, MASK)[0].tolist() == [4.0, 2.0]
    assert plugins.files_of([("poolings", "own_max")]) == (str(file),)


def test_mistakes():
    with refuses("component.unknown", "'men'"):
        POOLINGS["men"]
    fresh = Poolings()
    with refuses("component.invalid_name", "'Max'"):
        fresh.register("Max")
    with refuses("component.no_docstring", "'bare'"):
        fresh.register("bare")(lambda states, mask: states[0])

    def mean(states, mask):
        """Return something else."""

    with refuses("component.same_name", "'mean'", __name__):
        POOLINGS.register("mean")(mean)


@pytest.fixture
def largest():
    @POOLINGS.register("largest", layers=(1, -1))
    def largest(states: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Return the largest value of each dimension over the real tokens of two layers."""
        seen = mask.unsqueeze(-1) == 1
        return torch.stack([state.masked_fill(~seen, -torch.inf).amax(1) for state in states]).amax(0)

    yield "largest"
    POOLINGS._entries.pop("largest")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_it_pools_what_it_names_and_is_saved(tmp_path, largest, family):
    folder = tiny(tmp_path, family)
    encoder = TransformerEncoder(str(folder), largest, dropout=0.0)
    tokens = tokens_of(encoder)
    states = own_states(folder, tokens)
    expected = torch.stack(
        [
            row[mask == 1].amax(0)
            for row, mask in zip(torch.stack([states[1], states[-1]]).amax(0), tokens.mask, strict=True)
        ]
    )
    torch.testing.assert_close(encoder.encode_for_eval(tokens), expected, rtol=0, atol=1e-5)
    trained = encoder.encode(tokens, encoder.embed(tokens)).sentence
    torch.testing.assert_close(trained, expected, rtol=0, atol=1e-5)
    encoder.export(tmp_path / "out" / "model", 24)
    again, _ = open_encoder(str(tmp_path / "out" / "model"))
    assert again.eval_pooling == largest
    torch.testing.assert_close(again.encode_for_eval(tokens), expected, rtol=0, atol=1e-5)


def test_a_recipe_names_it(largest):
    recipe = load("mini/simcse_en", ["encoders.online.pooling=largest"]).recipe
    assert [one.name for one in plugin_poolings(recipe)] == [largest]
    with pytest.raises(Exception, match="pooling: should be") as caught:
        load("mini/simcse_en", ["encoders.online.pooling=larges"])
    assert "Did you mean 'largest'" in str(caught.value)
