"""Sentences, tokens, and the outputs of an encoder. Shapes are those of `registry.types`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """One sentence or pair before the tokenizer.

    Args:
        text: Sentence.
        pair: Second segment, for methods that encode two sentences jointly.
        label: Label of an augmenter that composes pairs.
        joint: Whether to truncate a pair as one text of twice the length, the longer side first. Otherwise, each side
            is truncated separately.
    """

    text: str
    pair: str | None = None
    label: int | None = None
    joint: bool = False

    def changed(self, change: Callable[[str], str]) -> Sample:
        """Return the sample with `change` applied to each segment."""
        return replace(self, text=change(self.text), pair=None if self.pair is None else change(self.pair))


@dataclass(frozen=True)
class Pieces:
    """One sentence or pair as truncated sub-word IDs without special tokens.

    Args:
        first: Sentence.
        second: Second segment of a pair.
        label: Label of the `Sample`.
    """

    first: tuple[int, ...]
    second: tuple[int, ...] | None = None
    label: int | None = None

    def changed(self, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Pieces:
        """Return the pieces with `change` applied to each segment."""
        return replace(self, first=change(self.first), second=None if self.second is None else change(self.second))


@dataclass(frozen=True)
class Tokens:
    """Padded token IDs of B sentences.

    Args:
        ids: (B, L) int64.
        mask: (B, L) int64. 1 for tokens, 0 for padding.
        types: (B, L) int64 segment IDs.
        positions: (B, L) int64, counted from 0. The encoder adds its offset.
        labels: (B,) or None.
        targets: (B, L) original IDs of masked tokens, −100 for all others, or None.
        side: Column → tokens of this column, for augmenters that read a second text.
        text: (B, L) 1 for tokens of the sentence, 0 for those of its template, or None without a template.
        groups: View and number of rows, in order, if several views are stacked. Empty for a single view.
        numbers: Column → (B,) its numbers, for losses that read labels.
    """

    ids: Tensor
    mask: Tensor
    types: Tensor
    positions: Tensor
    labels: Tensor | None = None
    targets: Tensor | None = None
    side: Mapping[str, Tokens] = field(default_factory=dict)
    text: Tensor | None = None
    groups: tuple[tuple[str, int], ...] = ()
    numbers: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of sentences, B."""
        return self.ids.shape[0]

    @property
    def length(self) -> int:
        """Number of tokens, L."""
        return self.ids.shape[1]

    def to(self, device: torch.device | str) -> Tokens:
        """Return the same tokens on `device`."""
        values = [(name, value) for name, value in vars(self).items() if isinstance(value, Tensor)]
        moved: dict[str, Any] = {name: value.to(device, non_blocking=True) for name, value in values}
        side = {column: tokens.to(device) for column, tokens in self.side.items()}
        numbers = {column: values.to(device, non_blocking=True) for column, values in self.numbers.items()}
        return replace(self, **moved, side=side, numbers=numbers)

    def padded_to(self, length: int) -> Tokens:
        """Return the tokens with padding up to `length`. `side` is not padded."""
        extra = length - self.length
        if extra <= 0:
            return self
        positions = torch.arange(self.length, length, device=self.ids.device).expand(self.rows, extra)
        return replace(
            self,
            ids=F.pad(self.ids, (0, extra)),
            mask=F.pad(self.mask, (0, extra)),
            types=F.pad(self.types, (0, extra)),
            positions=torch.cat([self.positions, positions], dim=1),
            targets=None if self.targets is None else F.pad(self.targets, (0, extra), value=-100),
            text=None if self.text is None else F.pad(self.text, (0, extra)),
        )

    @staticmethod
    def stack(views: Mapping[str, Tokens]) -> Tokens:
        """Return the concatenated rows of all views, padded to the longest. Contains only what an encoder reads."""
        length = max(tokens.length for tokens in views.values())
        padded = [tokens.padded_to(length) for tokens in views.values()]
        in_templates = any(p.text is not None for p in padded)
        return Tokens(
            ids=torch.cat([p.ids for p in padded]),
            mask=torch.cat([p.mask for p in padded]),
            types=torch.cat([p.types for p in padded]),
            positions=torch.cat([p.positions for p in padded]),
            text=torch.cat([p.mask if p.text is None else p.text for p in padded]) if in_templates else None,
            groups=tuple((view, tokens.rows) for view, tokens in views.items()),
        )


@dataclass(frozen=True)
class Embedded:
    """Token embeddings between `Encoder.embed` and `Encoder.encode`.

    Args:
        tokens: Tokens. An augmenter can change length and mask.
        vectors: (B, L, W) token embeddings.
    """

    tokens: Tokens
    vectors: Tensor


@dataclass(frozen=True)
class Encoded:
    """Output of an encoder for one view on this device.

    Args:
        sentence: (B, D) sentence embeddings after the training heads, which losses compare.
        embeddings: (B, L, W) input of the transformer blocks, after augmenters and dropout.
        hidden: (B, L, W) last layer, undefined at padding. (B, 1, W) if no loss reads it.
        tokens: Tokens of the view.
        pooled: (B, D′) sentence embeddings before the training heads, or None without heads.
        layers: (B, K, D′) pooled states of K layers, or None if the encoder returns only one.
        attentions: Index of a block, counted from 0 → (B, H, L, L) attention weights. Row i contains the weights of
            token i. Only for blocks that a loss reads.
    """

    sentence: Tensor
    embeddings: Tensor
    hidden: Tensor
    tokens: Tokens
    pooled: Tensor | None = None
    layers: Tensor | None = None
    attentions: Mapping[int, Tensor] = field(default_factory=dict)

    @property
    def before_heads(self) -> Tensor:
        """(B, D′) sentence embeddings before the training heads."""
        return self.sentence if self.pooled is None else self.pooled

    def at_least_single(self) -> Encoded:
        """Return the output for losses, with half precision converted to float32."""
        return replace(
            self,
            sentence=at_least_single(self.sentence),
            embeddings=at_least_single(self.embeddings),
            hidden=at_least_single(self.hidden),
            pooled=None if self.pooled is None else at_least_single(self.pooled),
            layers=None if self.layers is None else at_least_single(self.layers),
            attentions={block: at_least_single(weights) for block, weights in self.attentions.items()},
        )

    def rows(self, start: int, stop: int, tokens: Tokens) -> Encoded:
        """Return rows start…stop, truncated to the length of `tokens`, which replace the stacked tokens."""
        cut = tokens.length
        return Encoded(
            sentence=self.sentence[start:stop],
            embeddings=self.embeddings[start:stop, :cut],
            hidden=self.hidden[start:stop, :cut],
            tokens=tokens,
            pooled=None if self.pooled is None else self.pooled[start:stop],
            layers=None if self.layers is None else self.layers[start:stop],
            attentions={block: weights[start:stop, :, :cut, :cut] for block, weights in self.attentions.items()},
        )


def at_least_single(values: Tensor) -> Tensor:
    """Return half-precision values as float32, and others unchanged."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


PINNED = ("cuda", "xpu")
"""Devices with their own memory, to which pinned memory is copied without waiting."""


def copy_to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return host values on a device. Pinned memory avoids that the host waits for the copy."""
    if device.type in PINNED and values.device.type == "cpu":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


def attention_mask(mask: Tensor) -> Tensor:
    """Return the mask (B, L) with four dimensions on a GPU.

    transformers reads the values of a mask (B, L), to drop it without padding, and so waits for the GPU.
    """
    if mask.device.type == "cpu" or mask.ndim > 2:
        return mask
    return mask.bool()[:, None, None, :].expand(-1, 1, mask.shape[1], -1)


class Vocabulary(Protocol):
    """A tokenizer: converts text to token IDs, and token IDs to padded tensors."""

    @property
    def fingerprint(self) -> str:
        """Digest of the tokenizer, as a key of the token cache."""

    @property
    def size(self) -> int:
        """Number of token IDs."""

    @property
    def specials(self) -> frozenset[int]:
        """IDs of special tokens, such as [CLS], [SEP], [PAD], [MASK] and [UNK]."""

    @property
    def mask(self) -> int | None:
        """ID of [MASK], or None."""

    @property
    def continued(self) -> frozenset[int]:
        """IDs of sub-words that continue a word, such as "##ing". Empty if the tokenizer does not mark them so."""

    def id_of(self, token: str) -> int:
        """Return the ID of a token, or raise `CseError` if it does not exist."""

    def with_template(self, template: str | None) -> Vocabulary:
        """Return the tokenizer with a template around every sentence.

        Raises:
            CseError: If it does not support the template.
        """

    def room(self, max_length: int) -> int:
        """Return the maximum number of sub-words of a sentence for `max_length`."""

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return token IDs of sentences with special tokens, truncated to `max_length` plus the template."""

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return sentences padded to the longest."""

    def pieces(self, samples: Sequence[Sample], max_length: int) -> list[Pieces]:
        """Return samples as sub-words. Each side of a pair fits `max_length` as a single sentence."""

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:
        """Return padded tokens with the special tokens and segments of the model."""

    def tokens(self, samples: Sequence[Sample], max_length: int) -> Tokens:
        """Return padded tokens of samples: `assemble` of `pieces`."""
