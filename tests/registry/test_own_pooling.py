"""A pooling of a plug-in is trained, saved and opened again, and a recipe's identity contains its code."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from cse_cli.data.identity import plugin_poolings
from cse_cli.recipe.load import load
from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from registry.poolings import POOLINGS
from tests.registry.encoders.test_every_family import own_states, tokens_of
from tests.support.families import tiny


@pytest.fixture
def largest():
    @POOLINGS.register("largest", layers=(1, -1))
    def largest(states: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Return the largest value of each dimension over the real tokens of two layers."""
        seen = mask.unsqueeze(-1) == 1
        return torch.stack([state.masked_fill(~seen, -torch.inf).amax(1) for state in states]).amax(0)

    yield "largest"
    POOLINGS._entries.pop("largest")


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
