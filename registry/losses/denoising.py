"""DenoSent's second loss: the sentence vector must give back a sentence whose token vectors are all but dropped."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import LOSSES, Tune
from registry.distributed import sum_devices, world_size
from registry.errors import CseError
from registry.losses.masked_language_modelling import MaskedLanguageModelling
from registry.tokens import Encoded
from registry.types import Encoder, Loss


@LOSSES.register("denoising")
class Denoising(Loss):
    """Predict every token of a sentence from its dropped token vectors and a sentence vector.

    ℓ = −1/Σₗ mₗ Σₗ mₗ log softmax( P(T(drop(e), z))ₗ )[xₗ],
    with e what enters the encoder's blocks, without gradient, T a transformer decoder without causal mask whose
    cross-attention has the sentence vector z for its only key and value, P the masked language model's head over the
    encoder's word embeddings, and m 1 for the places that count; the sums go over the batch, on all devices. The
    decoder is trained, and kept in checkpoints of the run only.

    Args:
        encoder: The encoder of the views; the word embeddings of P are its own.
        layers: Of T.
        attention_heads: Of each of its attentions.
        noise: Rate at which e is dropped.
        feed_forward: Width of its feed-forward layers.
        dropout: Rate within T.
        places: m: "all" real tokens, or the "text" of the sentence without template and special tokens.
        initial: P at first, as `masked_language_modelling` takes it.

    Shapes: sentence (B, D), embeddings (B, L, D) → scores (B, L, V) → a scalar.

    Source: DenoSent (Wang et al. 2024) and its code. Doubtful and settled in methods/denosent.md: DN1 `noise`, DN2
    which view is the target, DN5 `places`, DN6 `feed_forward` and `dropout`.

    Raises:
        CseError: Sentence and token vectors have different widths, or the heads do not divide them.
    """

    reads_hidden = False
    steering: ClassVar[frozenset[str]] = frozenset({"target"})

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
        if encoder.dim != encoder.width or encoder.width % attention_heads:
            raise CseError(
                f"denoising: sentence vectors are {encoder.dim} wide, token vectors {encoder.width}, for "
                f"{attention_heads} attention heads",
                "use heads that keep the width of the token vectors, and a number of attention heads that divides it",
            )
        self.noise, self.places = noise, places
        self.language = MaskedLanguageModelling(encoder, initial)
        block = nn.TransformerDecoderLayer(encoder.width, attention_heads, feed_forward, dropout, batch_first=True)
        self.decoder = nn.TransformerDecoder(block, layers)
        for weights in self.decoder.parameters():  # the layers are copies of one
            if weights.ndim > 1:
                nn.init.xavier_uniform_(weights)

    def forward(self, anchor: Encoded, target: Encoded) -> Tensor:
        """Return the loss of the batch: the target's tokens, given the anchor's sentence vector."""
        tokens = target.tokens
        if self.places == "text" and tokens.text is None:
            raise CseError('denoising: places = "text" needs a template', 'set places = "all", or give the view one')
        noised = F.dropout(target.embeddings.detach(), self.noise, self.training)
        states = self.decoder(noised, anchor.sentence.unsqueeze(1), tgt_key_padding_mask=tokens.mask == 0)
        counted = (tokens.mask if self.places == "all" or tokens.text is None else tokens.text) == 1
        labels = tokens.ids.masked_fill(~counted, -100)
        scores = self.language.scores(states)
        total = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
        return total * world_size() / sum_devices(counted.sum()).clamp(min=1)

    def notices(self) -> list[str]:
        """Warn once that P is a fresh one because the checkpoint has none."""
        return self.language.notices()
