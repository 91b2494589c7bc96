"""BERT's masked language modeling, for pre-training an encoder or as SimCSE's second loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import LOSSES
from registry.distributed import sum_devices, world_size
from registry.errors import CseError
from registry.resources.models import load_language_model
from registry.tokens import Encoded
from registry.types import Encoder, Loss


@LOSSES.register("masked_language_modeling")
class MaskedLanguageModeling(Loss):
    """Predict the tokens that an augmenter masked.

    ℓ = −1/|M| Σ_{(i,l) ∈ M} log softmax( E·LayerNorm(gelu(W h_il + b)) + c )[x_il],
    with M the masked places of the batch on all devices, h the last layer, x the original ids, and E the encoder's own
    word embeddings. E is tied: both uses train it, and it stays constant if the encoder freezes it. The loss of a batch
    without masked tokens is 0.

    With a `shift` k, the head is that of a decoder, one matrix, and the state k places before a token predicts it:
    ℓ = −1/|M| Σ_{(i,l) ∈ M} log softmax( E·h_{i,l−k} )[x_il]; tokens before place k are not predicted.

    Shapes: hidden (B, L, D), targets (B, L) → a scalar. Scores are computed at masked places only, (|M|, V).

    Source: BERT (Devlin et al. 2019) §3.1; SimCSE's code for the combination with a contrastive loss; LLM2Vec
    (BehnamGhader et al. 2024) for the shift. Doubtful and settled in methods/masked_language_modeling.md: the decoder,
    which SimCSE's code leaves untied (L1, `tied`), and masking in both copies of a sentence in SimCSE's code (L2, a
    second view `masked_again`, or several); in methods/llm2vec.md: whether a decoder's own matrix is trained (LV5).

    Args:
        encoder: Encoder of the view, whose word embeddings decode the states.
        initial: Initial W, b, c and LayerNorm: "checkpoint" is the prediction head of the encoder's checkpoint, "fresh"
            is random (W from N(0, 0.02²)), "checkpoint_or_fresh" is random only if the checkpoint has no head.
        tied: Whether E is the encoder's own matrix. Otherwise E is a separately trained copy. With a shift, E is also a
            separate matrix if the checkpoint has one.
        shift: Distance from a masked token back to the state that predicts it: 1 is masked next-token prediction.
            Default: 0, with BERT's head.

    Example:
        [views.masked]
        [[views.masked.augment]]
        name = "mask_tokens"
        rate = 0.15

        [losses.masked_language_modeling]
        weight = 0.1
        initial = "fresh"

        >>> import torch
        >>> from dataclasses import replace
        >>> from registry import ENCODERS, LOSSES
        >>> encoder = ENCODERS["transformer"].build({"model": "mini_en", "pooling": "mean"}).eval()
        >>> tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(["a red house", "two dogs run"], 16))
        >>> hidden = torch.arange(tokens.length) == 2  # the second word of each sentence
        >>> ids = tokens.ids.masked_fill(hidden, encoder.vocabulary.mask)
        >>> masked = replace(tokens, ids=ids, targets=torch.where(hidden, tokens.ids, -100))
        >>> _ = torch.manual_seed(0)
        >>> loss = LOSSES["masked_language_modeling"].build({"initial": "fresh"}, {"online": encoder})
        >>> round(loss(encoder.encode(masked, encoder.embed(masked))).item(), 1)
        10.1
    """

    def __init__(
        self,
        encoder: Encoder,
        initial: Literal["checkpoint_or_fresh", "checkpoint", "fresh"] = "checkpoint_or_fresh",
        tied: bool = True,
        shift: Annotated[int, Field(ge=1, le=512)] | None = None,
    ) -> None:
        super().__init__()
        backbone: Any = getattr(encoder, "backbone", None)
        words = None if backbone is None else backbone.get_input_embeddings()
        if words is None:
            raise CseError(
                f"masked_language_modeling: encoder {type(encoder).__name__} has no word embeddings",
                'use an encoder of type "transformer"',
                code="losses.no_word_embeddings",
            )
        self.shift = shift or 0
        self._words = (words,)  # in a tuple: not a sub-module
        self.decoder = None if tied else nn.Parameter(words.weight.detach().clone())
        self._notices: list[str] = []
        self.head: LanguageHead | LinearHead
        if shift is not None:
            self.head = LinearHead()
        else:
            config = backbone.config
            shape = (words.num_embeddings, words.embedding_dim)
            self.head = LanguageHead(config.hidden_size, shape, config.hidden_act, config.layer_norm_eps)
        if initial != "fresh":
            self._start(str(getattr(encoder, "model", "")), demanded=initial == "checkpoint")

    def forward(self, masked: Encoded, masked_again: tuple[Encoded, ...] = ()) -> Tensor:
        """Return the loss of the batch, over the masked places of all views."""
        states, targets = zip(*(_hidden(view, self.shift) for view in (masked, *masked_again)), strict=True)
        labels = torch.cat(targets)
        total = F.cross_entropy(self.scores(torch.cat(states)), labels, reduction="sum")
        # The mean over the places of all devices: each device's share is scaled so that averaging gradients is exact.
        count = sum_devices(torch.full((), len(labels), device=total.device))
        return total * world_size() / count.clamp(min=1)

    def scores(self, states: Tensor) -> Tensor:
        """Return (…, V) scores of every id for states (…, D)."""
        words = self._words[0].weight if self.decoder is None else self.decoder
        found: Tensor = self.head(states, words)
        return found

    def notices(self) -> list[str]:
        """Return a warning, once, if the checkpoint has no prediction head."""
        notices, self._notices = self._notices, []
        return notices

    @torch.no_grad()
    def _start(self, model: str, demanded: bool) -> None:
        loaded, complete = load_language_model(model, causal=self.shift > 0)
        if complete and isinstance(self.head, LanguageHead):
            self.head.copy_from(loaded)
        elif complete:
            self._own_matrix(loaded)
        elif demanded:
            raise CseError(
                f'masked_language_modeling: initial = "checkpoint", but the checkpoint of model {model!r} has no '
                "prediction head",
                'use a checkpoint of a masked language model, or set initial = "fresh"',
                code="losses.no_prediction_head",
            )
        else:
            self._notices = [f"masked_language_modeling: model {model!r} has no prediction head, a random one is used"]

    def _own_matrix(self, model: Any) -> None:
        """Copy the decoder matrix of a causal language model if it differs from the input embeddings."""
        decoder = model.get_output_embeddings()
        if decoder.bias is not None:
            raise CseError(
                f"masked_language_modeling: the prediction head of {type(model).__name__} has a bias",
                'set initial = "fresh"',
                code="losses.unsupported_prediction_head",
            )
        if decoder.weight is not model.get_input_embeddings().weight:
            self.decoder = nn.Parameter(decoder.weight.detach().clone())


def _hidden(view: Encoded, shift: int) -> tuple[Tensor, Tensor]:
    """Return the states `shift` places before the masked tokens, and the original ids."""
    targets = view.tokens.targets
    if targets is None:
        raise CseError(
            "masked_language_modeling: the view 'masked' has no masked tokens",
            'add an augmenter to the view: [[views.masked.augment]] name = "mask_tokens"',
            code="losses.no_masked_tokens",
        )
    states, targets = view.hidden[:, : view.hidden.shape[1] - shift], targets[:, shift:]
    # Only the device knows the number of masked places, so the step waits for the GPU.
    places = (targets.flatten() >= 0).nonzero().squeeze(1)
    return states.flatten(0, 1).index_select(0, places), targets.flatten().index_select(0, places)


class LinearHead(nn.Module):
    """Prediction head of a decoder: states → scores of every id, E·h, with E given."""

    def forward(self, states: Tensor, words: Tensor) -> Tensor:
        """Return (n, V) scores of (n, D) states, given E (V, D)."""
        return nn.functional.linear(states, words.to(states.dtype))


class LanguageHead(nn.Module):
    """BERT's prediction head: states → scores of every id, E·LayerNorm(σ(W h + b)) + c, with E given.

    Args:
        states: Width of the states.
        words: Rows and columns of E.
        activation: Name of σ in transformers.
        epsilon: Epsilon of the LayerNorm.
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
        """Copy the weights of the head of a transformers masked language model."""
        decoder = model.get_output_embeddings()
        inside = {id(part) for part in model.base_model.modules()}
        rest = [part for part in model.modules() if id(part) not in inside and part is not decoder]
        dense = [part for part in rest if isinstance(part, nn.Linear)]
        norms = [part for part in rest if isinstance(part, nn.LayerNorm)]
        if len(dense) != 1 or len(norms) != 1 or dense[0].weight.shape != self.dense.weight.shape:
            raise CseError(
                f"masked_language_modeling: the prediction head of {type(model).__name__} differs from BERT's (one "
                "dense layer, a norm and a decoder)",
                'set initial = "fresh"',
                code="losses.unsupported_prediction_head",
            )
        self.dense.load_state_dict(dense[0].state_dict())
        self.norm.load_state_dict(norms[0].state_dict())
        self.bias.copy_(decoder.bias)

    def forward(self, states: Tensor, words: Tensor) -> Tensor:
        """Return (n, V) scores of (n, D) states, given E (V, W)."""
        bent: Tensor = self.norm(self.activation(self.dense(states)))
        return nn.functional.linear(bent, words.to(bent.dtype), self.bias)
