"""The encoder everything else builds on: a transformers checkpoint, a pooling, training heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from registry import ENCODERS
from registry.encoders import backbone as split
from registry.encoders.blocks import first_states, padded_states, run_blocks
from registry.encoders.export import Layout, export_encoder
from registry.encoders.head_dropout import HeadDropout, droppable
from registry.encoders.pooling import Pooling, needs_all_states, pool
from registry.errors import CseError
from registry.models import load_model
from registry.tokens import Encoded, Tokens
from registry.types import Encoder, Head, ModelName, Tune
from registry.vocabulary import HubVocabulary

Probability = Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.3)]
Scope = Literal["all", "embedding", "hidden"]


@ENCODERS.register("transformer")
class TransformerEncoder(Encoder):
    """Encode with a pre-trained BERT-like checkpoint, pool its last layer, and apply training heads.

    s = heads(pool(blocks(dropout(e)))), where e is the embedding layer's output, before its dropout: augmenters see e,
    then dropout is drawn once, and the same dropped tensor enters the blocks and is kept for losses (IFCL, Alg. 1).

    Args:
        model: Directory, name under $CSE_MODELS, model shipped with cse, or hub id.
        pooling: What training compares; "cls" as SimCSE trains, "mean" averages real tokens, "last2" and "first_last"
            average two layers first.
        eval_pooling: What evaluation compares; the same as `pooling` if left out. IFCL trains "cls", scores "mean"
            (Table 1, caption).
        first_layer_index: What "first" means in "first_last": 0 the static embedding output, which gave the published
            BERT rows, 1 the first block (methods/bert_avg.md).
        head_at_eval: Keep the heads, which the recipe puts under the encoder, when scoring; unsupervised SimCSE drops
            its own.
        dropout: Rate instead of the checkpoint's own.
        dropout_scope: Where `dropout` applies: "all" of embedding, hidden and attention dropout, the "embedding"
            output alone, or "hidden" (embedding, attention and feed-forward outputs) without attention weights.
        drophead: Probability with which each attention head of each block is dropped for a sentence in training; the
            heads that stay share its weight (DropHead, Zhou et al. 2020). Blocks are then not compiled.
        freeze: Parts of the checkpoint that are not trained, such as "embeddings" or "encoder.layer.0", or "heads".
            Their dropout stays on.
        augment_at: Where augmenters act: "layer" on the whole embedding layer's output, "word" on the word vectors,
            to which position, segment and normalisation are then added.
        attend_padding: Whether training lets the blocks attend to padding, as DCLR's code does, which gives them no
            mask; evaluation never does. Left out is no.
        random_weights: Same shape, fresh weights: a baseline, and a fast start for tests.

    Shapes: ids (B, L) → token vectors (B, L, W) → sentence vectors (B, D). W is D except in ALBERT and small ELECTRA.

    Source: SimCSE (Gao et al. 2021) for pooling and head; IFCL (arXiv 2307.10932) §3.1 for the split at the embedding
    layer; Mirror-BERT (Liu et al. 2021) for `drophead`. Doubtful: DCLR's code attends to padding (methods/dclr.md N8 →
    `attend_padding`). Settled in methods/ifcl.md: where fusion happens (A3 → `augment_at`), what is frozen (A6 →
    `freeze`), what the dropout rate covers (A7 → `dropout_scope`).
    """

    def __init__(
        self,
        model: ModelName,
        pooling: Pooling = "cls",
        eval_pooling: Pooling | None = None,
        first_layer_index: Literal[0, 1] = 0,
        head_at_eval: bool = False,
        dropout: Probability | None = None,
        dropout_scope: Scope = "all",
        freeze: list[str] = [],  # noqa: B006 - a declaration, never changed
        augment_at: Literal["layer", "word"] = "layer",
        random_weights: bool = False,
        attend_padding: bool | None = None,
        drophead: Probability | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.pooling: Pooling = pooling
        self.eval_pooling: Pooling = eval_pooling or pooling
        self.first_layer_index, self.head_at_eval, self.augment_at = first_layer_index, head_at_eval, augment_at
        self.vocabulary: HubVocabulary = HubVocabulary(model)
        rates = {} if dropout is None else _rates(dropout, dropout_scope)
        self.backbone = load_model(model, random_weights=random_weights, **rates)
        self.dropout = split.take_dropout(self.backbone)
        if dropout is not None:
            self.dropout.p = dropout
        self.drophead = None if drophead is None else self._drophead(drophead)
        split.verify(self.backbone)
        split.freeze(self.backbone, [part for part in freeze if part != "heads"])
        self.heads_frozen = "heads" in freeze
        self.attend_padding = bool(attend_padding)
        self.max_length: int = split.longest(self.backbone)
        self.dim = int(self.backbone.config.hidden_size)
        self.width = int(self.backbone.embeddings.word_embeddings.embedding_dim)
        self.heads = nn.ModuleDict()
        self.hidden_read = True
        self.rows_at_once: int | None = None
        self.train()

    def attach(self, heads: Mapping[str, Head]) -> None:
        """Put training heads behind the pooling, in order."""
        if self.head_at_eval and not heads:
            raise CseError("head_at_eval = true, but the encoder has no heads", "give it heads, or drop head_at_eval")
        for name, head in heads.items():
            self.dim = head.fit(self.dim, self)
            if self.head_at_eval and head.dense() is None:
                raise CseError(
                    f"head_at_eval = true, but head '{name}' is no single dense layer: no saved model could hold it",
                    "drop head_at_eval, or use a head such as mlp",
                )
            self.heads[name] = head.requires_grad_(not self.heads_frozen)

    def expect(self, *, hidden_read: bool, rows_at_once: int | None) -> None:
        """Note what training reads from `encode`."""
        self.hidden_read, self.rows_at_once = hidden_read, rows_at_once

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, W) token vectors, before any dropout."""
        return (split.embed_words if self.augment_at == "word" else split.embed_layer)(self.backbone, tokens)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Drop, contextualise, pool and apply the training head."""
        dropped: Tensor = self.dropout(self.layer_vectors(tokens, embeddings))
        mask = torch.ones_like(tokens.mask) if self.attend_padding else tokens.mask
        heads = None if self.drophead is None else self.drophead.draw(tokens.rows, dropped.device)
        if self.pooling == "cls" and not self.hidden_read:
            states = [first_states(self.backbone, dropped, mask, self.rows_at_once, heads).unsqueeze(1)]
        else:
            every = needs_all_states(self.pooling)
            states = run_blocks(self.backbone, dropped, mask, every, self.rows_at_once, heads)
        states = self.token_features(states, tokens.mask)
        pooled = pool(self.pooling, states, tokens.mask, self.first_layer_index)
        sentence = self._headed(pooled, tokens.groups)
        before = pooled if self.heads else None
        return Encoded(sentence=sentence, embeddings=dropped, hidden=states[-1], tokens=tokens, pooled=before)

    def project(self, pooled: Tensor) -> Tensor:
        """Return (B, D) what the training heads make of (B, D′) vectors."""
        return self._headed(pooled, ())

    def represent(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return (B, D) the vectors evaluation uses, in eval mode: no dropout, no training-only head."""
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                return self._represent(tokens, embeddings)
        finally:
            self.train(training)

    def export(self, folder: Path, max_length: int) -> None:
        """Write a directory that transformers and sentence-transformers load unchanged."""
        export_encoder(self.backbone, self.vocabulary.tokenizer, self.layout(max_length), folder)

    def layout(self, max_length: int) -> Layout:
        """Return how the exported model makes a sentence vector."""
        return Layout(
            pooling=self.eval_pooling,
            first_layer_index=self.first_layer_index,
            dense=[layer for head in self._heads() if (layer := head.dense())] if self.head_at_eval else [],
            max_length=min(max_length, self.max_length),
            origin=self.model,
        )

    def token_features(self, states: Sequence[Tensor], mask: Tensor) -> list[Tensor]:  # noqa: ARG002 - a hook
        """Return what is pooled, (B, L, D) each, of the states of the layers that the pooling reads."""
        return list(states)

    def _drophead(self, rate: float) -> HeadDropout:
        if not droppable(self.backbone):
            raise CseError(
                f"drophead: the blocks of {type(self.backbone).__name__} have no attention output of their own",
                "leave drophead out, or use a BERT, RoBERTa, XLM-R or ELECTRA checkpoint",
            )
        return HeadDropout(rate, len(self.backbone.encoder.layer), int(self.backbone.config.num_attention_heads))

    def _heads(self) -> list[Head]:
        return [head for head in self.heads.values() if isinstance(head, Head)]

    def _headed(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        for head in self._heads():
            pooled = head(pooled, groups)
        return pooled

    def layer_vectors(self, tokens: Tokens, embeddings: Tensor | None) -> Tensor:
        """Return (B, L, W) the embedding layer's output; `embeddings` stand in for what `embed` returns."""
        if embeddings is not None and self.augment_at != "word":
            return embeddings
        return split.embed_layer(self.backbone, tokens, embeddings)

    def _represent(self, tokens: Tokens, embeddings: Tensor | None) -> Tensor:
        vectors = self.layer_vectors(tokens, embeddings)
        # As transformers computes it: a saved model gives the same bits elsewhere.
        states = padded_states(self.backbone, vectors, tokens.mask, needs_all_states(self.eval_pooling))
        states = self.token_features(states, tokens.mask)
        pooled = pool(self.eval_pooling, states, tokens.mask, self.first_layer_index)
        return self._headed(pooled, tokens.groups) if self.head_at_eval else pooled


def _rates(dropout: float, scope: Scope) -> dict[str, Any]:
    """Return the configuration values that `dropout` replaces; the embedding output is set apart."""
    if scope == "embedding":
        return {}
    attention = {"attention_probs_dropout_prob": dropout} if scope == "all" else {}
    return {"hidden_dropout_prob": dropout, **attention}
