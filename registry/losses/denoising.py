"""DenoSent's second loss: reconstruct a sentence from its embedding and heavily dropped token vectors."""

from __future__ import annotations

from typing import Annotated, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import LOSSES, Tune
from registry.distributed import sum_devices, world_size
from registry.errors import CseError
from registry.losses.masked_language_modeling import MaskedLanguageModeling
from registry.tokens import Encoded
from registry.types import Encoder, Loss


@LOSSES.register("denoising")
class Denoising(Loss):
    """Predict every token of a sentence from its dropped token vectors and a sentence embedding.

    ℓ = −1/Σₗ mₗ Σₗ mₗ log softmax( P(T(drop(e), z))ₗ )[xₗ],
    with e the input of the encoder's blocks, without gradient, T a transformer decoder without causal mask whose
    cross-attention has the sentence embedding z as its only key and value, P the prediction head of a masked language
    model over the encoder's word embeddings, and m 1 for the counted places. The sums are over the batch on all
    devices. The decoder is trained. Only checkpoints of the run contain it. Its dense layers, including the output of
    each attention, start from N(0, 0.02²) with biases 0. The query, key and value weights of its attentions start as in
    torch: Xavier uniform, biases 0, and the same values in every layer.

    Shapes: sentence (B, D), embeddings (B, L, D) → scores (B, L, V) → a scalar.

    Source: DenoSent (Wang et al. 2024) and its code (xinghaow99/DenoSent @35d05f5, `model.py:19-43`). Doubtful and
    settled in methods/denosent.md: DN1 `noise`, DN2 which view is the target, DN5 `places`, DN6 `feed_forward` and
    `dropout`, DN9 the initial weights.

    Args:
        encoder: Encoder of the views, whose word embeddings P uses.
        layers: Number of layers of T.
        attention_heads: Number of heads of each attention of T.
        noise: Dropout rate of e.
        feed_forward: Width of the feed-forward layers of T.
        dropout: Dropout rate inside T.
        places: Counted places m: "all" real tokens, or only the "text" of the sentence, without template and special
            tokens.
        initial: Initial weights of P, as in `masked_language_modeling`.

    Raises:
        CseError: If sentence embeddings and token vectors differ in width, or `attention_heads` does not divide it.

    Example:
        [losses.denoising]
        weight = 7.0
        layers = 2
        feed_forward = 768
        noise = 0.825
        views = { target = "positive" }

        >>> import torch
        >>> from registry import ENCODERS, LOSSES
        >>> encoder = ENCODERS["transformer"].build({"model": "mini_en", "pooling": "mean"}).eval()
        >>> tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(["a red house", "two dogs run"], 16))
        >>> view = encoder.encode(tokens, encoder.embed(tokens))
        >>> _ = torch.manual_seed(0)
        >>> values = {"layers": 1, "noise": 0.0, "initial": "fresh"}
        >>> loss = LOSSES["denoising"].build(values, {"online": encoder}).eval()
        >>> round(loss(view, view).item(), 1)
        9.4
    """

    reads_hidden = False
    steering: frozenset[str] = frozenset({"target"})

    def __init__(
        self,
        encoder: Encoder,
        layers: Annotated[int, Field(ge=1), Tune(1, 16)] = 16,
        attention_heads: Annotated[int, Field(ge=1)] = 1,
        noise: Annotated[float, Field(ge=0, lt=1), Tune(0.5, 0.95)] = 0.825,
        feed_forward: Annotated[int, Field(ge=1)] = 2048,
        dropout: Annotated[float, Field(ge=0, lt=1), Tune(0.0, 0.3)] = 0.1,
        places: Literal["all", "text"] = "all",
        initial: Literal["checkpoint_or_fresh", "checkpoint", "fresh"] = "checkpoint_or_fresh",
    ) -> None:
        super().__init__()
        if encoder.dim != encoder.width:
            raise CseError(
                f"denoising: sentence embeddings have {encoder.dim} dimensions, token vectors {encoder.width}",
                "use heads that keep the width of the token vectors",
                code="losses.width_mismatch",
            )
        if encoder.width % attention_heads:
            raise CseError(
                f"denoising: attention_heads = {attention_heads} does not divide {encoder.width}, the width of the "
                "token vectors",
                "set attention_heads to a divisor of the width, such as 1",
                code="losses.indivisible_width",
            )
        self.noise, self.places = noise, places
        self.language = MaskedLanguageModeling(encoder, initial)
        block = nn.TransformerDecoderLayer(encoder.width, attention_heads, feed_forward, dropout, batch_first=True)
        self.decoder = nn.TransformerDecoder(block, layers)
        for module in self.decoder.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, anchor: Encoded, target: Encoded) -> Tensor:
        """Return the loss of the batch: the target's tokens given the anchor's embedding."""
        tokens = target.tokens
        if self.places == "text" and tokens.text is None:
            raise CseError(
                'denoising: places = "text" requires a view with a template',
                'set places = "all", or set `template` for the target view',
                code="losses.no_template",
            )
        noised = F.dropout(target.embeddings.detach(), self.noise, self.training)
        states = self.decoder(noised, anchor.sentence.unsqueeze(1), tgt_key_padding_mask=tokens.mask == 0)
        counted = (tokens.mask if self.places == "all" or tokens.text is None else tokens.text) == 1
        labels = tokens.ids.masked_fill(~counted, -100)
        scores = self.language.scores(states)
        total = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
        return total * world_size() / sum_devices(counted.sum()).clamp(min=1)

    def notices(self) -> list[str]:
        """Return a warning, once, if the checkpoint has no prediction head."""
        return self.language.notices()
