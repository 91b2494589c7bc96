"""InfoCSE's second loss: restore masked tokens with a small network that reads the sentence embedding."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from registry import LOSSES
from registry.encoders import backbone as halves
from registry.encoders.blocks import run_blocks
from registry.encoders.packing import Rows
from registry.errors import CseError
from registry.losses.masked_language_modeling import MaskedLanguageModeling
from registry.masking import Masking, Rate, Share
from registry.tokens import Encoded, Tokens
from registry.types import Component, Encoder, Loss


@LOSSES.register("side_language_model")
class SideLanguageModel(Loss):
    """Restore masked tokens from the states of a lower, frozen layer and the embedding of the whole sentence.

    g = F(mask(x)), g₀ = h;  u = T(g);  ℓ = −1/|M| Σ_{(i,l) ∈ M} log softmax( E·LayerNorm(gelu(W u_il + b)) + c )[x_il],
    with F the encoder's lower layers with their initial weights, without gradient, h the embedding of x before the
    heads, with gradient, T some trained transformer layers, M the masked places of the batch on all devices, and E
    separate trained word embeddings. The two copies of a sentence are masked independently.

    Shapes: tokens (B, L) and sentence (B, D) of two views → 2B rows, scores (|M|, V) → a scalar.

    Source: InfoCSE (Wu et al. 2022) and its code (caskcsg/sentemb @5eeec55, InfoCSE,
    `infocse/models_cls_mlm.py:161-198`). Settled in methods/infocse.md: the term is tiny (IN1, its `weight`), F is
    constant (IN2), T starts from random weights (IN4), F drops out in the script of the large model (IN7,
    `frozen_dropout`).

    Args:
        encoder: Encoder of the two views.
        frozen_layers: Number of layers of F.
        trained_layers: Number of layers of T, with initial weights from N(0, σ²), σ the encoder's initial deviation.
        masking: Share of masked tokens among those that are not special tokens.
        mask_share: Share of masked tokens that become [MASK].
        random_share: Share of masked tokens that become a random id. The others are unchanged.
        frozen_dropout: Whether F uses dropout in training, with the encoder's rates.
        initial: Initial W, b, c and LayerNorm, as in `masked_language_modeling`.

    Raises:
        CseError: If the encoder has no transformer layers, or fewer than `frozen_layers`.

    Example:
        [losses.side_language_model]
        weight = 1e-5
        frozen_layers = 2
        trained_layers = 1
        masking = 0.4

        >>> import torch
        >>> from registry import ENCODERS, LOSSES
        >>> encoder = ENCODERS["transformer"].build({"model": "mini_en", "pooling": "mean"}).eval()
        >>> tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(["a red house", "two dogs run"], 16))
        >>> view = encoder.encode(tokens, encoder.embed(tokens))
        >>> _ = torch.manual_seed(0)
        >>> values = {"frozen_layers": 2, "trained_layers": 1, "masking": 0.5, "initial": "fresh"}
        >>> loss = LOSSES["side_language_model"].build(values, {"online": encoder}).eval()
        >>> round(loss(view, view).item(), 1)
        9.0
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
        frozen_dropout: bool = False,
        initial: Literal["checkpoint_or_fresh", "checkpoint", "fresh"] = "checkpoint_or_fresh",
    ) -> None:
        super().__init__()
        backbone: Any = getattr(encoder, "backbone", None)
        count = len(getattr(getattr(backbone, "encoder", None), "layer", ()))
        if count < max(1, frozen_layers):
            raise CseError(
                f"side_language_model: frozen_layers = {frozen_layers}, but encoder {type(encoder).__name__} has "
                f"{count} transformer layers",
                f"set frozen_layers to at most {count}" if count else 'use an encoder of type "transformer"',
                code="losses.too_few_layers",
            )
        self.masking = Masking("side_language_model", encoder.vocabulary, masking, mask_share, random_share)
        self.frozen = FrozenLayers(
            backbone, frozen_layers, getattr(encoder, "dropout", None) if frozen_dropout else None
        )
        self.trained = fresh_layers(backbone, trained_layers)
        self.restore = MaskedLanguageModeling(encoder, initial, tied=False)

    def forward(self, anchor: Encoded, positive: Encoded) -> Tensor:
        """Return the loss of the batch."""
        tokens = Tokens.stack({"anchor": anchor.tokens, "positive": positive.tokens})
        ids, hidden = self.masking.hide(tokens)
        targets = torch.where(hidden, tokens.ids, -100)
        states = self.frozen(replace(tokens, ids=ids))
        first = torch.cat([anchor.before_heads, positive.before_heads]).to(states.dtype)
        if first.shape[1] != states.shape[2]:
            raise CseError(
                f"side_language_model: sentence embeddings have {first.shape[1]} dimensions, the states of its "
                f"layers {states.shape[2]}",
                "set `encoder` of the loss to the encoder of its views",
                code="losses.width_mismatch",
            )
        states = torch.cat([first.unsqueeze(1), states[:, 1:]], dim=1)
        (states,) = run_blocks(self.trained, states, Rows(tokens.mask), all_states=False)
        value: Tensor = self.restore(Encoded(first, states, states, replace(tokens, targets=targets)))
        return value

    def notices(self) -> list[str]:
        """Return a warning, once, if the checkpoint has no prediction head."""
        return self.restore.notices()


class FrozenLayers(Component, nn.Module):
    """Frozen copy of the lower layers of a transformers model. It is not trained, and excluded from checkpoints."""

    stateful: ClassVar[bool] = False

    def __init__(self, backbone: Any, layers: int, dropout: nn.Module | None = None) -> None:
        super().__init__()
        self.dropout = copy.deepcopy(dropout)
        self.backbone = copy.deepcopy(backbone)
        self.backbone.encoder.layer = self.backbone.encoder.layer[:layers]
        self.requires_grad_(False).train()

    def train(self, mode: bool = True) -> FrozenLayers:
        """Set training mode if the copy uses dropout, else evaluation mode."""
        return super().train(mode and self.dropout is not None)

    @torch.no_grad()
    def forward(self, tokens: Tokens) -> Tensor:
        """Return (B, L, D) states."""
        vectors = halves.embed_layer(self.backbone, tokens)
        vectors = vectors if self.dropout is None else self.dropout(vectors)
        (states,) = run_blocks(self.backbone, vectors, Rows(tokens.mask), all_states=False)
        return states


def fresh_layers(backbone: Any, layers: int) -> Any:
    """Return a transformers model of random blocks with the architecture of `backbone`, without embedding layer."""
    made = copy.deepcopy(backbone)
    made.embeddings, made.embeddings_project = nn.Identity(), nn.Identity()
    # All blocks read the attention type from the configuration of their model, which changes while rows are packed.
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
