"""A recipe's first step in double precision, and what transformers alone makes of the same sentences."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.method import StepState
from registry.tokens import Tokens
from registry.types import Negatives
from tests.registry.losses.literal import cells, cross_entropy
from tests.registry.losses.test_nt_xent import literal as both_directions
from tests.support.shrunken import Small


@cache
def bert(folder: Path) -> Any:
    """Return transformers' own model in double precision, in evaluation mode."""
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder).double().eval()


def experiment(parts: Small, name: str, *more: str, dropout: float | None = 0.0) -> Experiment:
    """Return the tiny version of a recipe in training mode, in double precision, with a dropout of `online` if any."""
    changed, dropped = parts.options(load(name).recipe)
    changed += [] if dropout is None else [f"encoders.online.dropout={dropout}"]
    made = resolve(load(name, [*changed, *more], dropped).recipe, 5)
    made.method.double().train()
    return made


def step_of(made: Experiment, index: int = 0, rows: int = 4) -> StepState:
    """Return a step over so many sentences."""
    batches = Batches(open_text(made.recipe.data, made.columns), made.specs, rows, 64, 5)
    return StepState(made.method, batches.batch(index), index, 3, torch.Generator().manual_seed(0))


@torch.no_grad()
def layers_of(parts: Small, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Return (n, D) [CLS] of the last layer, and (n, K, D) means over real tokens, sentence by sentence."""
    network = bert(parts.models["bert"])
    states = network(tokens.ids, tokens.mask, output_hidden_states=True).hidden_states
    lengths = tokens.mask.sum(1).tolist()
    means = [torch.stack([layer[i, :n].mean(0) for layer in states]) for i, n in enumerate(lengths)]
    return states[-1][:, 0], torch.stack(means)


@torch.no_grad()
def states_in_templates(parts: Small, tokens: Tokens, mask: int, denoise: str = "", last: bool = False) -> Tensor:
    """Return (n, D) states at the only or the last [MASK] of each row, less that of its template without the sentence.

    Args:
        denoise: What the template's own pass reads: its tokens at their "positions", or "padding" in the sentence's
            place too; nothing is subtracted where it is empty.
    """
    network = bert(parts.models["bert"])

    def at_mask(ids: list[int], places: list[int]) -> Tensor:
        states = network(torch.tensor([ids]), position_ids=torch.tensor([places])).last_hidden_state[0]
        return states[len(ids) - 1 - ids[::-1].index(mask) if last else ids.index(mask)]

    assert tokens.text is not None
    found = []
    for row, length in enumerate(tokens.mask.sum(1).tolist()):
        ids, text = tokens.ids[row, :length].tolist(), tokens.text[row, :length].tolist()
        found.append(at_mask(ids, list(range(length))))
        if denoise == "positions":
            around = [place for place in range(length) if not text[place]]
            found[-1] = found[-1] - at_mask([ids[place] for place in around], around)
        elif denoise == "padding":
            found[-1] = found[-1] - at_mask(
                [0 if one else i for i, one in zip(ids, text, strict=True)], [*range(length)]
            )
    return torch.stack(found)


def headed(made: Experiment, pooled: Tensor) -> Tensor:
    """Return what the head "mlp" makes of (n, D) vectors, by its formula."""
    head: Any = made.scored.heads["mlp"]  # type: ignore[operator, union-attr]
    weight, bias, _ = head.dense()
    return torch.tanh(pooled @ weight.T + bias).detach()


def info_nce(
    anchors: Tensor, others: Tensor, temperature: float, hard: Tensor | None = None, held: Tensor | None = None
) -> float:
    """Return InfoNCE of (n, D) vectors, cell by cell; every anchor sees the negatives of `hard` (n, D) and `held`."""
    queue = Negatives.none(anchors) if held is None else Negatives(held, torch.zeros(len(held)))

    def logit(value: float) -> float:
        return value / temperature

    return cross_entropy(cells(logit, logit, (anchors.detach(), others.detach()), queue, hard, hard_weight=0.0))


def nt_xent(anchors: list[list[float]], others: list[list[float]], temperature: float) -> float:
    """Return NT-Xent, the mean over the anchors of both directions."""
    there, back = both_directions(anchors, others, [], temperature)
    return float(there + back) / 2


def projected(head: Any, x: Tensor) -> list[float]:
    """What a `feed_forward` head with gelu behind both layers makes of a vector, by its equation."""
    for layer in (head.first, head.second):
        x = layer.weight @ x + layer.bias
        x = x * (1 + torch.erf(x / math.sqrt(2))) / 2
    found: list[float] = x.tolist()
    return found
