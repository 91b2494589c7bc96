"""Masked language models of transformers, and whether their prediction heads are really there. Registers nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from registry.errors import CseError, MissingError
from registry.models import EMBEDDINGS_ONLY, load_config, locate, quiet_transformers


def load_language_model(model: str) -> tuple[Any, bool]:
    """Return the model in float32 and eval mode, and whether the checkpoint holds its prediction head.

    Raises:
        MissingError: Other weights than the head's are missing.
        CseError: The architecture has no masked language model.
    """
    from transformers import AutoModelForMaskedLM

    quiet_transformers()
    path, settings = locate(model), load_config(model)
    if getattr(settings, EMBEDDINGS_ONLY, False):
        raise MissingError(f"model {model!r} in {path} holds an embedding layer only", "name a complete model")
    try:
        loaded, report = AutoModelForMaskedLM.from_pretrained(
            path, config=settings, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        why = str(error).strip().partition("\n")[0]
        raise CseError(
            f"model {model!r} in {path} cannot be loaded as a masked language model: {why}",
            "name a BERT, DistilBERT or RoBERTa checkpoint",
        ) from error
    inside = f"{loaded.base_model_prefix}."
    lost = sorted(key for key in report["missing_keys"] if key.startswith(inside))
    if lost:
        raise MissingError(
            f"the checkpoint of model {model!r} in {path} lacks {len(lost)} weights, among them {lost[0]!r}: "
            "they would stay random",
            "give the complete model",
        )
    return loaded.eval(), not report["missing_keys"]


class LanguageHead(nn.Module):
    """States → scores of every id: E·LayerNorm(σ(W h + b)) + c, with E given by whoever owns the embedding layer.

    Args:
        states: Width of the states.
        words: Rows and columns of E.
        activation: Name of σ, as transformers calls it.
        epsilon: Of the LayerNorm.
    """

    def __init__(self, states: int, words: tuple[int, int], activation: str, epsilon: float) -> None:
        super().__init__()
        from transformers.activations import ACT2FN

        rows, width = words
        self.dense = nn.Linear(states, width)
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(rows))
        self.activation: Callable[[Tensor], Tensor] = ACT2FN[activation]

    @torch.no_grad()
    def copy_from(self, model: Any) -> None:
        """Take the weights of the head of a transformers masked language model.

        Raises:
            CseError: It is not one dense layer, one norm and a decoder.
        """
        decoder = model.get_output_embeddings()
        inside = {id(part) for part in model.base_model.modules()}
        rest = [part for part in model.modules() if id(part) not in inside and part is not decoder]
        dense = [part for part in rest if isinstance(part, nn.Linear)]
        norms = [part for part in rest if isinstance(part, nn.LayerNorm)]
        if len(dense) != 1 or len(norms) != 1 or dense[0].weight.shape != self.dense.weight.shape:
            raise CseError(
                f"the prediction head of {type(model).__name__} is not BERT's: one dense layer, a norm and a decoder",
                'set initial = "fresh"',
            )
        self.dense.load_state_dict(dense[0].state_dict())
        self.norm.load_state_dict(norms[0].state_dict())
        self.bias.copy_(decoder.bias)

    def forward(self, states: Tensor, words: Tensor) -> Tensor:
        """Return (n, V) scores of (n, D) states, given E (V, W)."""
        bent: Tensor = self.norm(self.activation(self.dense(states)))
        return nn.functional.linear(bent, words.to(bent.dtype), self.bias)
