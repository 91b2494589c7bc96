"""SG-OPT's loss: align the sentence embedding with every layer of a frozen copy of its encoder."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import LOSSES
from registry.distributed import all_devices
from registry.errors import CseError
from registry.losses.contrast import cosine_matrix
from registry.losses.nt_xent import NTXent
from registry.tokens import Encoded
from registry.types import Encoder, Loss, Negatives, Tune


@LOSSES.register("self_guided")
class SelfGuided(Loss):
    """Select, for each sentence and layer, the layer's vector of the same sentence among those of all other sentences.

    ℓᵢₖ = −log( e^{s(cᵢ,vᵢₖ)/T} / ( e^{s(cᵢ,vᵢₖ)/T} + Σ_{j≠i} Σₘ e^{s(cᵢ,vⱼₘ)/T} ) ), averaged over i and k,
    with c the embeddings of the trained encoder, vₖ layer k of a frozen copy followed by the heads of the trained
    encoder, and s the cosine. The three simpler objectives of the paper sample one layer v per sentence. "nt_xent" is
    NT-Xent over the 2N rows of c and v. "opt1" has only c as anchors, and Σ_{j≠i} e^{s(cᵢ,cⱼ)/T} + e^{s(cᵢ,vⱼ)/T} in
    addition to the positive. "opt2" omits s(cᵢ,cⱼ).

    Shapes: anchor.sentence (B, D), frozen.layers (B, K, D′) → (N, D), (N, K, D) from all devices → a scalar.

    Source: SG-OPT (Kim, Yoo and Lee 2021, sections 3.1 and 3.2) and its code (`loss.py`). Doubtful and settled in
    methods/sg_opt.md: the heads also transform the copy's vectors, and learn from both (SG3).

    Args:
        encoder: Trained encoder, whose heads also transform the copy's vectors.
        objective: "sg_opt", or one of the simpler objectives.
        temperature: Divisor T of the cosines.

    Raises:
        CseError: If the encoder of the view `frozen` returns no layers.

    Example:
        [encoders.frozen]
        name = "frozen_copy"
        of = "online"

        [views.frozen]
        encoder = "frozen"

        [losses.self_guided]
        temperature = 0.01

        >>> import torch
        >>> from registry import ENCODERS, LOSSES
        >>> encoder = ENCODERS["transformer"].build({"model": "mini_en", "pooling": "mean"}).eval()
        >>> tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(["a red house", "two dogs run"], 16))
        >>> view = encoder.encode(tokens, encoder.embed(tokens))
        >>> frozen = ENCODERS["frozen_copy"].build({"of": "online"}, {"online": encoder})
        >>> teacher = frozen.encode(tokens, frozen.embed(tokens))
        >>> loss = LOSSES["self_guided"].build({"temperature": 1.0}, {"online": encoder})
        >>> round(loss(view, teacher).item(), 2)
        1.65
    """

    reads_hidden = False

    def __init__(
        self,
        encoder: Encoder,
        objective: Literal["sg_opt", "nt_xent", "opt1", "opt2"] = "sg_opt",
        temperature: Annotated[float, Field(gt=0), Tune(0.005, 0.1, log=True)] = 0.01,
    ) -> None:
        super().__init__()
        self._encoder = (encoder,)  # in a tuple: not a sub-module
        self.objective, self.temperature = objective, temperature

    def forward(self, anchor: Encoded, frozen: Encoded) -> Tensor:
        """Return the loss of the batch."""
        if frozen.layers is None:
            raise CseError(
                "self_guided: the encoder of view 'frozen' returns no vectors of its layers",
                'set the encoder of the view to one with name = "frozen_copy"',
                code="losses.no_layers",
            )
        layers = frozen.layers
        if self.objective != "sg_opt":
            drawn = torch.randint(layers.shape[1], (len(layers),), device=layers.device)
            layers = layers[torch.arange(len(layers), device=layers.device), drawn].unsqueeze(1)
        projected = self._encoder[0].project(layers.flatten(0, 1)).view(*layers.shape[:2], -1)
        anchors, guides = all_devices(anchor.sentence), all_devices(projected)
        if self.objective == "nt_xent":
            return NTXent(self.temperature, "mean").forward(anchors, guides[:, 0], Negatives.none(anchors))
        logits = cosine_matrix(anchors, guides.flatten(0, 1)).view(len(anchors), *guides.shape[:2]) / self.temperature
        own = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
        positive = logits.diagonal().T
        others = logits.masked_fill(own.unsqueeze(2), -torch.inf).flatten(1)
        if self.objective == "opt1":
            among = (cosine_matrix(anchors, anchors) / self.temperature).masked_fill(own, -torch.inf)
            others = torch.cat([others, among], dim=1)
        return F.softplus(others.logsumexp(dim=1, keepdim=True) - positive).mean()
