"""Standard encoder: a BERT-like checkpoint with pooling and training heads."""

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
from registry.resources.models import load_model
from registry.tokens import Encoded, Tokens
from registry.types import Encoder, Head, ModelName, Tune
from registry.vocabulary import MASK, Ending, HubVocabulary

Probability = Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.3)]
Scope = Literal["all", "embedding", "hidden"]


@ENCODERS.register("transformer")
class TransformerEncoder(Encoder):
    """Encode with a pre-trained BERT-like checkpoint, pool its last layer, and apply training heads.

    s = heads(pool(blocks(dropout(e)))), where e is the embedding layer's output before its dropout. Augmenters act on
    e. Dropout is sampled once, and the same tensor is the input of the blocks and of the losses (IFCL, Alg. 1).

    Args:
        model: Directory, name under $CSE_MODELS, model shipped with cse, or Hub ID.
        pooling: Pooling in training: "cls" as in SimCSE. "mean" of real tokens. "last2" and "first_last", the mean over
            two layers. "mask", the state at the template's {mask}, or the mean of several. "last_mask", the state at
            the last {mask}.
        eval_pooling: Pooling in evaluation. IFCL trains with "cls" and evaluates with "mean" (Table 1, caption).
            Default: `pooling`.
        first_layer_index: Index of the first layer in "first_last": 0, the embedding layer's output, which gave the
            published BERT rows, or 1, the first block's output (methods/bert_avg.md).
        head_at_eval: Whether evaluation applies the heads that the recipe attaches. Unsupervised SimCSE does not.
        dropout: Dropout rate. Default: the checkpoint's rates.
        dropout_scope: Scope of `dropout`: "all", embedding, hidden and attention dropout. "embedding", only the
            embedding output. "hidden", all except attention weights.
        drophead: Probability that training drops an attention head of a block for a sentence. The remaining heads share
            its weight (DropHead, Zhou et al. 2020). It prevents compiled blocks.
        freeze: Parts of the checkpoint that are not trained, such as "embeddings" or "encoder.layer.0", or "heads".
            Their dropout stays active.
        augment_at: Input of augmenters: "layer", the embedding layer's output, or "word", the word embeddings before
            position and segment embeddings and normalization.
        attend_padding: Whether the blocks attend to padding in training, as in DCLR's code, which passes no mask.
            Default: false.
        random_weights: Whether the weights are random, for a baseline or a fast test.
        template: Text around every sentence, in which "{text}" is the sentence and "{mask}" the mask token, for example
            'This sentence of "{text}" means {mask}.' It is tokenized separately and does not count toward
            `data.max_length` and `evaluate.max_length`. A view can have another template.
        end_with: Ending of sentences in the template, in evaluation. "stop" adds "." to a sentence that does not end in
            a full stop, a question mark or a straight quotation mark. "spaced_stop" adds " ." to a sentence that does
            not end in ASCII punctuation. "stop_only" is "stop", and each double quotation mark becomes a single one and
            a final question mark a full stop. Default: sentences do not change.
        end_in_training: Whether `end_with` also applies in training. Default: false.
        denoise: Subtraction of the template's own embedding in training, before the heads. "positions" encodes the
            template without the sentence at unchanged positions. "padding" also attends to padding tokens in place of
            the sentence, at the positions of the model's own forward pass: RoBERTa's do not count them. Dropout is
            sampled once for all sentences of the same length. Default: none.
        denoise_gradient: Whether the gradient flows through the subtracted embedding. Default: true.
        denoise_at_eval: Whether evaluation also subtracts the template's embedding. Default: false.

    Shapes: ids (B, L) → token vectors (B, L, W) → sentence embeddings (B, D). W = D except in ALBERT and small ELECTRA.

    Source: SimCSE (Gao et al. 2021) for pooling and head; IFCL (arXiv 2307.10932) §3.1 for the split at the embedding
    layer; Mirror-BERT (Liu et al. 2021) for `drophead`; PromptBERT (Jiang et al. 2022) for template and denoising;
    CoT-BERT (Zhang et al. 2024) for "padding". Doubtful: DCLR's code attends to padding (methods/dclr.md N8 →
    `attend_padding`). Settled in methods/ifcl.md: place of the fusion (A3 → `augment_at`), frozen parts (A6 →
    `freeze`), scope of the dropout rate (A7 → `dropout_scope`).

    Example:
        [encoders.online]
        name = "transformer"
        model = "bert-base-uncased"
        pooling = "cls"
        dropout = 0.1
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
        end_with: Ending | None = None,
        end_in_training: bool | None = None,
        denoise: Literal["positions", "padding"] | None = None,
        denoise_gradient: bool | None = None,
        denoise_at_eval: bool | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.pooling: Pooling = pooling
        self.eval_pooling: Pooling = eval_pooling or pooling
        self.first_layer_index, self.head_at_eval, self.augment_at = first_layer_index, head_at_eval, augment_at
        self.vocabulary: HubVocabulary = HubVocabulary(model, template, end_with, bool(end_in_training))
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
        self.mini_batch_size: int | None = None
        self.attentions_read: Sequence[int] = ()
        self.layers_read = False
        self.train()

    def attach(self, heads: Mapping[str, Head]) -> None:
        """Add training heads after the pooling, in order.

        Raises:
            CseError: If `head_at_eval` is set, and there is no head or one that an export cannot contain.
        """
        if self.head_at_eval and not heads:
            raise CseError(
                "head_at_eval = true has no effect, because the encoder has no heads",
                "add heads to the encoder, or remove head_at_eval",
                code="encoders.no_heads",
            )
        for name, head in heads.items():
            self.dim = head.fit(self.dim, self)
            if self.head_at_eval and head.dense() is None:
                raise CseError(
                    f"head_at_eval = true does not work with head '{name}': an export can contain only dense layers",
                    "remove head_at_eval, or use a head such as mlp",
                    code="encoders.head_not_exportable",
                )
            self.heads[name] = head.requires_grad_(not self.heads_frozen)

    def expect(self, *, hidden_read: bool, mini_batch_size: int | None) -> None:
        """Set the states that training uses, and the number of rows per mini-batch."""
        self.hidden_read, self.mini_batch_size = hidden_read, mini_batch_size

    def keep_attentions(self, blocks: Sequence[int]) -> None:
        """Select the blocks whose attention weights `encode` returns. This prevents packed rows and compiled blocks.

        Raises:
            CseError: If a block does not exist.
        """
        if not built_as_bert(self.backbone):
            super().keep_attentions(blocks)
        count = len(self.backbone.encoder.layer)
        if not set(blocks) <= set(range(count)):
            raise CseError(
                f"a loss uses the attention weights of blocks {list(blocks)}, but '{self.model}' has {count} blocks",
                f"set the layers of the loss to values from 0 to {count - 1}",
                code="encoders.unknown_block",
            )
        self.attentions_read = sorted(blocks)

    def keep_layers(self) -> None:
        """Make `encode` return the pooled states of every block.

        Raises:
            CseError: If something other than the pooling changes the states of the last block.
        """
        if self.denoise is not None or type(self).token_features is not TransformerEncoder.token_features:
            raise CseError(
                "a loss reads all layers, but the encoder changes the states of its last layer",
                "remove denoise from the encoder, or use a plain transformer",
                code="encoders.changed_states",
            )
        self.layers_read = True

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the (B, L, W) token vectors before any dropout."""
        if self.augment_at == "word":
            return split.embed_words(self.backbone, tokens)
        return split.embed_layer(self.backbone, tokens, padding_index=self.attend_padding)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Apply dropout, blocks, pooling and training heads."""
        dropped: Tensor = self.dropout(self.layer_vectors(tokens, embeddings))
        mask = torch.ones_like(tokens.mask) if self.attend_padding else tokens.mask
        heads = None if self.drophead is None else self.drophead.draw(tokens.rows, dropped.device)
        every = self.layers_read or needs_all_states(self.pooling)
        attentions: dict[int, Tensor] = {}
        if self.attentions_read:
            read = self.attentions_read
            states, attentions = states_and_attentions(
                self.backbone, dropped, mask, every, read, self.mini_batch_size, heads
            )
        elif self.pooling == "cls" and not self.hidden_read and not every:
            states = [first_states(self.backbone, dropped, mask, self.mini_batch_size, heads).unsqueeze(1)]
        else:
            states = self.block_states(dropped, mask, every, heads)
        states = self.token_features(states, tokens.mask)
        pooled = self._pooled(self.pooling, states, tokens)
        if self.denoise is not None:
            pooled = pooled - self._template_alone(tokens)
        sentence = self._headed(pooled, tokens.groups)
        before = pooled if self.heads else None
        layers = self._each_layer(states, tokens) if self.layers_read else None
        return Encoded(sentence, dropped, states[-1], tokens, before, layers, attentions)

    def project(self, pooled: Tensor) -> Tensor:
        """Return the (B, D) output of the training heads for (B, D′) embeddings."""
        return self._headed(pooled, ())

    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the (B, D) embeddings for evaluation, without dropout and training-only heads."""
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                return self._represent(tokens, embeddings)
        finally:
            self.train(training)

    def export(self, folder: Path, max_length: int) -> None:
        """Write a directory for transformers and sentence-transformers."""
        export_encoder(self.backbone, self.vocabulary.tokenizer, self.layout(max_length), folder)

    def layout(self, max_length: int) -> Layout:
        """Return the layout of the export."""
        return Layout(
            pooling=self.eval_pooling,
            first_layer_index=self.first_layer_index,
            dense=[layer for head in self._heads() if (layer := head.dense())] if self.head_at_eval else [],
            max_length=min(max_length, self.max_length),
            origin=self.model,
            template=self.template_settings(),
        )

    def template_settings(self) -> dict[str, str]:
        """Return the parameters for the template in an export, empty without a template."""
        template = self.vocabulary.template
        denoised = self.denoise if self.denoise_at_eval else None
        values = {"template": template, "end_with": self.vocabulary.end_with, "denoise": denoised}
        return {key: value for key, value in values.items() if value is not None}

    def block_states(self, vectors: Tensor, mask: Tensor, every: bool, heads: Tensor | None = None) -> list[Tensor]:
        """Return the (B, L, D) states after the blocks, of the last layer or of every layer."""
        return run_blocks(self.backbone, vectors, mask, every, self.mini_batch_size, heads)

    def exact_states(self, vectors: Tensor, mask: Tensor, every: bool) -> list[Tensor]:
        """Return the states bit for bit as transformers computes them."""
        return padded_states(self.backbone, vectors, mask, every)

    def token_features(self, states: Sequence[Tensor], mask: Tensor) -> list[Tensor]:  # noqa: ARG002 - a hook
        """Return the features (B, L, D) for the pooling from the states of the layers that it uses."""
        return list(states)

    def _drophead(self, rate: float) -> HeadDropout:
        if not droppable(self.backbone):
            raise CseError(
                f"drophead does not support the architecture '{type(self.backbone).__name__}'",
                "remove drophead, or set model to a BERT, RoBERTa, XLM-R or ELECTRA checkpoint",
                code="encoders.unsupported_architecture",
            )
        return HeadDropout(rate, len(self.backbone.encoder.layer), int(self.backbone.config.num_attention_heads))

    def _heads(self) -> list[Head]:
        return [head for head in self.heads.values() if isinstance(head, Head)]

    def _headed(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        for head in self._heads():
            pooled = head(pooled, groups)
        return pooled

    def _pooled(self, pooling: Pooling, states: Sequence[Tensor], tokens: Tokens) -> Tensor:
        places = mask_places(pooling, tokens, self.vocabulary.mask) if reads_mask(pooling) else tokens.mask
        return pool(pooling, states, places, self.first_layer_index)

    def _each_layer(self, states: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the (B, K, D) pooled states of every block, as if it were the last."""
        each = [self._pooled(self.pooling, states[: last + 1], tokens) for last in range(1, len(states))]
        return torch.stack(each, dim=1)

    def _template_alone(self, tokens: Tokens) -> Tensor:
        """Return the (B, D) embeddings of each row's template without its sentence. Equal rows are encoded once."""
        assert tokens.text is not None
        text = tokens.text == 1
        mask = tokens.mask if self.denoise == "padding" else tokens.mask.masked_fill(text, 0)
        ids = tokens.ids.masked_fill(text, self.vocabulary.padding)
        rows, places = torch.unique(torch.cat([ids, mask], dim=1), dim=0, return_inverse=True)
        ids, mask = rows[:, : tokens.length], rows[:, tokens.length :]
        order = torch.arange(tokens.length, device=ids.device).expand(ids.shape)
        if self.denoise == "padding" and split.position_offset(self.backbone):
            real = ids != self.vocabulary.padding  # RoBERTa counts positions without padding tokens
            order = real.cumsum(dim=1) * real - 1
        alone = Tokens(ids, mask, torch.zeros_like(ids), order, text=torch.zeros_like(ids))
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.denoise_gradient is not False):
            vectors = self.dropout(self.layer_vectors(alone, None))
            states = self.block_states(vectors, mask, needs_all_states(self.pooling))
            return self._pooled(self.pooling, self.token_features(states, mask), alone)[places]

    def _check_template(self) -> None:
        """Check that the template fits pooling and denoising."""
        template = self.vocabulary.template
        if (reads_mask(self.pooling) or reads_mask(self.eval_pooling)) and MASK not in (template or ""):
            raise CseError(
                f'pooling "{self.pooling if reads_mask(self.pooling) else self.eval_pooling}" requires a template with '
                "{mask}",
                "set template, for example 'This sentence : \"{text}\" means {mask}.'",
                code="encoders.no_template",
            )
        if template is None and (self.denoise is not None or self.denoise_at_eval):
            raise CseError(
                "denoise and denoise_at_eval require a template",
                "set template, for example 'This sentence : \"{text}\" means {mask}.'",
                code="encoders.no_template",
            )
        if self.denoise_at_eval and self.denoise is None:
            raise CseError(
                "denoise_at_eval = true requires denoise", 'set denoise = "positions"', code="encoders.no_denoise"
            )

    def layer_vectors(self, tokens: Tokens, embeddings: Tensor | None) -> Tensor:
        """Return the (B, L, W) output of the embedding layer, from `embeddings` instead of `embed` if given."""
        if embeddings is not None and self.augment_at != "word":
            return embeddings
        return split.embed_layer(self.backbone, tokens, embeddings, padding_index=self.attend_padding)

    def _represent(self, tokens: Tokens, embeddings: Tensor | None) -> Tensor:
        vectors = self.layer_vectors(tokens, embeddings)
        states = self.exact_states(vectors, tokens.mask, needs_all_states(self.eval_pooling))
        states = self.token_features(states, tokens.mask)
        pooled = self._pooled(self.eval_pooling, states, tokens)
        if self.denoise_at_eval:
            pooled = pooled - self._template_alone(tokens)
        return self._headed(pooled, tokens.groups) if self.head_at_eval else pooled


def _rates(dropout: float, scope: Scope) -> dict[str, Any]:
    """Return the configuration values that `dropout` replaces, without that of the embedding output."""
    if scope == "embedding":
        return {}
    attention = {"attention_probs_dropout_prob": dropout} if scope == "all" else {}
    return {"hidden_dropout_prob": dropout, **attention}
