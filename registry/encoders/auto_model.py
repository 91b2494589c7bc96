"""Encoder of any model that transformers opens with `AutoModel`, such as decoders and modern encoders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from registry import ENCODERS
from registry.encoders import whole
from registry.encoders.backbone import freeze as freeze_parts
from registry.encoders.blocks import in_parts
from registry.encoders.export import export_whole
from registry.encoders.pooling import TokenPooling, last_copies, pool_tokens
from registry.errors import CseError
from registry.resources.models import load_config, load_model
from registry.tokens import Encoded, Pieces, Tokens
from registry.types import Encoder, Head, ModelName, Tune
from registry.vocabulary import Ending, HubVocabulary, JoinedVocabulary

Rate = Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.5)]
Rank = Annotated[int, Field(ge=1), Tune(4, 64, log=True)]
Block = Annotated[int, Field(ge=0)]


@ENCODERS.register("auto_model")
class AutoModelEncoder(Encoder):
    """Encode with any checkpoint that transformers' `AutoModel` opens: Llama, OPT, GPT-2, ModernBERT, BERT.

    s = heads(pool(f(w(x)))), where w gives the word embeddings, on which augmenters act, and f is the rest of the
    model's own forward pass. A decoder is opened without its prediction head. When the encoder is built, it checks the
    attention with and without padding: it is bidirectional if the last token of a sentence changes the state of the
    first. A value of `attention` that differs from the result is an error.

    Args:
        model: Directory, name under $CSE_MODELS, model shipped with cse, or Hub ID.
        pooling: Pooling in training: "last" or "cls", the state of the last or first token. "mean", the average of all
            tokens. "weighted_mean", an average with weight t for the t-th token. "text", the average of the sentence's
            tokens without the template, of the last copy if the template repeats the sentence.
        eval_pooling: Pooling in evaluation. Default: `pooling`.
        attention: "causal", each token attends to earlier tokens, or "bidirectional", each token attends to all, also
            in a decoder that was trained with causal attention. Default: the attention of the checkpoint.
        template: Text around every sentence, in which "{text}" is the sentence. Several "{text}" need other text
            between them. The template is tokenized separately and does not count toward lengths. The embeddings of
            several templates are averaged, in evaluation only.
        template_joined: Whether template and sentence are tokenized as one string, in evaluation only. Default: false.
        end_with: Ending of sentences in the template, in evaluation only: a rule of the encoder "transformer". Default:
            sentences do not change.
        layer: Layer whose states are pooled: 0 is the input of the first block, k the output of the k-th block.
            Default: the last layer, with the model's final normalization.
        prepend: Blocks a and b, counted from 0. Before each block from a to b − 1, the last token's state replaces the
            placeholder's state, so that later tokens can attend to the end of the sentence.
        placeholder: Token that `prepend` replaces. It is in front of the sentence and occurs in no sentence.
        attention_dropout: Dropout rate of attention weights, the only dropout of many decoders. Default: the
            checkpoint's rate.
        lora_rank: Rank of trained matrices next to each linear layer of the blocks (LoRA). All other weights of the
            model are frozen. An export contains the merged weights. Default: the model itself is trained.
        lora_alpha: Numerator of the factor lora_alpha / lora_rank of the LoRA update. Default: `lora_rank`.
        lora_dropout: Dropout rate of the input of the LoRA matrices.
        freeze: Parts of the checkpoint that are not trained, such as "embed_tokens".
        random_weights: Whether the weights are random, for a baseline or a fast test.

    Shapes: ids (B, L) → word embeddings (B, L, W) → sentence embeddings (B, D). Padding can be on either side.

    Source: PromptEOL (code kongds/scaling_sentemb) for the last token; Token Prepending (Fu et al. 2025) for `prepend`;
    LLM2Vec (BehnamGhader et al. 2024) for bidirectional attention, `attention_dropout` and LoRA; SGPT (Muennighoff
    2022, cited from memory) for the weighted mean. Settled in methods/decoders.md and methods/llm2vec.md.

    Example:
        [encoders.online]
        name = "auto_model"
        model = "facebook/opt-125m"
        pooling = "last"
        template = 'This sentence : "{text}" means in one word:"'
    """

    augment_at = "word"
    compiles: ClassVar[bool] = False  # its blocks run inside the model's own forward

    def __init__(
        self,
        model: ModelName,
        pooling: TokenPooling = "mean",
        eval_pooling: TokenPooling | None = None,
        attention: whole.Attention | None = None,
        template: str | Annotated[list[str], Field(min_length=1)] | None = None,
        template_joined: bool | None = None,
        end_with: Ending | None = None,
        layer: Block | None = None,
        prepend: Annotated[list[Block], Field(min_length=2, max_length=2)] | None = None,
        placeholder: str | None = None,
        attention_dropout: Rate | None = None,
        lora_rank: Rank | None = None,
        lora_alpha: Annotated[int, Field(ge=1, le=4096)] | None = None,
        lora_dropout: Rate | None = None,
        freeze: list[str] = [],  # noqa: B006 - a declaration, never changed
        random_weights: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.pooling: TokenPooling = pooling
        self.eval_pooling: TokenPooling = eval_pooling or pooling
        self.templates = template if isinstance(template, list) else [template]
        self.template_joined = bool(template_joined)
        self._check_templates()
        self.vocabularies = [
            JoinedVocabulary(model, each, end_with)
            if each is not None and template_joined
            else HubVocabulary(model, each, end_with)
            for each in self.templates
        ]
        self.vocabulary: HubVocabulary = self.vocabularies[0]
        rates: dict[str, Any] = {}
        if attention_dropout is not None:
            rates[whole.dropout_key(load_config(model))] = attention_dropout
        self.backbone = load_model(model, random_weights=random_weights, **rates)
        whole.verify(self.backbone)
        decoder = whole.is_decoder(self.backbone)
        self.attention = whole.set_attention(self.backbone, attention)
        self._as_trained = self.attention == "causal" or not decoder
        self.layer, self.prepend, self.placeholder = layer, prepend, placeholder
        self._placeholder = self._place()
        self.adapted = lora_rank is not None
        if lora_rank is not None:
            whole.add_low_rank(self.backbone, lora_rank, lora_alpha or lora_rank, lora_dropout or 0.0)
        elif lora_alpha is not None or lora_dropout is not None:
            raise CseError(
                "lora_alpha and lora_dropout have no effect without lora_rank",
                "set lora_rank, for example lora_rank = 16",
                code="encoders.lora_without_rank",
            )
        freeze_parts(self.backbone, freeze)
        limit = whole.longest(self.backbone)
        self.max_length = None if limit is None else min(each.longest(limit) for each in self.vocabularies)
        self.dim = whole.states_width(self.backbone, layer)
        self.width = int(self.backbone.get_input_embeddings().embedding_dim)
        self.heads = nn.ModuleDict()
        self.mini_batch_size: int | None = None
        self.train()

    def attach(self, heads: Mapping[str, Head]) -> None:
        """Add training heads after the pooling, in order. Evaluation uses none of them."""
        for name, head in heads.items():
            self.dim = head.fit(self.dim, self)
            self.heads[name] = head

    def expect(self, *, hidden_read: bool, mini_batch_size: int | None) -> None:  # noqa: ARG002 - the hook's form
        """Set the number of rows whose states are in memory at a time."""
        self.mini_batch_size = mini_batch_size

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the (B, L, W) word embeddings."""
        return whole.embed_words(self.backbone, tokens.ids)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Apply the model, pooling and training heads.

        Raises:
            CseError: If the encoder has several templates.
        """
        if len(self.templates) > 1:
            raise CseError(
                f"training cannot average the embeddings of {len(self.templates)} templates",
                "set template to one string",
                code="encoders.several_templates",
            )
        tokens = whole.never_empty(tokens)
        states = in_parts(partial(self._states, tokens), embeddings, self.mini_batch_size)
        pooled = _pooled(self.pooling, states, tokens)
        sentence = self._headed(pooled, tokens)
        before = pooled if self.heads else None
        return Encoded(sentence=sentence, embeddings=embeddings, hidden=states, tokens=tokens, pooled=before)

    def project(self, pooled: Tensor) -> Tensor:
        """Return the (B, D) output of the training heads for (B, D′) embeddings."""
        return self._headed(pooled, None)

    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the (B, D′) embeddings for evaluation, without dropout and heads.

        Raises:
            CseError: If the encoder has several templates and `embeddings` is given.
        """
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
                first = self._represented(tokens, embeddings)
                others = [self._represented(each, None) for each in self._in_others(tokens)]
                return torch.stack([first, *others]).mean(dim=0) if others else first
        finally:
            self.train(training)

    def settings(self) -> dict[str, Any]:
        """Return the parameters with which an export gives the same embeddings."""
        given: dict[str, Any] = {"pooling": self.eval_pooling, "attention": self.attention, "layer": self.layer}
        template = self.templates if len(self.templates) > 1 else self.templates[0]
        optional = {"template_joined": self.template_joined or None, "end_with": self.vocabulary.end_with}
        given |= {key: value for key, value in optional.items() if value is not None}
        return {**given, "template": template, "prepend": self.prepend, "placeholder": self.placeholder}

    def export(self, folder: Path, max_length: int) -> None:
        """Write a directory for transformers, and for sentence-transformers if it can give the same embeddings."""
        model = whole.merged(self.backbone) if self.adapted else self.backbone
        length = max_length if self.max_length is None else min(max_length, self.max_length)
        plain = self.templates == [None] and self.layer is None and self.prepend is None and self._as_trained
        settings = {"format": "auto_model", "settings": self.settings(), "max_length": length, "origin": self.model}
        export_whole(model, self.vocabulary.tokenizer, self.eval_pooling if plain else None, settings, folder)

    def _in_others(self, tokens: Tokens) -> list[Tokens]:
        """Return the sentences of the rows in each template after the first."""
        if len(self.templates) == 1:
            return []
        assert tokens.text is not None
        places = (last_copies(tokens) * tokens.text).bool()
        sentences = [Pieces(tuple(ids[at].tolist())) for ids, at in zip(tokens.ids, places, strict=True)]
        return [each.assemble(sentences).to(tokens.ids.device) for each in self.vocabularies[1:]]

    def _represented(self, tokens: Tokens, embeddings: Tensor | None) -> Tensor:
        tokens = whole.never_empty(tokens)
        vectors = self.embed(tokens) if embeddings is None else embeddings
        return _pooled(self.eval_pooling, self._states(tokens, vectors, slice(None)), tokens)

    def _states(self, tokens: Tokens, vectors: Tensor, rows: slice) -> Tensor:
        """Return the (b, L, D) states of `rows`, whose word embeddings are (b, L, W)."""
        own = whole.rows_of(tokens, rows)
        placed: Any = nullcontext()
        if self.prepend is not None:
            start, stop = self.prepend
            placed = whole.last_state_prepended(self.backbone, start, stop, own, self._placeholder)
        with placed:
            return whole.contextual_states(self.backbone, own, vectors, self.layer)

    def _check_templates(self) -> None:
        """Check that the templates fit pooling and tokenization."""
        reads_text = "text" in (self.pooling, self.eval_pooling)
        if self.template_joined and (reads_text or self.templates == [None] or len(self.templates) > 1):
            raise CseError(
                'template_joined = true requires exactly one template and a pooling other than "text"',
                "remove template_joined, or set template to one string and pooling = 'last'",
                code="encoders.joined_template",
            )
        if not reads_text:
            return
        if None in self.templates:
            raise CseError(
                'pooling "text" requires a template, and template is not set',
                "set template = 'This sentence : \"{text}\" means'",
                code="encoders.no_template",
            )
        if any(re.search(r"\{text\}\s*\{text\}", each or "") for each in self.templates):
            raise CseError(
                'pooling "text" cannot separate two copies of a sentence: template has "{text}" next to "{text}"',
                "add other text between the two {text}",
                code="encoders.ambiguous_template",
            )

    def _place(self) -> int:
        """Return the ID of the placeholder, or 0 without `prepend`.

        Raises:
            CseError: If `layer`, `prepend` and `placeholder` do not fit the model or each other.
        """
        count = int(self.backbone.config.num_hidden_layers)
        if self.layer is not None and self.layer > count:
            raise CseError(
                f"layer = {self.layer} does not exist: '{self.model}' has layers 0 to {count}",
                f"set layer to a value from 0 to {count}",
                code="encoders.unknown_layer",
            )
        if (self.prepend is None) != (self.placeholder is None):
            raise CseError(
                "prepend and placeholder work only together, and one of them is not set",
                "set both, or remove both",
                code="encoders.incomplete_prepend",
            )
        if self.prepend is None or self.placeholder is None:
            return 0
        start, stop = self.prepend
        if not start < stop <= count:
            raise CseError(
                f"prepend = {self.prepend} is not a range of blocks: '{self.model}' has blocks 0 to {count - 1}",
                f"set prepend = [a, b] with a < b ≤ {count}, for example [1, {count}]",
                code="encoders.unknown_block",
            )
        return self.vocabulary.id_of(self.placeholder)

    def _headed(self, pooled: Tensor, tokens: Tokens | None) -> Tensor:
        for head in self.heads.values():
            pooled = head(pooled, () if tokens is None else tokens.groups)
        return pooled


def _pooled(pooling: TokenPooling, states: Tensor, tokens: Tokens) -> Tensor:
    return pool_tokens(pooling, states, last_copies(tokens) if pooling == "text" else tokens.mask)
