"""InfoCSE's second loss: the sentence vector must help a small network to restore hidden tokens."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from registry import LOSSES
from registry.encoders import backbone as split
from registry.encoders.blocks import run_blocks
from registry.errors import CseError
from registry.losses.masked_language_modelling import MaskedLanguageModelling
from registry.masking import Masking, Rate, Share
from registry.tokens import Encoded, Tokens
from registry.types import Component, Encoder, Loss


@LOSSES.register("side_language_model")
class SideLanguageModel(Loss):
    """Restore hidden tokens from the states of a lower, frozen layer and the sentence vector of the whole sentence.

    g = F(mask(x)), g₀ = h;  u = T(g);  ℓ = −1/|M| Σ_{(i,l) ∈ M} log softmax( E·LayerNorm(gelu(W u_il + b)) + c )[x_il],
    with F the encoder's lower layers as they were before training, without gradient and dropout, h the sentence vector
    of x before the heads, with gradient, T some trained transformer layers, M the hidden places of the batch on all
    devices, and E trained word embeddings of this loss alone. Both copies of a sentence are hidden by themselves.

    Args:
        encoder: The encoder of the two views.
        frozen_layers: Layers of F.
        trained_layers: Layers of T, with fresh weights from N(0, σ²), σ the encoder's own initial deviation.
        masking: How many tokens that are no special ones are hidden.
        mask_share: Of the hidden, how many become [MASK].
        random_share: Of the hidden, how many become a random id; the rest stay.
        initial: W, b, c and the norm at first, as in `masked_language_modelling`.

    Shapes: tokens (B, L) and sentence (B, D) of two views → 2B rows, scores (|M|, V) → a scalar.

    Raises:
        CseError: The encoder has no layers of its own, or fewer than `frozen_layers`.

    Source: InfoCSE (Wu et al. 2022) and its code. Settled in methods/infocse.md: the term is tiny (IN1, its `weight`),
    F stays as it was (IN2), T starts from random weights (IN4).
    """

    reads_hidden = False

    def __init__(
        self,
        encoder: Encoder,
        frozen_layers: Annotated[int, Field(ge=0)] = 6,
        trained_layers: Annotated[int, Field(ge=1)] = 2,
        masking: Rate = 0.40,
        mask_share: Share = 0.8,
        random_share: Share = 0.1,
        initial: Literal["checkpoint_or_fresh", "checkpoint", "fresh"] = "checkpoint_or_fresh",
    ) -> None:
        super().__init__()
        backbone: Any = getattr(encoder, "backbone", None)
        count = len(getattr(getattr(backbone, "encoder", None), "layer", ()))
        if count < max(1, frozen_layers):
            raise CseError(
                f"side_language_model: frozen_layers = {frozen_layers}, but {type(encoder).__name__} has {count} "
                "layers of its own",
                f"set frozen_layers to at most {count}" if count else 'name a "transformer" encoder of the BERT family',
            )
        self.masking = Masking.of("side_language_model", encoder.vocabulary, masking, mask_share, random_share)
        self.frozen = FrozenLayers(backbone, frozen_layers)
        self.trained = fresh_layers(backbone, trained_layers)
        self.restore = MaskedLanguageModelling(encoder, initial, tied=False)

    def forward(self, anchor: Encoded, positive: Encoded) -> Tensor:
        """Return the loss of the batch."""
        tokens = Tokens.stack({"anchor": anchor.tokens, "positive": positive.tokens})
        ids, hidden = self.masking.hide(tokens)
        targets = torch.where(hidden, tokens.ids, -100)
        states = self.frozen(replace(tokens, ids=ids))
        first = torch.cat([anchor.before_heads, positive.before_heads]).to(states.dtype)
        if first.shape[1] != states.shape[2]:
            raise CseError(
                f"side_language_model: sentence vectors are {first.shape[1]} wide, the states of its layers "
                f"{states.shape[2]}",
                "let the views go through the encoder that the loss names",
            )
        states = torch.cat([first.unsqueeze(1), states[:, 1:]], dim=1)
        (states,) = run_blocks(self.trained, states, tokens.mask, all_states=False)
        value: Tensor = self.restore(Encoded(first, states, states, replace(tokens, targets=targets)))
        return value

    def notices(self) -> list[str]:
        """Warn once that the prediction head is a fresh one because the checkpoint has none."""
        return self.restore.notices()


class FrozenLayers(Component, nn.Module):
    """The lower layers of a transformers model as they are now; never trained, left out of checkpoints.

    Args:
        backbone: The model, which is copied.
        layers: How many; 0 is the embedding layer alone.
    """

    stateful: ClassVar[bool] = False

    def __init__(self, backbone: Any, layers: int) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(backbone)
        self.backbone.encoder.layer = self.backbone.encoder.layer[:layers]
        self.requires_grad_(False).train()

    def train(self, mode: bool = True) -> FrozenLayers:  # noqa: ARG002 - dropout stays off
        """Stay in eval mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, tokens: Tokens) -> Tensor:
        """Return (B, L, D)."""
        (states,) = run_blocks(self.backbone, split.embed_layer(self.backbone, tokens), tokens.mask, all_states=False)
        return states


def fresh_layers(backbone: Any, layers: int) -> Any:
    """Return a transformers model of fresh blocks, built as those of `backbone`, without an embedding layer."""
    made = copy.deepcopy(backbone)
    made.embeddings, made.embeddings_project = nn.Identity(), nn.Identity()
    # All blocks read how to attend from the configuration of their model, which is switched while rows are packed.
    blocks = [copy.deepcopy(backbone.encoder.layer[0], {id(backbone.config): made.config}) for _ in range(layers)]
    made.encoder.layer = nn.ModuleList(blocks)
    deviation = float(backbone.config.initializer_range)
    for part in made.encoder.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=deviation)
            nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm):
            part.reset_parameters()
    return made.requires_grad_(True).train()
