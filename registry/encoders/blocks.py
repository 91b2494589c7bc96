"""A transformer's blocks over a padded batch; how its rows are laid out meanwhile is decided here alone.

No work is done on padding where that pays (on a CPU), none on tokens whose last state is not read, and rows that do
not fit into memory are computed again in the backward pass (gradient caching, Gao et al. 2021, arXiv 2101.06983).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from registry.encoders import packing
from registry.encoders.compiled import compiled
from registry.encoders.head_dropout import heads_weighted
from registry.encoders.packing import Pack
from registry.tokens import attention_mask

PACK_TOKENS = 2048
"""About how many tokens a CPU computes at a time: from 1024 to 3072 the speed is the same (docs/fast.md)."""


def run_blocks(
    model: Any,
    vectors: Tensor,
    mask: Tensor,
    all_states: bool,
    rows_at_once: int | None = None,
    heads: Tensor | None = None,
    packed: bool = True,
) -> list[Tensor]:
    """Return the states (B, L, D) after the blocks: the last one, or what entered the first and every output.

    Args:
        model: A transformers model.
        vectors: (B, L, W) the embedding layer's output.
        mask: (B, L) 1 for real tokens. States of others mean nothing.
        all_states: Whether all are wanted.
        rows_at_once: Rows whose states are held for the backward pass; the others are computed again there.
        heads: (B, K, H) weights of the attention heads of each block, with which nothing runs compiled; None is 1.
        packed: Whether rows may be laid out without padding, or run compiled, where that pays.
    """
    fast = None if all_states or heads is not None or not packed else compiled(model)
    if fast is not None:
        one = partial(fast.run, _padded_last)
        rows = _rows(len(mask), rows_at_once)
        return [torch.cat([_held(one, vectors[own], mask[own], rows_at_once) for own in rows])]
    if not packed or not _packs(model, vectors, mask):
        run = partial(padded_states, model, all_states=all_states)
        parts = [
            _held(_weighing(run, model, heads, rows), vectors[rows], mask[rows], rows_at_once)
            for rows in _rows(len(mask), rows_at_once)
        ]
        return [torch.cat(states) for states in zip(*parts, strict=True)]
    found = packing.packs(mask, PACK_TOKENS, rows_at_once)
    run = partial(_packed, model, all_states=all_states)
    parts = [
        _held(_weighing(run, model, heads, pack, mask.shape[1]), _tokens(vectors, pack), pack, rows_at_once)
        for pack in found
    ]
    places = torch.cat([pack.places for pack in found])
    return [_spread(torch.cat(states), places, mask) for states in zip(*parts, strict=True)]


def first_states(
    model: Any, vectors: Tensor, mask: Tensor, rows_at_once: int | None = None, heads: Tensor | None = None
) -> Tensor:
    """Return (B, D): the last state of each sentence's first token alone; arguments as for `run_blocks`."""
    fast = compiled(model) if heads is None else None
    if fast is not None or not _packs(model, vectors, mask):
        run = partial(_padded_first, model) if fast is None else partial(fast.run, _padded_first)
        parts = [
            _held(_weighing(run, model, heads, rows), vectors[rows], mask[rows], rows_at_once)
            for rows in _rows(len(mask), rows_at_once)
        ]
        return torch.cat(parts)
    found = packing.packs(mask, PACK_TOKENS, rows_at_once)
    run = partial(_packed_first, model)
    parts = [
        _held(_weighing(run, model, heads, pack, mask.shape[1]), _tokens(vectors, pack), pack, rows_at_once)
        for pack in found
    ]
    return torch.cat(parts)[torch.argsort(torch.cat([pack.sentences for pack in found]))]


def states_and_attentions(
    model: Any,
    vectors: Tensor,
    mask: Tensor,
    all_states: bool,
    blocks: Sequence[int],
    rows_at_once: int | None = None,
    heads: Tensor | None = None,
) -> tuple[list[Tensor], dict[int, Tensor]]:
    """Return the states as `run_blocks` does, and block → (B, H, L, L) its attention weights, after their dropout.

    Rows are neither packed nor compiled, and each of these blocks holds B·H·L² numbers more. Padding gets exactly 0.
    `blocks` are those whose weights are wanted, counted from 0, ascending, of a model that is `built_as_bert`; other
    arguments as for `run_blocks`.
    """

    def run(vectors: Tensor, mask: Tensor) -> list[Tensor]:
        # Added to the scores; the mask that other ways of attending take on a GPU, of True and False, cannot be.
        hidden = vectors.new_zeros(mask.shape).masked_fill(mask == 0, torch.finfo(vectors.dtype).min)[:, None, None]
        with _attending(model, "eager"), _attentions(model, blocks) as weights:
            return [*_states(model, _projected(model, vectors), all_states, attention_mask=hidden), *weights]

    parts = [
        _held(_weighing(run, model, heads, rows), vectors[rows], mask[rows], rows_at_once)
        for rows in _rows(len(mask), rows_at_once)
    ]
    whole = [torch.cat(part) for part in zip(*parts, strict=True)]
    return whole[: -len(blocks)], dict(zip(blocks, whole[-len(blocks) :], strict=True))


def in_parts(run: Callable[[Tensor, slice], Tensor], vectors: Tensor, rows_at_once: int | None) -> Tensor:
    """Return the states (B, L, D) of all rows, of which `run(vectors, rows)` gives those of some; the rest as above."""
    return torch.cat([_held(run, vectors[own], own, rows_at_once) for own in _rows(len(vectors), rows_at_once)])


def _packs(model: Any, vectors: Tensor, mask: Tensor) -> bool:
    """Whether rows are laid out without padding; each must begin with a real token."""
    ours = vectors.device.type == "cpu" and model.is_backend_compatible()
    return bool(ours and not mask.all() and mask[:, 0].all())


def _rows(count: int, at_once: int | None) -> list[slice]:
    size = at_once or count
    return [slice(start, start + size) for start in range(0, count, size)]


def _held(run: Callable[..., Any], vectors: Tensor, where: Any, rows_at_once: int | None) -> Any:
    """Return `run(vectors, where)`; with `rows_at_once`, nothing in between is kept for the backward pass."""
    if rows_at_once is None or not torch.is_grad_enabled():
        return run(vectors, where)
    return checkpoint(run, vectors, where, use_reentrant=False)


def _weighing(
    run: Callable[..., Any], model: Any, heads: Tensor | None, of: slice | Pack, length: int = 1
) -> Callable[..., Any]:
    """Return `run` as it is with the weights of attention heads (B, K, H), if there are any.

    Args:
        run: Computes blocks of `model`.
        model: A transformers model.
        heads: The weights.
        of: Which rows of the batch it computes.
        length: L, tokens of the batch's rows, where they are packed.
    """
    if heads is None:
        return run
    if isinstance(of, Pack):
        tokens, sentences = heads[of.places // length].unsqueeze(0), heads[of.sentences]
    else:
        tokens, sentences = heads[of].unsqueeze(1), heads[of]

    def weighed(vectors: Tensor, where: Any) -> Any:
        with heads_weighted(model, tokens, sentences):
            return run(vectors, where)

    return weighed


def _tokens(vectors: Tensor, pack: Pack) -> Tensor:
    return vectors.flatten(0, 1).index_select(0, pack.places).unsqueeze(0)


def _spread(states: Tensor, places: Tensor, mask: Tensor) -> Tensor:
    """Return (B, L, D) of packed (T, D), zero at padding."""
    empty = states.new_zeros(mask.numel(), states.shape[-1])
    return empty.index_copy(0, places, states).view(*mask.shape, -1)


def padded_states(model: Any, vectors: Tensor, mask: Tensor, all_states: bool) -> list[Tensor]:
    """Return the same as `run_blocks`, computed as transformers does, bit for bit."""
    attention = _attention_mask(model, vectors, mask)
    return _states(model, _projected(model, vectors), all_states, attention_mask=attention)


def _padded_last(model: Any, vectors: Tensor, mask: Tensor) -> Tensor:
    return padded_states(model, vectors, mask, all_states=False)[0]


def _packed(model: Any, vectors: Tensor, pack: Pack, all_states: bool) -> list[Tensor]:
    with _attending(model, packing.NAME):
        states = _states(model, _projected(model, vectors), all_states, attention_mask=None, pack=pack)
    return [state[0] for state in states]


def _padded_first(model: Any, vectors: Tensor, mask: Tensor) -> Tensor:
    if not built_as_bert(model):
        return padded_states(model, vectors, mask, all_states=False)[0][:, 0]
    attention = _attention_mask(model, vectors, mask)
    states = _before_last(model, _projected(model, vectors), attention_mask=attention)

    def attend(query: Tensor, key: Tensor, value: Tensor, dropout: float, scaling: float) -> Tensor:
        first = None if attention is None else attention[:, :, :1]
        rows = [query.unsqueeze(2), key.transpose(1, 2), value.transpose(1, 2)]
        return packing.attention(rows, first, dropout, scaling).squeeze(2)

    return _last_of_first(model.encoder.layer[-1], states, states[:, 0], attend)


def _packed_first(model: Any, vectors: Tensor, pack: Pack) -> Tensor:
    if not built_as_bert(model):
        return _packed(model, vectors, pack, all_states=False)[0][pack.firsts]
    with _attending(model, packing.NAME):
        states = _before_last(model, _projected(model, vectors), attention_mask=None, pack=pack)[0]
    return _last_of_first(model.encoder.layer[-1], states, states[pack.firsts], pack.attend_first)


def _last_of_first(block: Any, states: Tensor, first: Tensor, attend: Callable[..., Tensor]) -> Tensor:
    """Return the block's output (n, D) for each sentence's first token, whose own states are `first` (n, D).

    Its keys and values come from all tokens; queries, output and feed-forward layer see n rows only.
    """
    own = block.attention.self
    split = (own.num_attention_heads, own.attention_head_size)
    query, key, value = own.query(first), own.key(states), own.value(states)
    dropout = own.dropout.p if own.training else 0.0
    heads = [part.unflatten(-1, split) for part in (query, key, value)]
    context = attend(*heads, dropout, own.scaling).flatten(-2)
    output: Tensor = block.feed_forward_chunk(block.attention.output(context, first))
    return output


def built_as_bert(model: Any) -> bool:
    """Whether the last block is built as BERT's is."""
    block = (getattr(model.encoder, "layer", None) or [None])[-1]
    own = getattr(getattr(block, "attention", None), "self", None)
    parts = ("query", "key", "value", "num_attention_heads", "attention_head_size", "scaling", "dropout")
    return all(hasattr(own, part) for part in parts) and hasattr(block, "feed_forward_chunk")


def _before_last(model: Any, states: Tensor, **arguments: Any) -> Tensor:
    for block in model.encoder.layer[:-1]:
        states = block(states, **arguments)
    return states


def _states(model: Any, vectors: Tensor, all_states: bool, **arguments: Any) -> list[Tensor]:
    if not all_states:
        return [model.encoder(vectors, **arguments).last_hidden_state]
    with _recorded(model.encoder) as states:
        model.encoder(vectors, **arguments)
    return states


def _attention_mask(model: Any, vectors: Tensor, mask: Tensor) -> Tensor | None:
    from transformers.masking_utils import create_bidirectional_mask

    made: Tensor | None = create_bidirectional_mask(
        config=model.config, inputs_embeds=vectors, attention_mask=attention_mask(mask)
    )
    return made


def _projected(model: Any, vectors: Tensor) -> Tensor:
    """Return token vectors as wide as the blocks: small ELECTRA's are narrower."""
    return model.embeddings_project(vectors) if hasattr(model, "embeddings_project") else vectors


@contextmanager
def _attending(model: Any, way: str) -> Iterator[None]:
    packing.register()
    # Not `set_attn_implementation`, which walks through all modules: 1.4 ms a pass of 12 blocks instead of 0.05 ms.
    usual = model.config._attn_implementation
    model.config._attn_implementation = way
    try:
        yield
    finally:
        model.config._attn_implementation = usual


@contextmanager
def _attentions(model: Any, blocks: Sequence[int]) -> Iterator[list[Tensor]]:
    """Collect the attention weights of some blocks, in the order they run."""
    weights: list[Tensor] = []

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        weights.append(output[1])

    handles = [model.encoder.layer[block].attention.self.register_forward_hook(after) for block in blocks]
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _recorded(encoder: Any) -> Iterator[list[Tensor]]:
    """Collect the input of the first block and the output of every block, in the order they run."""
    states: list[Tensor] = []

    def before(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        if not states:
            states.append(arguments[0])

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        states.append(output if isinstance(output, Tensor) else output[0])

    blocks = getattr(encoder, "layer", None) or encoder.albert_layer_groups
    handles = [block.register_forward_pre_hook(before) for block in blocks]
    handles += [block.register_forward_hook(after) for block in blocks]
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()
