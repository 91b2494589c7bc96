"""IFCL's fraternal twin: token embeddings mixed with those of a translation."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import AUGMENTERS
from registry.encoders import architectures
from registry.encoders import backbone as halves
from registry.errors import CseError, suggestion
from registry.resources.models import load_model
from registry.tokens import Embedded, Tokens, copy_to_device
from registry.types import Augmenter, Encoder, ModelName, Step, Tune
from registry.vocabulary import HubVocabulary


@AUGMENTERS.register("fuse_embeddings")
class FuseEmbeddings(Augmenter, nn.Module):
    """Mix each token embedding with the one at the same place of the sentence's translation.

    y⁻ = ε·y + (1 − ε)·y′, with y the encoder's token embeddings of the sentence x, and y′ = BEL_F(x′) those of its
    translation x′ from the frozen embedding layer and the tokenizer of another model. Tokens are not aligned: place i
    is mixed with place i. The encoder applies dropout once, after mixing.

    Args:
        model: Model of the other language. Only its embedding layer is loaded.
        column: Column of the data with the translations.
        rate: Weight ε of the sentence itself. With 1 nothing changes.
        mask: Attention mask: that of the "source" sentence, of the "fraternal" one, or their "union".
        pad_fill: Result at places with a token in only one of the two: "source" keeps its embedding, "zero" mixes it
            with zeros, "pad_embedding" with the other's embedding of [PAD].

    Shapes: (B, L, W) → (B, L, W). L grows to the longer of the two, except with mask "source".

    Source: IFCL (arXiv 2307.10932) §3.1.2 and Algorithm 1. Doubtful and settled in methods/ifcl.md: the place in the
    embedding layer (A3, the encoder's `augment_at`), mask and padding (A5, `mask`, `pad_fill`), and ALBERT's projection
    to the hidden width, which is applied if the widths differ (A15).

    Example:
        [views.fraternal]
        encoder = "online"
        augment = [{ name = "fuse_embeddings", model = "mini_de", column = "translation", rate = 0.9 }]
    """

    stateful: ClassVar[bool] = False

    def __init__(
        self,
        model: ModelName,
        column: str = "translation",
        rate: Annotated[float, Field(ge=0, le=1), Tune(0.1, 1.0)] = 0.9,
        mask: Literal["source", "union", "fraternal"] = "source",
        pad_fill: Literal["source", "zero", "pad_embedding"] = "source",
    ) -> None:
        super().__init__()
        self.model, self.column, self.rate = model, column, rate
        self.mask, self.pad_fill = mask, pad_fill
        self.vocabulary = HubVocabulary(model)
        self.foreign = ForeignEmbeddings(model)
        self._encoder: tuple[Encoder, ...] = ()  # in a tuple, so that its weights do not become this module's

    def bind(self, encoder: Encoder) -> None:
        """Match the width of the view's encoder."""
        if not self.foreign.fit_width(encoder.width):
            widths = " or ".join(map(str, self.foreign.widths))
            source = getattr(encoder, "model", type(encoder).__name__)
            raise CseError(
                f"fuse_embeddings: token embeddings of model {self.model!r} have width {widths}, but those of "
                f"encoder {source!r} have width {encoder.width}",
                f"choose a model with hidden_size {encoder.width}, or another encoder",
                code="augmenters.wrong_width",
            )
        self._encoder = (encoder,)

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - the hook's form
        """Return the mixed embeddings before dropout, and the mask that `mask` selects."""
        if self.rate == 1:
            return embedded
        tokens = embedded.tokens
        column = str(self.column)
        if column not in tokens.side:
            raise CseError(
                f"view '{view}': fuse_embeddings needs column '{column}', which the data does not have."
                f"{suggestion(column, tokens.side)}",
                f"use a data set with it, or add [data.columns.{column}] to the recipe: cse show translate",
                code="augmenters.missing_column",
            )
        side = tokens.side[column]
        if self.mask != "source":
            tokens = tokens.padded_to(side.length)
        if side.length > tokens.length:
            cut = {name: getattr(side, name)[:, : tokens.length] for name in ("ids", "mask", "types", "positions")}
            side = replace(side, **cut)
        side = side.padded_to(tokens.length)
        side = replace(side, ids=side.ids.masked_fill(side.mask == 0, self.foreign.pad))
        vectors = self._fuse(self._extended(embedded, tokens), tokens.mask, side)
        mask = {"source": tokens.mask, "fraternal": side.mask, "union": tokens.mask | side.mask}[self.mask]
        return Embedded(replace(tokens, mask=mask), vectors)

    def _bound(self) -> Encoder:
        if not self._encoder:
            raise CseError(
                "fuse_embeddings was used before bind(encoder)",
                "call bind(encoder) with the encoder of its view first",
                code="augmenters.not_bound",
            )
        return self._encoder[0]

    def _extended(self, embedded: Embedded, tokens: Tokens) -> Tensor:
        """Return the sentence's embeddings at all places of `tokens`. New places have [PAD] or zeros."""
        extra = tokens.length - embedded.tokens.length
        if extra <= 0:
            return embedded.vectors
        if self.pad_fill != "pad_embedding":
            return F.pad(embedded.vectors, (0, 0, 0, extra))
        pad = self._bound().vocabulary.pad([[], [0]]).ids[0, 0]
        filled = replace(tokens, ids=torch.where(tokens.mask == 1, tokens.ids, copy_to_device(pad, tokens.ids.device)))
        return torch.cat([embedded.vectors, self._bound().embed(filled)[:, -extra:]], dim=1)

    def _fuse(self, source: Tensor, source_mask: Tensor, side: Tokens) -> Tensor:
        foreign: Tensor = self.foreign(side, self._bound().augment_at).to(source.dtype)
        mixed = self.rate * source + (1 - self.rate) * foreign
        if self.pad_fill == "pad_embedding":
            return mixed
        ours, theirs = source_mask.unsqueeze(-1) == 1, side.mask.unsqueeze(-1) == 1
        if self.pad_fill == "zero":
            alone, other = self.rate * source, (1 - self.rate) * foreign
        else:
            alone, other = source, foreign
        return torch.where(theirs, torch.where(ours, mixed, other), alone)


class ForeignEmbeddings(nn.Module):
    """Embedding layer of a second model.

    Args:
        model: Name or directory of the model. Its other layers are not loaded.
    """

    def __init__(self, model: str) -> None:
        super().__init__()
        loaded = load_model(model, embeddings_only=True)
        architectures.require_split(loaded, "fuse_embeddings")
        halves.take_dropout(loaded)
        self._model = (loaded,)  # in a tuple, so that only its embedding layer becomes this module's
        self.pad = int(loaded.config.pad_token_id or 0)
        self.embeddings = loaded.embeddings
        found = getattr(loaded.encoder, "embedding_hidden_mapping_in", None)
        self.projection: nn.Linear | None = found if found is not None else getattr(loaded, "embeddings_project", None)
        self.projects = False
        """Whether `projection` is applied, which ALBERT has outside its embedding layer."""
        self.requires_grad_(False)

    @property
    def widths(self) -> list[int]:
        """Possible widths of the embeddings. The layer's own width is the first."""
        own = int(self.embeddings.word_embeddings.embedding_dim)
        return [own] if self.projection is None else [own, int(self.projection.out_features)]

    def fit_width(self, width: int) -> bool:
        """Return whether the embeddings can have this width, and set `projects` accordingly."""
        self.projects = width != self.widths[0]
        return width in self.widths

    @torch.no_grad()
    def forward(self, tokens: Tokens, site: str) -> Tensor:
        """Return (B, L, W) without dropout: the output of the layer ("layer"), or word embeddings ("word")."""
        embed = halves.embed_words if site == "word" else halves.embed_layer
        vectors = embed(self._model[0], tokens)
        if self.projects and self.projection is not None:
            vectors = self.projection(vectors)
        return vectors
