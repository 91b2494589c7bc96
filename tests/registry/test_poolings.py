"""Poolings: values by hand, plug-ins and errors."""

import os

import pytest
import torch

from registry import POOLINGS, plugins
from registry.core import BUILT_IN, Poolings
from registry.poolings import masked_mean, needs_all_states, pool, pool_tokens
from tests.support.errors import refuses

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


def test_padding_on_the_left_is_not_pooled():
    states, mask = [STATES[2].flip(1)], torch.tensor([[0, 1, 1]])
    assert [pool_tokens(name, states, mask)[0].tolist() for name in ("cls", "last")] == [[4.0, -6.0], [1.0, 2.0]]


def test_only_averages_of_layers_need_every_state():
    assert {name for name in BUILT_IN if needs_all_states(name)} == {"last2", "first_last"}


def test_rows_without_tokens_are_zero_not_nan():
    assert masked_mean(torch.ones(1, 2, 3), torch.zeros(1, 2)).tolist() == [[0.0, 0.0, 0.0]]


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


def test_two_poolings_with_one_name_are_refused():
    def mean(states, mask):
        """Return something else."""

    with refuses("component.same_name", "'mean'", __name__):
        POOLINGS.register("mean")(mean)
