"""A recipe's first step in double precision, and what transformers alone makes of the same sentences."""

from __future__ import annotations

import torch
from torch import Tensor

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.step import StepState
from registry.tokens import Tokens
from tests.shrunken import Small


def experiment(parts: Small, name: str, *more: str) -> Experiment:
    """Return the tiny version of a recipe in training mode, in double precision and without the encoder's dropout."""
    changed, dropped = parts.options(load(name).recipe)
    made = resolve(load(name, [*changed, "encoders.online.dropout=0.0", *more], dropped).recipe, 5)
    made.method.double().train()
    return made


def step_of(made: Experiment, index: int = 0) -> StepState:
    """Return a step over four sentences."""
    batches = Batches(open_text(made.recipe.data, made.columns), made.plans, 4, 64, 5)
    return StepState(made.method, batches.batch(index), index, 3, torch.Generator().manual_seed(0))


@torch.no_grad()
def layers_of(parts: Small, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Return (n, D) [CLS] of the last layer, and (n, K, D) means over real tokens, sentence by sentence."""
    from transformers import AutoModel

    network = AutoModel.from_pretrained(parts.models["bert"]).double().eval()
    states = network(tokens.ids, tokens.mask, output_hidden_states=True).hidden_states
    lengths = tokens.mask.sum(1).tolist()
    means = [torch.stack([layer[i, :n].mean(0) for layer in states]) for i, n in enumerate(lengths)]
    return states[-1][:, 0], torch.stack(means)
