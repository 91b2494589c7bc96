"""Sentences, their tokens, and the tensors an encoder makes of them. Shapes as in `registry.types`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """One sentence, before the tokeniser.

    Args:
        text: The sentence.
        pair: Second segment, for methods that encode two sentences jointly.
        label: Made by an augmenter that composes pairs.
        joint: Cut a pair as one text of twice the length, longest side first, instead of each side by itself.
    """

    text: str
    pair: str | None = None
    label: int | None = None
    joint: bool = False

    def changed(self, change: Callable[[str], str]) -> Sample:
        """Return it with each segment changed by itself."""
        return replace(self, text=change(self.text), pair=None if self.pair is None else change(self.pair))


@dataclass(frozen=True)
class Pieces:
    """One sentence or pair as sub-word ids without special tokens, each side cut to what fits.

    Args:
        first: The sentence.
        second: The second segment of a pair.
        label: As in `Sample`.
    """

    first: tuple[int, ...]
    second: tuple[int, ...] | None = None
    label: int | None = None

    def changed(self, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Pieces:
        """Return it with each segment changed by itself."""
        return replace(self, first=change(self.first), second=None if self.second is None else change(self.second))


@dataclass(frozen=True)
class Tokens:
    """Padded token ids of B sentences.

    Args:
        ids: (B, L) int64.
        mask: (B, L) int64; 1 for real tokens.
        types: (B, L) int64 segment ids.
        positions: (B, L) int64, counted from 0; the encoder adds its own offset.
        labels: (B,) or None.
        targets: (B, L) what stood at places an augmenter hid, −100 elsewhere; or None.
        side: Column name → that column's tokens, for augmenters that read a second text.
        text: (B, L) 1 where the sentence itself stands, of rows in a template; else None.
        groups: View and its rows, in order, where several views are stacked; empty for one view by itself.
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

    @property
    def rows(self) -> int:
        """B."""
        return self.ids.shape[0]

    @property
    def length(self) -> int:
        """L."""
        return self.ids.shape[1]

    def to(self, device: torch.device | str) -> Tokens:
        """Return the same tokens on `device`."""
        values = [(name, value) for name, value in vars(self).items() if isinstance(value, Tensor)]
        moved: dict[str, Any] = {name: value.to(device, non_blocking=True) for name, value in values}
        return replace(self, **moved, side={column: tokens.to(device) for column, tokens in self.side.items()})

    def padded_to(self, length: int) -> Tokens:
        """Return the same sentences with masked places appended up to `length`; `side` is left alone."""
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
        """Return the rows of all views below each other, padded to the longest: what an encoder reads, no more."""
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
    """Token vectors on their way into an encoder.

    Args:
        tokens: Their tokens; an augmenter may change length and mask.
        vectors: (B, L, W).
    """

    tokens: Tokens
    vectors: Tensor


@dataclass(frozen=True)
class Encoded:
    """What an encoder makes of one view, on this device.

    Args:
        sentence: (B, D) after the training heads: what losses compare.
        embeddings: (B, L, W) what entered the transformer blocks: augmented, then dropped.
        hidden: (B, L, W) last layer, meaningless at padding; (B, 1, W) where no loss reads it.
        tokens: The tokens encoded.
        pooled: (B, D′) before the training heads; None where there are none, so that it is `sentence`.
        layers: (B, K, D′) the pooled states of K layers, of an encoder that gives several; else None.
        attentions: Block, counted from 0 → (B, H, L, L) its attention weights, row by row what a token attends to; of
            the blocks that a loss reads.
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
        """(B, D′) the sentence vectors that the training heads start from."""
        return self.sentence if self.pooled is None else self.pooled

    def at_least_single(self) -> Encoded:
        """Return the same vectors as losses take them: in fp32 where the forward pass was in half precision."""
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
        """Return rows start…stop, cut to the length of `tokens`, which replace the stacked ones."""
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
    """Return the values in single precision where they have half; double stays double."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def copy_to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return values of the host on a device; pinned memory keeps the host from waiting for a GPU's copy."""
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


def attention_mask(mask: Tensor) -> Tensor:
    """Return the mask (B, L) in a form that transformers takes without reading its values, which waits for the GPU.

    Given (B, L), it drops the mask where there is no padding; four dimensions it takes as they are.
    """
    if mask.device.type == "cpu" or mask.ndim > 2:
        return mask
    return mask.bool()[:, None, None, :].expand(-1, 1, mask.shape[1], -1)


class Vocabulary(Protocol):
    """Text → token ids, and token ids → padded tensors."""

    @property
    def fingerprint(self) -> str:
        """Digest of the tokenizer's content: a key of the token cache."""

    @property
    def size(self) -> int:
        """Number of ids."""

    @property
    def specials(self) -> frozenset[int]:
        """Ids that stand for no text: [CLS], [SEP], [PAD], [MASK], [UNK] and their like."""

    @property
    def mask(self) -> int | None:
        """The id of [MASK], where there is one."""

    def id_of(self, token: str) -> int:
        """Return the id of a token of the vocabulary; a CseError where there is none."""

    def with_template(self, template: str | None) -> Vocabulary:
        """Return the same with a text around every sentence.

        Raises:
            CseError: It takes none, or not this one.
        """

    def room(self, max_length: int) -> int:
        """Return how many sub-words of a sentence `max_length` leaves."""

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return token ids of single sentences, specials included, truncated to `max_length`; templates come on top."""

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return single sentences padded to the longest."""

    def pieces(self, samples: Sequence[Sample], max_length: int) -> list[Pieces]:
        """Return samples as sub-words: each side of a pair fits `max_length` with the specials of a single sentence."""

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:
        """Return padded tokens with the model's own special tokens and segments around sentences and pairs."""

    def tokens(self, samples: Sequence[Sample], max_length: int) -> Tokens:
        """Tokenise samples: `assemble` of `pieces`."""
