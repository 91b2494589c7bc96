"""Contrastive prompting: one attention layer of a decoder, steered away from an auxiliary prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import ENCODERS
from registry.encoders import architectures
from registry.encoders import backbone as halves
from registry.encoders.blocks import padded_states, run_blocks
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.poolings import last_places
from registry.tokens import Tokens
from registry.types import Tune
from registry.vocabulary import Ending, HubVocabulary, JoinedVocabulary

AUXILIARY = "auxiliary"
"""Key in `Tokens.side` of the sentences in the auxiliary prompt."""

_BETWEEN = -1
"""Entry of a row between the tokens of both prompts."""


class PairedVocabulary(JoinedVocabulary):
    """Tokenizer that puts each sentence into two templates. A row contains the tokens of both."""

    def __init__(self, model: str, template: str, auxiliary: str, end_with: Ending | None = None) -> None:
        super().__init__(model, template, end_with)
        self.other = JoinedVocabulary(model, auxiliary)
        self._auxiliary = auxiliary

    def with_template(self, template: str | None) -> HubVocabulary:
        """Return the tokenizer with another first template."""
        if template is None:
            return super().with_template(template)
        return PairedVocabulary(self.model, template, self._auxiliary, self.end_with)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the tokenizer's serialized form."""
        both = f"{JoinedVocabulary(self.model, str(self.template)).fingerprint}|{self.other.fingerprint}"
        return hashlib.sha256(both.encode()).hexdigest()[:16]

    def longest(self, tokens: int) -> int:
        """Return the largest `max_length` with which no prompt is longer than `tokens`."""
        return min(super().longest(tokens), self.other.longest(tokens))

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return the token IDs of both prompts, with −1 between them."""
        both = zip(super().ids(texts, max_length), self.other.ids(texts, max_length), strict=True)
        return [[*first, _BETWEEN, *second] for first, second in both]

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return sentences padded to the longest, with those in the auxiliary prompt in `side`."""
        ends = [row.index(_BETWEEN) for row in rows]
        first, second = (
            super(PairedVocabulary, self).pad(part)
            for part in (
                [row[:end] for row, end in zip(rows, ends, strict=True)],
                [row[end + 1 :] for row, end in zip(rows, ends, strict=True)],
            )
        )
        return replace(first, side={AUXILIARY: second})


class _FoundError(Exception):
    """Signal that ends a forward pass, because later blocks are not needed."""


@ENCODERS.register("contrastive_prompting")
class ContrastivePromptingEncoder(TransformerEncoder):
    """Encode with a prompt for a decoder, and subtract an auxiliary prompt from the attention heads of one block.

    s = h_N, the state of the last token. In block `block`, its concatenated attention heads o_N, before the output
    projection, are replaced by α·(o_N − o′_N′). There, o′ are the heads of the same block for the same sentence in
    the auxiliary prompt, which requests irrelevant information, and N′ is its last token. Earlier blocks and other
    tokens do not change. The auxiliary prompt is computed up to this block only, without `prepend`.

    Only for evaluation, because both prompts are tokenized as one string with the sentence. Only cse opens an export.

    Args:
        template: Text around every sentence, as in `transformer`.
        auxiliary: Text around the sentence in the auxiliary prompt.
        block: Index of the block, from 0.
        coefficient: Factor α. Default: ‖o_N‖ / ‖o_N − o′_N′‖ of each sentence, which keeps the norm of o_N.
        template_joined: Always true.
        pooling: Always "last".
        eval_pooling: Always "last".

    Shapes: o, o′ (B, H·E) with H heads of width E. The others are those of `transformer`.

    Source: Contrastive Prompting (Cheng et al. 2025, arXiv 2505.12831) and its code (zifengcheng/CP @bf5ee56,
    activation_intervention/__init__.py:229-234 "scaled", :199-214 "norm"; evaluate_intervention.py:194-201, 244-289).
    The paper was read only in summaries. Settled in methods/decoders.md: tokenization (PE9), prompts
    with which the code combines it (CP1), norm (CP2, `coefficient`), block and layer (CP3).

    Raises:
        CseError: If the attention heads of the architecture are unknown, or there is no such block.

    Example:
        [encoders.online]
        name = "contrastive_prompting"
        model = "meta-llama/Llama-2-7b-hf"
        block = 4
        coefficient = 0.5
        layer = 27
    """

    saved_as = "contrastive_prompting"

    def __init__(
        self,
        template: str = 'This sentence : "{text}" means in one word:"',
        auxiliary: str = 'The irrelevant information of this sentence : "{text}" means in one word:"',
        block: Annotated[int, Field(ge=0)] = 4,
        coefficient: Annotated[float, Field(gt=0), Tune(0.1, 2.0)] | None = None,
        template_joined: Literal[True] = True,
        pooling: Literal["last"] = "last",
        eval_pooling: Literal["last"] | None = None,
        **shared: Any,
    ) -> None:
        given: dict[str, Any] = {"template": template, "template_joined": template_joined, **shared}
        super().__init__(pooling=pooling, eval_pooling=eval_pooling, **given)
        self.vocabulary: PairedVocabulary = PairedVocabulary(self.model, template, auxiliary, self.vocabulary.end_with)
        limit = halves.longest(self.backbone)
        self.max_length = None if limit is None else self.vocabulary.longest(limit)
        count = len(self._outputs())
        if block >= count:
            raise CseError(
                f"contrastive_prompting: block = {block}, but '{self.model}' has {count} blocks",
                f"use a block from 0 to {count - 1}",
                code="encoders.unknown_block",
            )
        self.auxiliary, self.block, self.coefficient = auxiliary, block, coefficient

    def block_states(self, tokens: Tokens, vectors: Tensor, every: bool, heads: Tensor | None = None) -> list[Tensor]:
        """Return the (B, L, D) states after the blocks, of the selected layer or of every layer."""
        with self._steered(tokens):
            states = run_blocks(self.backbone, vectors, self._rows(tokens), every, heads=heads, packed=False)
        return states if self.layer is None else [states[self.layer]]

    def exact_states(self, tokens: Tokens, vectors: Tensor, every: bool) -> list[Tensor]:
        """Return the states for evaluation, as transformers computes them."""
        with self._steered(tokens):
            return super().exact_states(tokens, vectors, every)

    def settings(self) -> dict[str, Any]:
        """Return the parameters with which an export gives the same embeddings."""
        own = {"auxiliary": self.auxiliary, "block": self.block, "coefficient": self.coefficient}
        return {**super().settings(), **{key: value for key, value in own.items() if value is not None}}

    def _outputs(self) -> list[nn.Module]:
        return architectures.head_outputs(
            self.backbone, "contrastive_prompting", "set model to a Llama or Qwen3 checkpoint"
        )

    @contextmanager
    def _steered(self, tokens: Tokens) -> Iterator[None]:
        """Change the attention heads of the last token in one block."""
        if AUXILIARY not in tokens.side:
            raise CseError(
                "contrastive_prompting is only for evaluation",
                'set train.steps = 0, or train with the encoder "transformer"',
                code="encoders.no_training",
            )
        subtracted, places = self._auxiliary_heads(tokens.side[AUXILIARY]), last_places(tokens.mask)

        def before(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            heads, *others = given
            rows = torch.arange(len(heads), device=heads.device)
            steered = difference(heads[rows, places], subtracted, self.coefficient)
            return (heads.index_put((rows, places), steered.to(heads.dtype)), *others)  # autocast: a norm is fp32

        with self._outputs()[self.block].register_forward_pre_hook(before):
            yield

    def _auxiliary_heads(self, tokens: Tokens) -> Tensor:
        """Return the heads (B, H·E) of the last token of the auxiliary prompt."""
        found: list[Tensor] = []

        def before(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            found.append(given[0])
            raise _FoundError

        vectors = self.layer_vectors(tokens, None)
        with self._outputs()[self.block].register_forward_pre_hook(before), suppress(_FoundError):
            padded_states(self.backbone, vectors, halves.rows_of(self.backbone, tokens), False)
        return found[0][torch.arange(tokens.rows, device=vectors.device), last_places(tokens.mask)]


def difference(heads: Tensor, subtracted: Tensor, coefficient: float | None) -> Tensor:
    """Return α·(o − o′) for heads o and o′ (B, H·E), by default with the norm of o."""
    change = heads - subtracted
    if coefficient is not None:
        return coefficient * change
    kept: Tensor = heads.norm(dim=-1, keepdim=True)
    return kept * F.normalize(change, dim=-1)
