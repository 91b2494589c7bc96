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
from registry.encoders.blocks import built_as_bert, first_states, padded_states, run_blocks, states_and_attentions
from registry.encoders.export import Layout, export_encoder
from registry.encoders.head_dropout import HeadDropout, droppable
from registry.encoders.pooling import Pooling, mask_places, needs_all_states, pool, reads_mask
from registry.errors import CseError
from registry.models import load_model
from registry.tokens import Encoded, Tokens
from registry.types import Encoder, Head, ModelName, Tune
from registry.vocabulary import MASK, HubVocabulary

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
            average two layers first; "mask" takes the state at the template's {mask}, the mean where there are
            several, "last_mask" that of the last one.
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
        template: Text put around every sentence, in training and evaluation, in which "{text}" stands for the sentence
            and "{mask}" for the mask token: 'This sentence of "{text}" means {mask}.' It is tokenised apart from the
            sentence, and lengths (`data.max_length`, `evaluate.max_length`) do not count it. A view may have another.
        denoise: Subtract from what is pooled, in training and before the heads, what the template alone gives, its
            tokens at the places they have beside the sentence: "positions" leaves the sentence's places out, "padding"
            attends to padding tokens there. Left out is nothing. Dropout is drawn once for all sentences of a length.
        denoise_gradient: Whether gradient goes through what is subtracted; left out is yes.
        denoise_at_eval: Whether it is subtracted in evaluation too; left out is no.

    Shapes: ids (B, L) → token vectors (B, L, W) → sentence vectors (B, D). W is D except in ALBERT and small ELECTRA.

    Source: SimCSE (Gao et al. 2021) for pooling and head; IFCL (arXiv 2307.10932) §3.1 for the split at the embedding
    layer; Mirror-BERT (Liu et al. 2021) for `drophead`; PromptBERT (Jiang et al. 2022) for template and denoising,
    CoT-BERT (Zhang et al. 2024) for "padding". Doubtful: DCLR's code attends to padding (methods/dclr.md N8 →
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
        template: str | None = None,
        denoise: Literal["positions", "padding"] | None = None,
        denoise_gradient: bool | None = None,
        denoise_at_eval: bool | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.pooling: Pooling = pooling
        self.eval_pooling: Pooling = eval_pooling or pooling
        self.first_layer_index, self.head_at_eval, self.augment_at = first_layer_index, head_at_eval, augment_at
        self.vocabulary: HubVocabulary = HubVocabulary(model, template)
        self.denoise, self.denoise_gradient, self.denoise_at_eval = denoise, denoise_gradient, bool(denoise_at_eval)
        self._check_template()
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
        self.max_length: int = self.vocabulary.longest(split.longest(self.backbone))
        self.dim = int(self.backbone.config.hidden_size)
        self.width = int(self.backbone.embeddings.word_embeddings.embedding_dim)
        self.heads = nn.ModuleDict()
        self.hidden_read = True
        self.rows_at_once: int | None = None
        self.attentions_read: Sequence[int] = ()
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

    def keep_attentions(self, blocks: Sequence[int]) -> None:
        """Note whose attention weights `encode` gives; the blocks then run padded and uncompiled."""
        if not built_as_bert(self.backbone):
            super().keep_attentions(blocks)
        count = len(self.backbone.encoder.layer)
        if not set(blocks) <= set(range(count)):
            raise CseError(
                f"a loss reads attention weights of blocks {list(blocks)}, and {self.model} has {count}",
                f"let its layers lie between 0 and {count - 1}",
            )
        self.attentions_read = sorted(blocks)

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, W) token vectors, before any dropout."""
        return (split.embed_words if self.augment_at == "word" else split.embed_layer)(self.backbone, tokens)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Drop, contextualise, pool and apply the training head."""
        dropped: Tensor = self.dropout(self.layer_vectors(tokens, embeddings))
        mask = torch.ones_like(tokens.mask) if self.attend_padding else tokens.mask
        heads = None if self.drophead is None else self.drophead.draw(tokens.rows, dropped.device)
        every = needs_all_states(self.pooling)
        attentions: dict[int, Tensor] = {}
        if self.attentions_read:
            read = self.attentions_read
            states, attentions = states_and_attentions(
                self.backbone, dropped, mask, every, read, self.rows_at_once, heads
            )
        elif self.pooling == "cls" and not self.hidden_read:
            states = [first_states(self.backbone, dropped, mask, self.rows_at_once, heads).unsqueeze(1)]
        else:
            states = self.block_states(dropped, mask, every, heads)
        states = self.token_features(states, tokens.mask)
        pooled = self._pooled(self.pooling, states, tokens)
        if self.denoise is not None:
            pooled = pooled - self._template_alone(tokens)
        sentence = self._headed(pooled, tokens.groups)
        before = pooled if self.heads else None
        return Encoded(sentence, dropped, states[-1], tokens, before, attentions=attentions)

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
            template=self.template_settings(),
        )

    def template_settings(self) -> dict[str, str]:
        """Return the parameters by which a saved model knows its template; none where there is none."""
        template = self.vocabulary.template
        denoised = {"denoise": self.denoise} if self.denoise_at_eval and self.denoise is not None else {}
        return {} if template is None else {"template": template, **denoised}

    def block_states(self, vectors: Tensor, mask: Tensor, every: bool, heads: Tensor | None = None) -> list[Tensor]:
        """Return (B, L, D) states after the blocks: the last one, or those of every layer."""
        return run_blocks(self.backbone, vectors, mask, every, self.rows_at_once, heads)

    def exact_states(self, vectors: Tensor, mask: Tensor, every: bool) -> list[Tensor]:
        """Return the same as transformers computes it: a saved model gives the same bits elsewhere."""
        return padded_states(self.backbone, vectors, mask, every)

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

    def _pooled(self, pooling: Pooling, states: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return (B, D)."""
        places = mask_places(pooling, tokens, self.vocabulary.mask) if reads_mask(pooling) else tokens.mask
        return pool(pooling, states, places, self.first_layer_index)

    def _template_alone(self, tokens: Tokens) -> Tensor:
        """Return (B, D) what each row's template gives without its sentence: one forward pass of each distinct row."""
        assert tokens.text is not None
        text = tokens.text == 1
        mask = tokens.mask if self.denoise == "padding" else tokens.mask.masked_fill(text, 0)
        ids = tokens.ids.masked_fill(text, self.vocabulary.padding)
        rows, places = torch.unique(torch.cat([ids, mask], dim=1), dim=0, return_inverse=True)
        ids, mask = rows[:, : tokens.length], rows[:, tokens.length :]
        order = torch.arange(tokens.length, device=ids.device).expand(ids.shape)
        alone = Tokens(ids, mask, torch.zeros_like(ids), order, text=torch.zeros_like(ids))
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.denoise_gradient is not False):
            vectors = self.dropout(split.embed_layer(self.backbone, alone))
            states = self.block_states(vectors, mask, needs_all_states(self.pooling))
            return self._pooled(self.pooling, self.token_features(states, mask), alone)[places]

    def _check_template(self) -> None:
        """Refuse settings that lack the template they are about."""
        template = self.vocabulary.template
        if (reads_mask(self.pooling) or reads_mask(self.eval_pooling)) and MASK not in (template or ""):
            raise CseError(
                f'pooling "{self.pooling if reads_mask(self.pooling) else self.eval_pooling}" takes the state at the '
                "template's {mask}, and there is none",
                "set template = 'This sentence : \"{text}\" means {mask}.' or one of your own",
            )
        if template is None and (self.denoise is not None or self.denoise_at_eval):
            raise CseError("denoise subtracts what the template gives, and there is no template", "set template")
        if self.denoise_at_eval and self.denoise is None:
            raise CseError("denoise_at_eval is set, and denoise is not", 'set denoise = "positions"')

    def layer_vectors(self, tokens: Tokens, embeddings: Tensor | None) -> Tensor:
        """Return (B, L, W) the embedding layer's output; `embeddings` stand in for what `embed` returns."""
        if embeddings is not None and self.augment_at != "word":
            return embeddings
        return split.embed_layer(self.backbone, tokens, embeddings)

    def _represent(self, tokens: Tokens, embeddings: Tensor | None) -> Tensor:
        vectors = self.layer_vectors(tokens, embeddings)
        states = self.exact_states(vectors, tokens.mask, needs_all_states(self.eval_pooling))
        states = self.token_features(states, tokens.mask)
        pooled = self._pooled(self.eval_pooling, states, tokens)
        if self.denoise_at_eval:
            pooled = pooled - self._template_alone(tokens)
        return self._headed(pooled, tokens.groups) if self.head_at_eval else pooled


def _rates(dropout: float, scope: Scope) -> dict[str, Any]:
    """Return the configuration values that `dropout` replaces; the embedding output is set apart."""
    if scope == "embedding":
        return {}
    attention = {"attention_probs_dropout_prob": dropout} if scope == "all" else {}
    return {"hidden_dropout_prob": dropout, **attention}
