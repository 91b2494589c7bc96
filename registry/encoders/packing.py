"""Real tokens only, one after the other, and attention among those of one sentence: what a CPU computes fastest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

NAME = "cse_packed"
"""What transformers' attention interface knows `packed_attention` by."""
SPARE = 48
"""Padding tokens that are less work than one more call of attention."""


def attention(rows: Sequence[Tensor], mask: Tensor | None, dropout: float, scaling: float | None) -> Tensor:
    """Return (n, H, q, E) of queries, keys and values (n, H, …, E).

    Args:
        rows: The three.
        mask: True, or 0 where it is added, for places that are attended to; None for all.
        dropout: Rate.
        scaling: Factor; None is 1/√E.
    """
    query, key, value = rows
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)


@dataclass(frozen=True)
class Group:
    """Sentences of about one length below each other in a pack, whose attention is one call.

    Args:
        tokens: Where their tokens stand in the pack.
        sentences: Where they stand among the sentences of the pack.
        length: Tokens of the longest.
        places: (n · length,) the token of this group at each place of a padded table; None where no place is padding.
        real: (tokens,) the place of each token in that table; None likewise.
        mask: (n, 1, 1, length) True for real places; None likewise.
    """

    tokens: slice
    sentences: slice
    length: int
    places: Tensor | None = None
    real: Tensor | None = None
    mask: Tensor | None = None

    def rows(self, states: Tensor) -> Tensor:
        """Return (n, H, length, E) of the pack's (T, H, E)."""
        own = states[self.tokens]
        padded = own if self.places is None else own.index_select(0, self.places)
        return padded.view(-1, self.length, *padded.shape[1:]).transpose(1, 2)

    def flat(self, rows: Tensor) -> Tensor:
        """Return the tokens (t, H, E) of (n, H, length, E)."""
        flat = rows.transpose(1, 2).flatten(0, 1)
        return flat if self.real is None else flat.index_select(0, self.real)


@dataclass(frozen=True)
class Pack:
    """Some sentences of a batch, ordered by length, without padding.

    Args:
        places: (T,) where its tokens stand in the batch's B · L places.
        sentences: (n,) which rows of the batch they are of.
        firsts: (n,) where each sentence begins in the pack.
        groups: In order, together all of it.
    """

    places: Tensor
    sentences: Tensor
    firsts: Tensor
    groups: tuple[Group, ...]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float, scaling: float | None) -> Tensor:
        """Return (T, H, E) of three such: each token attends to its own sentence."""
        made = []
        for group in self.groups:
            rows = [group.rows(states) for states in (query, key, value)]
            made.append(group.flat(attention(rows, group.mask, dropout, scaling)))
        return torch.cat(made)

    def attend_first(self, query: Tensor, key: Tensor, value: Tensor, dropout: float, scaling: float | None) -> Tensor:
        """Return (n, H, E): as above, for the first token of each sentence, whose queries `query` (n, H, E) holds."""
        made = []
        for group in self.groups:
            rows = [query[group.sentences].unsqueeze(2), group.rows(key), group.rows(value)]
            made.append(attention(rows, group.mask, dropout, scaling).squeeze(2))
        return torch.cat(made)


def packs(mask: Tensor, most_tokens: int, most_rows: int | None = None) -> list[Pack]:
    """Return the sentences of a batch in packs of about equal work, shortest sentences first.

    Args:
        mask: (B, L) 1 for real tokens, of which each row has one at least.
        most_tokens: About how many a pack holds.
        most_rows: Sentences a pack holds at most.
    """
    lengths, order = torch.sort(mask.sum(1), stable=True)
    row, column = mask[order].nonzero(as_tuple=True)
    places = order[row] * mask.shape[1] + column
    sizes = lengths.tolist()
    found, token = [], 0
    for rows in _cut(sizes, most_tokens, most_rows):
        own = sizes[rows]
        ends = torch.cumsum(lengths[rows], 0)
        found.append(Pack(places[token : token + sum(own)], order[rows], ends - lengths[rows], tuple(_groups(own))))
        token += sum(own)
    return found


def _cut(sizes: Sequence[int], most_tokens: int, most_rows: int | None) -> Iterator[slice]:
    """Yield slices of sentences that hold about equally many tokens."""
    total = sum(sizes)
    share = total / max(1, ceil(total / most_tokens))
    start, held = 0, 0
    for row, size in enumerate(sizes):
        full = held + size / 2 > share or row - start == most_rows
        if row > start and full:
            yield slice(start, row)
            start, held = row, 0
        held += size
    yield slice(start, len(sizes))


def _groups(sizes: Sequence[int]) -> Iterator[Group]:
    """Yield groups of ascending sizes, each with little padding."""
    starts = [0]
    spare = 0
    for row in range(1, len(sizes)):
        spare += (sizes[row] - sizes[row - 1]) * (row - starts[-1])
        if spare > SPARE:
            starts.append(row)
            spare = 0
    token = 0
    for start, stop in zip(starts, [*starts[1:], len(sizes)], strict=True):
        own = sizes[start:stop]
        yield _group(slice(token, token + sum(own)), slice(start, stop), own)
        token += sum(own)


def _group(tokens: slice, sentences: slice, sizes: Sequence[int]) -> Group:
    length = sizes[-1]
    if sizes[0] == length:
        return Group(tokens, sentences, length)
    lengths = torch.tensor(sizes)
    mask = torch.arange(length) < lengths[:, None]
    real = mask.flatten().nonzero().squeeze(1)
    places = torch.zeros(mask.numel(), dtype=torch.int64)
    places[real] = torch.arange(len(real))
    return Group(tokens, sentences, length, places, real, mask[:, None, None])


@cache
def register() -> None:
    """Make `packed_attention` known to transformers."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, packed_attention)


def packed_attention(_: Any, query: Tensor, key: Tensor, value: Tensor, __: Any, **given: Any) -> tuple[Tensor, None]:
    """Attend as transformers asks: (1, H, T, E) of one pack → (1, T, H, E).

    Args:
        query: One row of all tokens, as are the next two.
        key: See `query`.
        value: See `query`.
        given: `pack`, `dropout` and `scaling` among other things.
    """
    flat = [states[0].transpose(0, 1) for states in (query, key, value)]
    pack: Pack = given["pack"]
    return pack.attend(flat[0], flat[1], flat[2], given["dropout"], given["scaling"]).unsqueeze(0), None
