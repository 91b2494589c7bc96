"""Standard encoder: any transformers model with pooling and training heads."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from registry import ENCODERS, POOLINGS
from registry.encoders import architectures, lora
from registry.encoders import backbone as halves
from registry.encoders.architectures import is_split
from registry.encoders.blocks import first_states, padded_states, run_blocks, states_and_attentions
from registry.encoders.export import TOKEN_POOLINGS, Layout, export_transformer
from registry.encoders.head_dropout import HeadDropout
from registry.encoders.packing import Rows
from registry.errors import CseError
from registry.machinery import returned
from registry.poolings import (
    PoolingName,
    averaged,
    last_copies,
    mask_places,
    needs_all_states,
    pool,
    pool_tokens,
    reads_mask,
)
from registry.resources.models import WeightType
from registry.tokens import Encoded, Pieces, Tokens
from registry.types import BUILT_IN, BuiltIn, Encoder, Head, ModelName, Package, Tune
from registry.vocabulary import MASK, Ending, HubVocabulary, JoinedVocabulary

Probability = Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.3)]
Rank = Annotated[int, Field(ge=1), Tune(4, 64, log=True)]
Block = Annotated[int, Field(ge=0)]


@ENCODERS.register("transformer")
class TransformerEncoder(Encoder):
    """Encode with a pre-trained model of transformers, pool its states, and apply training heads.

    s = heads(pool(blocks(dropout(e)))), where e is the embedding layer's output before its dropout. Augmenters act on
    e. Dropout is sampled once, and the same tensor is the input of the blocks and of the losses (IFCL, Alg. 1).

    Supported are encoders (BERT, RoBERTa, XLM-R, ELECTRA, ALBERT, MPNet, DistilBERT, DeBERTa-v3, ModernBERT, EuroBERT,
    T5's encoder) and decoders without their prediction head (Llama, Mistral, Qwen2, Qwen3, Gemma, OPT, Phi, GPT-2). In
    decoders and T5, e is the word embeddings. When the encoder is built, it compares its output with the model's own,
    and checks the attention: it is bidirectional if the last token of a sentence changes the state of the first. A
    parameter that an architecture does not support is an error.

    Args:
        model: Directory, name under $CSE_MODELS, model shipped with cse, or Hub ID.
        pooling: Pooling in training: "cls", the state of the first token, as in SimCSE. "last", that of the last token.
            "mean" of real tokens. "weighted_mean", with weight t for the t-th token. "last2" and "first_last", the mean
            over two layers. "mask", the state at the template's {mask}, or the mean of several. "last_mask", the state
            at the last {mask}. "text", the mean of the sentence's tokens without the template, of the last copy if the
            template repeats the sentence. Or the name of a plug-in's pooling.
        eval_pooling: Pooling in evaluation. IFCL trains with "cls" and evaluates with "mean" (Table 1, caption).
            Default: `pooling`.
        first_layer_index: Index of the first layer in "first_last": 0, the embedding layer's output, which gave the
            published BERT rows, or 1, the first block's output, as "avg_first_last" of SimCSE's code
            (methods/bert_avg.md).
        head_at_eval: Whether evaluation applies the heads that the recipe attaches. Unsupervised SimCSE does not.
        dropout: Dropout rate. Default: the checkpoint's rates.
        dropout_scope: Scope of `dropout`: "all", embedding, hidden and attention dropout, as far as the model has them.
            "embedding", only the embedding output. "hidden", all except attention weights. "attention", only attention
            weights, the only dropout of many decoders.
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
            `data.max_length` and `evaluate.max_length`. If it is only text before the sentence, it is the default
            prompt of an export in sentence-transformers. A view can have another template. Several "{text}" need other
            text between them. The embeddings of several templates are averaged, in evaluation only.
        template_joined: Whether template and sentence are tokenized as one string, in evaluation only. Then "mask" and
            "last_mask" also read a mask token that the sentence contains. Default: false.
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
        attention: "causal", each token attends to earlier tokens, or "bidirectional", each token attends to all, also
            in a decoder that was trained with causal attention. Default: the attention of the checkpoint.
        layer: Layer whose states are pooled: 0 is the input of the first block, k the output of the k-th block.
            Default: the last layer, with the model's final normalization.
        prepend: Blocks a and b, counted from 0. Before each block from a to b − 1, the last token's state replaces the
            placeholder's state, so that later tokens can attend to the end of the sentence.
        placeholder: Token that `prepend` replaces. It is in front of the sentence and occurs in no sentence.
        lora_rank: Rank of trained matrices next to each linear layer of the blocks (LoRA). All other weights of the
            model are frozen. An export contains the merged weights, and the matrices in `adapter/`, as peft reads them.
            Default: the model itself is trained.
        lora_alpha: Numerator of the factor lora_alpha / lora_rank of the LoRA update. Default: `lora_rank`.
        lora_dropout: Dropout rate of the input of the LoRA matrices.
        dtype: Type of the weights: "fp32", "bf16", which needs half of the memory and is meant for LoRA, because small
            updates of bf16 weights are rounded away, or "8bit" or "4bit", which requires LoRA and the package
            bitsandbytes. LoRA matrices and heads are always fp32. Default: "fp32".
        checkpointing: Whether the backward pass computes each block's activations again, to save memory. Default:
            false.

    Shapes: ids (B, L) → token vectors (B, L, W) → sentence embeddings (B, D). W = D except in ALBERT and small ELECTRA.
    Padding can be on either side in models other than BERT's family.

    Source: SimCSE (Gao et al. 2021) for pooling and head; IFCL (arXiv 2307.10932) §3.1 for the split at the embedding
    layer; Mirror-BERT (Liu et al. 2021) for `drophead`; PromptBERT (Jiang et al. 2022) for template and denoising;
    CoT-BERT (Zhang et al. 2024) for "padding"; PromptEOL (code kongds/scaling_sentemb) for the last token; Token
    Prepending (Fu et al. 2025) for `prepend`; LLM2Vec (BehnamGhader et al. 2024) for bidirectional attention, dropout
    of attention and LoRA; SGPT (Muennighoff 2022, cited from memory) for the weighted mean. Doubtful: DCLR's code
    attends to padding (methods/dclr.md N8 → `attend_padding`). Settled in methods/ifcl.md: place of the fusion (A3 →
    `augment_at`), frozen parts (A6 → `freeze`), scope of the dropout rate (A7 → `dropout_scope`); in
    methods/decoders.md and methods/llm2vec.md.

    Example:
        [encoders.online]
        name = "transformer"
        model = "bert-base-uncased"
        pooling = "cls"
        dropout = 0.1
    """

    saved_as: ClassVar[str] = "transformer"
    reads_all_tokens: ClassVar[bool] = False
    """Whether training needs the states of all tokens, even if no loss reads them."""
    has_attentions: ClassVar[bool] = True
    """Whether `Encoded.attentions` can contain the attention weights of a view."""
    hidden_read: bool = True
    mini_batch_size: int | None = None
    attentions_read: Sequence[int] = ()
    layers_read: bool = False

    def __init__(
        self,
        model: ModelName,
        pooling: BuiltIn | PoolingName = "cls",
        eval_pooling: BuiltIn | PoolingName | None = None,
        first_layer_index: Literal[0, 1] = 0,
        head_at_eval: bool = False,
        dropout: Probability | None = None,
        dropout_scope: halves.Scope = "all",
        freeze: list[str] = [],  # noqa: B006 - a declaration, never changed
        augment_at: Literal["layer", "word"] = "layer",
        random_weights: bool = False,
        attend_padding: bool | None = None,
        drophead: Probability | None = None,
        template: str | Annotated[list[str], Field(min_length=1)] | None = None,
        template_joined: bool | None = None,
        end_with: Ending | None = None,
        end_in_training: bool | None = None,
        denoise: Literal["positions", "padding"] | None = None,
        denoise_gradient: bool | None = None,
        denoise_at_eval: bool | None = None,
        attention: halves.Attention | None = None,
        layer: Block | None = None,
        prepend: Annotated[list[Block], Field(min_length=2, max_length=2)] | None = None,
        placeholder: str | None = None,
        lora_rank: Annotated[Rank | None, Package("peft")] = None,
        lora_alpha: Annotated[int, Field(ge=1, le=4096)] | None = None,
        lora_dropout: Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.5)] | None = None,
        dtype: WeightType | None = None,
        checkpointing: bool | None = None,
    ) -> None:
        self.check_settings(dict(locals()))
        super().__init__()
        self.model, self.pooling, self.eval_pooling = model, pooling, eval_pooling or pooling
        self.first_layer_index, self.head_at_eval, self.augment_at = first_layer_index, head_at_eval, augment_at
        self.templates = template if isinstance(template, list) else [template]
        self.template_joined = bool(template_joined)
        self.denoise, self.denoise_gradient, self.denoise_at_eval = denoise, denoise_gradient, bool(denoise_at_eval)
        self.layer, self.prepend, self.placeholder = layer, prepend, placeholder
        self.attend_padding, self.checkpointing = bool(attend_padding), bool(checkpointing)
        self.adapter = lora.configured(lora_rank, lora_alpha, lora_dropout)
        if template_joined:
            self.vocabularies: list[HubVocabulary] = [JoinedVocabulary(model, str(t), end_with) for t in self.templates]
        else:
            self.vocabularies = [HubVocabulary(model, t, end_with, bool(end_in_training)) for t in self.templates]
        self.vocabulary: HubVocabulary = self.vocabularies[0]
        loaded = halves.load(model, random_weights, dtype or "fp32", dropout, dropout_scope)
        self.backbone, self.dropout = loaded
        decoder = architectures.is_decoder(self.backbone)
        self.attention = halves.set_attention(self.backbone, attention)
        self._as_trained = self.attention == "causal" or not decoder
        _check_architecture(self)
        self.drophead = None
        if drophead is not None:
            count = len(architectures.head_outputs(self.backbone))
            self.drophead = HeadDropout(drophead, count, int(self.backbone.config.num_attention_heads))
        if self.adapter is not None:
            lora.add_low_rank(self.backbone, self.adapter)
        if self.checkpointing:
            # transformers 5.24 has a new name for it (docs/adr/0011-checkpointing-of-activations.md).
            old = self.backbone.gradient_checkpointing_enable
            getattr(self.backbone, "activation_checkpointing_enable", old)({"use_reentrant": False})
        halves.freeze(self.backbone, [part for part in freeze if part != "heads"])
        self.heads_frozen = "heads" in freeze
        limit = halves.longest(self.backbone)
        self.max_length = None if limit is None else min(each.longest(limit) for each in self.vocabularies)
        self.dim, self.width = halves.widths(self.backbone, augment_at, layer)
        self.heads = nn.ModuleDict()
        self.train()

    @classmethod
    def check_settings(cls, given: Mapping[str, Any]) -> None:
        """Check parameters that depend only on each other."""
        poolings = given["pooling"], given["eval_pooling"] or given["pooling"]
        _check_templates(given, poolings)
        lora.configured(given["lora_rank"], given["lora_alpha"], given["lora_dropout"])
        if given["checkpointing"] and (given["drophead"] is not None or given["prepend"] is not None):
            raise CseError(
                "checkpointing = true does not work with drophead or prepend, which the second computation would skip",
                "remove checkpointing, or set train.mini_batch_size instead",
                code="encoders.no_checkpointing",
            )
        if given["lora_rank"] is None and given["dtype"] in ("8bit", "4bit"):
            raise CseError(
                f'dtype = "{given["dtype"]}" requires LoRA, because quantized weights cannot be trained',
                "set lora_rank, for example lora_rank = 16",
                code="encoders.lora_without_rank",
            )
        if (given["prepend"] is None) != (given["placeholder"] is None):
            raise CseError(
                "prepend and placeholder work only together, and one of them is not set",
                "set both, or remove both",
                code="encoders.incomplete_prepend",
            )
        if given["layer"] is not None and any(averaged(each) for each in poolings):
            raise CseError(
                f"layer = {given['layer']} has no effect with a pooling over two layers",
                "remove layer, or use another pooling",
                code="encoders.layer_with_average",
            )

    @property
    def compiles(self) -> bool:
        """Whether `train.compile` compiles the blocks. Others run inside the model's own forward."""
        return is_split(self.backbone)

    def attach(self, heads: Mapping[str, Head]) -> None:
        """Add training heads after the pooling, in order."""
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
        self.hidden_read, self.mini_batch_size = hidden_read or self.reads_all_tokens, mini_batch_size

    def keep_attentions(self, blocks: Sequence[int]) -> None:
        """Select the blocks whose attention weights `encode` returns. This prevents packed rows and compiled blocks."""
        if not self.has_attentions:
            super().keep_attentions(blocks)
        if self.checkpointing:
            raise CseError(
                "checkpointing = true does not work with a loss on attention weights",
                "remove checkpointing, or set train.mini_batch_size instead",
                code="encoders.no_checkpointing",
            )
        count = len(architectures.attentions(self.backbone))
        if not set(blocks) <= set(range(count)):
            raise CseError(
                f"a loss uses the attention weights of blocks {list(blocks)}, but '{self.model}' has {count} blocks",
                f"set the layers of the loss to values from 0 to {count - 1}",
                code="encoders.unknown_block",
            )
        self.attentions_read = sorted(blocks)

    def keep_layers(self) -> None:
        """Make `encode` return the pooled states of every block."""
        if (
            self.denoise is not None
            or self.layer is not None
            or type(self).token_features is not TransformerEncoder.token_features
        ):
            raise CseError(
                "a loss reads all layers, but the encoder changes the states of its last layer",
                "remove denoise and layer from the encoder, or use a plain transformer",
                code="encoders.changed_states",
            )
        self.layers_read = True

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the (B, L, W) token vectors before any dropout."""
        if self.augment_at == "word":
            return halves.embed_words(self.backbone, tokens)
        return halves.embed_layer(self.backbone, tokens, padding_index=self.attend_padding)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Apply dropout, blocks, pooling and training heads."""
        if len(self.templates) > 1:
            raise CseError(
                f"training cannot average the embeddings of {len(self.templates)} templates",
                "set template to one string",
                code="encoders.several_templates",
            )
        tokens = self._filled(tokens)
        dropped: Tensor = self.dropout(self.layer_vectors(tokens, embeddings))
        seen = replace(tokens, mask=torch.ones_like(tokens.mask)) if self.attend_padding else tokens
        heads = None if self.drophead is None else self.drophead.draw(tokens.rows, dropped.device)
        every = self.layers_read or self._needs_all_states(self.pooling)
        plain = self.layer is None and self.prepend is None and not self.checkpointing and not self.layers_read
        reads_first = self.pooling == "cls" and not self.hidden_read and is_split(self.backbone) and plain
        attentions: dict[int, Tensor] = {}
        if self.attentions_read:
            read = self.attentions_read
            states, attentions = states_and_attentions(
                self.backbone, dropped, self._rows(seen), every, read, self.mini_batch_size, heads
            )
            states = states if self.layer is None else [states[self.layer]]
        elif reads_first:
            states = [first_states(self.backbone, dropped, self._rows(seen), self.mini_batch_size, heads).unsqueeze(1)]
        else:
            states = self.block_states(seen, dropped, every, heads)
        states = self.token_features(states, tokens.mask)
        pooled = self._pooled(self.pooling, states, tokens)
        if self.denoise is not None:
            pooled = pooled - self._template_alone(tokens)
        sentence = self._headed(pooled, tokens.groups)
        before = pooled if self.heads else None
        layers = None
        if self.layers_read:  # each block as if it were the last
            lower = [self._pooled(self.pooling, states[: last + 1], tokens) for last in range(1, len(states))]
            layers = torch.stack(lower, dim=1)
        return Encoded(sentence, dropped, states[-1], tokens, before, layers, attentions)

    def project(self, pooled: Tensor) -> Tensor:
        """Return the (B, D) output of the training heads for (B, D′) embeddings."""
        return self._headed(pooled, ())

    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the (B, D) embeddings for evaluation, without dropout and training-only heads."""
        if embeddings is not None and len(self.templates) > 1:
            raise CseError(
                f"a view has word embeddings of one template, but the encoder has {len(self.templates)} templates",
                "evaluate without a view, or set template to one string",
                code="encoders.several_templates",
            )
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                first = self._represent(tokens, embeddings)
                others = [self._represent(each, None) for each in in_other_templates(tokens, self.vocabularies[1:])]
                return torch.stack([first, *others]).mean(dim=0) if others else first
        finally:
            self.train(training)

    def export(self, folder: Path, max_length: int) -> None:
        """Write a directory for transformers, and for sentence-transformers if it can give the same embeddings."""
        model = self.backbone if self.adapter is None else lora.merged(self.backbone)
        export_transformer(model, self.vocabulary.tokenizer, self.layout(max_length), folder)
        if self.adapter is not None:
            lora.save(self.backbone, self.adapter, self.model, folder)

    def settings(self) -> dict[str, Any]:
        """Return the parameters with which an export gives the same embeddings, if its layout cannot describe them."""
        template = self.templates if len(self.templates) > 1 else self.templates[0]
        optional: dict[str, Any] = {
            "layer": self.layer,
            "first_layer_index": self.first_layer_index if self.eval_pooling == "first_last" else None,
            "template": template,
            "template_joined": self.template_joined or None,
            "end_with": self.vocabulary.end_with,
            "denoise": self.denoise if self.denoise_at_eval else None,
            "denoise_at_eval": self.denoise_at_eval or None,
            "prepend": self.prepend,
            "placeholder": self.placeholder,
        }
        given = {key: value for key, value in optional.items() if value is not None}
        return {"pooling": self.eval_pooling, "attention": self.attention, **given}

    def layout(self, max_length: int) -> Layout:
        """Return the layout of the export."""
        pooling, template, end_with = self.eval_pooling, self.vocabulary.template, self.vocabulary.end_with
        dense = [layer for head in self._heads() if (layer := head.dense())] if self.head_at_eval else []
        length = max_length if self.max_length is None else min(max_length, self.max_length)
        alone = len(self.templates) == 1 and not self.template_joined and self.layer is None and self.prepend is None
        described = pooling in BUILT_IN and pooling not in ("last", "weighted_mean", "text")
        made = partial(
            Layout, pooling, dense, length, self.model, prompts=self.prompts, prompt=self.vocabulary.prompt or "",
            prompt_length=self.vocabulary.prompt_length,
        )  # fmt: skip
        if is_split(self.backbone) and alone and described:  # a model of BERT's family with one of its poolings
            denoised = self.denoise if self.denoise_at_eval else None
            special = {"template": template, "end_with": end_with, "denoise": denoised}
            given = {key: value for key, value in special.items() if value is not None}
            own: dict[str, Any] = {"format": "template", **given} if given else {}
            return made(loadable=self._only_prompt(given), first_layer_index=self.first_layer_index, own=own)
        settings = self.settings()
        plain = self._as_trained and self._only_prompt(settings.keys() - {"pooling", "attention"})
        own = {"format": self.saved_as, "settings": settings}
        return made(loadable=plain and pooling in TOKEN_POOLINGS, own=own)

    def block_states(self, tokens: Tokens, vectors: Tensor, every: bool, heads: Tensor | None = None) -> list[Tensor]:
        """Return the (B, L, D) states after the blocks, of the selected layer or of every layer."""
        rows, packed = self._rows(tokens), self.prepend is None and not self.checkpointing
        states = run_blocks(self.backbone, vectors, rows, every, self.mini_batch_size, heads, packed)
        return states if self.layer is None else [states[self.layer]]

    def exact_states(self, tokens: Tokens, vectors: Tensor, every: bool) -> list[Tensor]:
        """Return the states bit for bit as transformers computes them."""
        states = padded_states(self.backbone, vectors, self._rows(tokens), every)
        return states if self.layer is None else [states[self.layer]]

    def token_features(self, states: Sequence[Tensor], mask: Tensor) -> list[Tensor]:  # noqa: ARG002 - a hook
        """Return the features (B, L, D) for the pooling from the states of the layers that it uses."""
        return list(states)

    def _only_prompt(self, special: Collection[str]) -> bool:
        """Return whether a prompt replaces these parameters in sentence-transformers."""
        alone = set(special) == {"template"} and len(self.templates) == 1
        return not special or (alone and self.vocabulary.prompt is not None)

    def _rows(self, tokens: Tokens) -> Rows:
        if self.prepend is None:
            return halves.rows_of(self.backbone, tokens)
        placed = self.vocabulary.id_of(str(self.placeholder))
        replaced = architectures.prepended((self.prepend[0], self.prepend[1]), tokens, placed)
        return halves.rows_of(self.backbone, tokens, replaced)

    def _filled(self, tokens: Tokens) -> Tokens:
        """Return the tokens with at least one in each row. BERT's family always has special tokens."""
        return tokens if is_split(self.backbone) else halves.never_empty(tokens)

    def _needs_all_states(self, pooling: str) -> bool:
        every = needs_all_states(pooling) if pooling in BUILT_IN else POOLINGS[pooling].layers != (-1,)
        return every or self.layer is not None

    def _heads(self) -> list[Head]:
        return [head for head in self.heads.values() if isinstance(head, Head)]

    def _headed(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:
        for head in self._heads():
            before, pooled = pooled.shape[:-1], head(pooled, groups)
            returned.shape(head, "forward", pooled, *before, None)
        return pooled

    def _pooled(self, pooling: str, states: Sequence[Tensor], tokens: Tokens) -> Tensor:
        if reads_mask(pooling):
            return pool(pooling, states, mask_places(pooling, tokens, self.vocabulary.mask))
        if pooling == "text":
            return pool(pooling, states, last_copies(tokens))
        if is_split(self.backbone) and pooling in BUILT_IN:
            return pool(pooling, states, tokens.mask, self.first_layer_index)
        if pooling in BUILT_IN:
            return pool_tokens(pooling, states, tokens.mask, self.first_layer_index)
        found = POOLINGS[pooling](states, tokens.mask)
        returned.shape_of(f"pooling '{pooling}'", POOLINGS[pooling].function, found, tokens.rows, None)
        return found

    def _template_alone(self, tokens: Tokens) -> Tensor:
        """Return the (B, D) embeddings of each row's template without its sentence. Equal rows are encoded once."""
        assert tokens.text is not None
        text, attends, padding = tokens.text == 1, self.denoise == "padding", self.vocabulary.padding
        mask = tokens.mask if attends else tokens.mask.masked_fill(text, 0)
        ids = tokens.ids.masked_fill(text, padding)
        rows, places = torch.unique(torch.cat([ids, mask], dim=1), dim=0, return_inverse=True)
        ids, mask = rows[:, : tokens.length], rows[:, tokens.length :]
        order = torch.arange(tokens.length, device=ids.device).expand(ids.shape)
        if (
            attends and architectures.position_offset(self.backbone) > 0
        ):  # RoBERTa counts positions without padding tokens
            real = ids != padding
            order = real.cumsum(dim=1) * real - 1
        alone = Tokens(ids, mask, torch.zeros_like(ids), order, text=torch.zeros_like(ids))
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.denoise_gradient is not False):
            vectors = self.dropout(self.layer_vectors(alone, None))
            states = self.block_states(alone, vectors, self._needs_all_states(self.pooling))
            return self._pooled(self.pooling, self.token_features(states, alone.mask), alone)[places]

    def layer_vectors(self, tokens: Tokens, embeddings: Tensor | None) -> Tensor:
        """Return the (B, L, W) output of the embedding layer, from `embeddings` instead of `embed` if given."""
        if embeddings is not None and self.augment_at != "word":
            return embeddings
        return halves.embed_layer(self.backbone, tokens, embeddings, padding_index=self.attend_padding)

    def _represent(self, tokens: Tokens, embeddings: Tensor | None) -> Tensor:
        tokens = self._filled(tokens)
        vectors = self.layer_vectors(tokens, embeddings)
        states = self.exact_states(tokens, vectors, self._needs_all_states(self.eval_pooling))
        states = self.token_features(states, tokens.mask)
        pooled = self._pooled(self.eval_pooling, states, tokens)
        if self.denoise_at_eval:
            pooled = pooled - self._template_alone(tokens)
        return self._headed(pooled, tokens.groups) if self.head_at_eval else pooled


def _check_architecture(encoder: TransformerEncoder) -> None:
    """Check parameters that only some models support."""
    count = int(encoder.backbone.config.num_hidden_layers)
    if encoder.layer is not None and encoder.layer > count:
        raise CseError(
            f"layer = {encoder.layer} does not exist: '{encoder.model}' has layers 0 to {count}",
            f"set layer to a value from 0 to {count}",
            code="encoders.unknown_layer",
        )
    if encoder.prepend is not None and not encoder.prepend[0] < encoder.prepend[1] <= count:
        raise CseError(
            f"prepend = {encoder.prepend} is not a range of blocks: '{encoder.model}' has blocks 0 to {count - 1}",
            f"set prepend = [a, b] with a < b ≤ {count}, for example [1, {count}]",
            code="encoders.unknown_block",
        )
    if encoder.placeholder is not None:
        encoder.vocabulary.id_of(encoder.placeholder)
        architectures.blocks(encoder.backbone)
    if encoder.attention == "causal" and "cls" in (encoder.pooling, encoder.eval_pooling):
        raise CseError(
            f"pooling \"cls\" reads only the first token, which attends to no other in '{encoder.model}'",
            'set pooling = "last" or "mean", or attention = "bidirectional"',
            code="encoders.blind_pooling",
        )


_EXAMPLE = "set template, for example 'This sentence : \"{text}\" means {mask}.'"


def _check_templates(given: Mapping[str, Any], poolings: Sequence[str]) -> None:
    """Check that the templates fit the poolings, the tokenization and the denoising."""
    templates = given["template"] if isinstance(given["template"], list) else [given["template"]]
    joined, denoise = given["template_joined"], (given["denoise"] is not None, bool(given["denoise_at_eval"]))
    masked = [each for each in poolings if reads_mask(each)]
    if masked and any(MASK not in (each or "") for each in templates):
        raise CseError(
            f'pooling "{masked[0]}" requires a template with {{mask}}', _EXAMPLE, code="encoders.no_template"
        )
    if None in templates and any(denoise):
        raise CseError("denoise and denoise_at_eval require a template", _EXAMPLE, code="encoders.no_template")
    if denoise == (False, True):
        raise CseError(
            "denoise_at_eval = true requires denoise", 'set denoise = "positions"', code="encoders.no_denoise"
        )
    reads_text = "text" in poolings
    if joined and (reads_text or None in templates or len(templates) > 1 or denoise[0]):
        raise CseError(
            'template_joined = true requires exactly one template, no denoise, and a pooling other than "text"',
            "remove template_joined, or set template to one string and pooling = 'last'",
            code="encoders.joined_template",
        )
    if denoise[0] and len(templates) > 1:
        raise CseError("denoise requires a single template", "set template to one string", code="encoders.no_denoise")
    if reads_text and None in templates:
        raise CseError(
            'pooling "text" requires a template, and template is not set',
            "set template = 'This sentence : \"{text}\" means'",
            code="encoders.no_template",
        )
    if reads_text and any(re.search(r"\{text\}\s*\{text\}", each or "") for each in templates):
        raise CseError(
            'pooling "text" cannot separate two copies of a sentence: template has "{text}" next to "{text}"',
            "add other text between the two {text}",
            code="encoders.ambiguous_template",
        )


def in_other_templates(tokens: Tokens, others: Sequence[HubVocabulary]) -> list[Tokens]:
    """Return the sentences of the rows in each of the other templates."""
    if not others:
        return []
    assert tokens.text is not None
    places = (last_copies(tokens) * tokens.text).bool()
    sentences = [Pieces(tuple(ids[at].tolist())) for ids, at in zip(tokens.ids, places, strict=True)]
    return [each.assemble(sentences).to(tokens.ids.device) for each in others]
