"""Any model that transformers opens by `AutoModel`: decoders without their prediction head, and modern encoders."""

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
from registry.models import load_config, load_model
from registry.tokens import Encoded, Pieces, Tokens
from registry.types import Encoder, Head, ModelName, Tune
from registry.vocabulary import HubVocabulary, JoinedVocabulary

Rate = Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.5)]
Rank = Annotated[int, Field(ge=1), Tune(4, 64, log=True)]
Block = Annotated[int, Field(ge=0)]


@ENCODERS.register("auto_model")
class AutoModelEncoder(Encoder):
    """Encode with any checkpoint that transformers' `AutoModel` opens: Llama, OPT, GPT-2, ModernBERT, BERT.

    s = heads(pool(f(w(x)))), with w the word vectors, which augmenters see, and f the model's own forward after them.
    A decoder is opened without its prediction head. How the model attends is found out when it is built: whether the
    last token of a sentence changes the state of the first, with padding in the batch and without. It is an error if
    that is not what `attention` says.

    Args:
        model: Directory, name under $CSE_MODELS, model shipped with cse, or hub id.
        pooling: What training compares: "last" or "cls", the state of the last or the first token; "mean", the average
            of all; "weighted_mean", an average in which the t-th token weighs t; "text", the average of the sentence's
            own tokens without its template, and of its last copy where the template repeats it.
        eval_pooling: What evaluation compares; left out is `pooling`.
        attention: "causal", each token sees those before it, or "bidirectional", each sees all, also of a decoder that
            was trained otherwise. Left out is what the checkpoint was trained with.
        template: Text put around every sentence, in which "{text}" stands for the sentence, once or several times, each
            with other text between them. It is tokenised apart from the sentence, and lengths do not count it. Of
            several templates the vectors are averaged, in evaluation alone.
        template_joined: Whether template and sentence are tokenised as one text, in evaluation alone; left out is no.
        layer: Layer whose states are pooled: 0 is what enters the first block, k the output of the k-th. Left out is
            the last, normalised as the model does it.
        prepend: Blocks a and b, counted from 0: before each of the blocks a … b − 1 the last token's state takes the
            place of the placeholder's, so that tokens behind it can see the end of the sentence.
        placeholder: The token whose place that is: one that no sentence holds, put in front of it.
        attention_dropout: Rate instead of the checkpoint's own, for attention weights; the only dropout many decoders
            have.
        lora_rank: Train matrices of this rank beside every linear layer of the blocks and nothing else of the model
            (LoRA); left out trains the model itself. A saved model has them added in.
        lora_alpha: The change is multiplied by this over the rank.
        lora_dropout: Of what enters these matrices.
        freeze: Parts of the checkpoint that are not trained, such as "embed_tokens".
        random_weights: Same shape, fresh weights: a baseline, and a fast start for tests.

    Shapes: ids (B, L) → word vectors (B, L, W) → sentence vectors (B, D). Padding may stand on either side.

    Source: PromptEOL (code kongds/scaling_sentemb) for the last token; Token Prepending (Fu et al. 2025) for `prepend`;
    LLM2Vec (BehnamGhader et al. 2024) for bidirectional attention, `attention_dropout` and LoRA; SGPT (Muennighoff
    2022), as far as remembered, for the weighted mean. Settled in methods/decoders.md and methods/llm2vec.md.
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
            JoinedVocabulary(model, each) if each is not None and template_joined else HubVocabulary(model, each)
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
            raise CseError("lora_alpha and lora_dropout say how lora_rank is used, which is left out", "set lora_rank")
        freeze_parts(self.backbone, freeze)
        limit = whole.longest(self.backbone)
        self.max_length = None if limit is None else min(each.longest(limit) for each in self.vocabularies)
        self.dim = whole.states_width(self.backbone, layer)
        self.width = int(self.backbone.get_input_embeddings().embedding_dim)
        self.heads = nn.ModuleDict()
        self.rows_at_once: int | None = None
        self.train()

    def attach(self, heads: Mapping[str, Head]) -> None:
        """Put training heads behind the pooling, in order; none is kept for evaluation."""
        for name, head in heads.items():
            self.dim = head.fit(self.dim, self)
            self.heads[name] = head

    def expect(self, *, hidden_read: bool, rows_at_once: int | None) -> None:  # noqa: ARG002 - the hook's form
        """Note how many rows' states are held at a time."""
        self.rows_at_once = rows_at_once

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, W) word vectors."""
        return whole.embed_words(self.backbone, tokens.ids)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Contextualise, pool and apply the training heads.

        Raises:
            CseError: There are several templates.
        """
        if len(self.templates) > 1:
            raise CseError("several templates make one vector in evaluation alone", "train with one of them")
        tokens = whole.never_empty(tokens)
        states = in_parts(partial(self._states, tokens), embeddings, self.rows_at_once)
        pooled = _pooled(self.pooling, states, tokens)
        sentence = self._headed(pooled, tokens)
        before = pooled if self.heads else None
        return Encoded(sentence=sentence, embeddings=embeddings, hidden=states, tokens=tokens, pooled=before)

    def project(self, pooled: Tensor) -> Tensor:
        """Return (B, D) what the training heads make of (B, D′) vectors."""
        return self._headed(pooled, None)

    def represent(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return (B, D′) the vectors evaluation uses, in eval mode: no dropout, no head.

        Raises:
            CseError: There are several templates, and `embeddings` of one.
        """
        if embeddings is not None and len(self.templates) > 1:
            raise CseError(
                "word vectors of one template cannot stand for several", "score without a view, or one of them"
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
        """Return the parameters that make the same vectors of a saved model."""
        given = {"pooling": self.eval_pooling, "attention": self.attention, "layer": self.layer}
        template = self.templates if len(self.templates) > 1 else self.templates[0]
        joined = {"template_joined": True} if self.template_joined else {}
        return {**given, **joined, "template": template, "prepend": self.prepend, "placeholder": self.placeholder}

    def export(self, folder: Path, max_length: int) -> None:
        """Write a directory that transformers loads; sentence-transformers too, where it can make the same vectors."""
        model = whole.merged(self.backbone) if self.adapted else self.backbone
        length = max_length if self.max_length is None else min(max_length, self.max_length)
        plain = self.templates == [None] and self.layer is None and self.prepend is None and self._as_trained
        settings = {"format": "auto_model", "settings": self.settings(), "max_length": length, "origin": self.model}
        export_whole(model, self.vocabulary.tokenizer, self.eval_pooling if plain else None, settings, folder)

    def _in_others(self, tokens: Tokens) -> list[Tokens]:
        """Return the sentences of rows in the first template, in each of the others."""
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
        """Return the states (b, L, D) of some rows, of the word vectors (b, L, W) of these."""
        own = whole.rows_of(tokens, rows)
        placed: Any = nullcontext()
        if self.prepend is not None:
            start, stop = self.prepend
            placed = whole.last_state_prepended(self.backbone, start, stop, own, self._placeholder)
        with placed:
            return whole.contextual_states(self.backbone, own, vectors, self.layer)

    def _check_templates(self) -> None:
        """Refuse templates that do not say which tokens are read."""
        reads_text = "text" in (self.pooling, self.eval_pooling)
        if self.template_joined and (reads_text or self.templates == [None] or len(self.templates) > 1):
            raise CseError(
                "template_joined takes one template, and loses sight of the sentence in it",
                'leave template_joined out, or give one template and another pooling than "text"',
            )
        if not reads_text:
            return
        if None in self.templates:
            raise CseError('pooling "text" reads the sentence in its template, and there is none', "set template")
        if any(re.search(r"\{text\}\s*\{text\}", each or "") for each in self.templates):
            raise CseError('pooling "text" cannot tell copies of a sentence apart', "put other text between them")

    def _place(self) -> int:
        """Return the id of the placeholder; 0 where none is needed.

        Raises:
            CseError: `layer`, `prepend` and `placeholder` do not fit the model or each other.
        """
        count = int(self.backbone.config.num_hidden_layers)
        if self.layer is not None and self.layer > count:
            raise CseError(f"layer = {self.layer}, but {self.model!r} has layers 0 to {count}", "name one of these")
        if (self.prepend is None) != (self.placeholder is None):
            raise CseError("prepend and placeholder need each other", "give both, or leave out both")
        if self.prepend is None or self.placeholder is None:
            return 0
        start, stop = self.prepend
        if not start < stop <= count:
            raise CseError(f"prepend = {self.prepend}, but {self.model!r} has {count} blocks", f"[1, {count}] at most")
        return self.vocabulary.id_of(self.placeholder)

    def _headed(self, pooled: Tensor, tokens: Tokens | None) -> Tensor:
        for head in self.heads.values():
            pooled = head(pooled, () if tokens is None else tokens.groups)
        return pooled


def _pooled(pooling: TokenPooling, states: Tensor, tokens: Tokens) -> Tensor:
    return pool_tokens(pooling, states, last_copies(tokens) if pooling == "text" else tokens.mask)
