"""Forward pass of a transformer's blocks over a padded batch, and the layout of its rows in memory.

On a CPU, blocks skip padding. The last block skips tokens whose state is not used. With gradient caching (Gao et al.
2021, arXiv 2101.06983), the backward pass computes the states of each mini-batch again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from registry.encoders import architectures, packing
from registry.encoders.architectures import is_split
from registry.encoders.compiled import compiled
from registry.encoders.head_dropout import heads_weighted
from registry.encoders.packing import Pack, Rows
from registry.tokens import attention_mask

PACK_TOKENS = 2048
"""Approximate number of tokens per pack on a CPU. The speed is the same from 1024 to 3072 (docs/fast.md)."""


def run_blocks(
    model: Any,
    vectors: Tensor,
    rows: Rows,
    all_states: bool,
    mini_batch_size: int | None = None,
    heads: Tensor | None = None,
    packed: bool = True,
) -> list[Tensor]:
    """Return the states (B, L, D): the output of the last block, or the first block's input and every output.

    The last state of a model with a final normalization is normalized.

    Args:
        model: Transformers model.
        vectors: Output (B, L, W) of the embedding layer.
        rows: Mask and positions of the batch. States at padding are undefined.
        all_states: Whether to return the states of all layers.
        mini_batch_size: Number of rows whose states are in memory at a time. Default: all.
        heads: Weights (B, K, H) of the attention heads of each block. They prevent compiled blocks. None means 1.
        packed: Whether rows may be packed without padding or run through compiled blocks if that is faster.
    """
    fast = None if all_states or heads is not None or not packed else compiled(model)
    if fast is not None:

        def once(vectors: Tensor, rows: Rows) -> Tensor:
            return fast.run(_padded_last, vectors, rows.mask)

        return [torch.cat(_parts(once, model, vectors, rows, mini_batch_size, None))]
    if not packed or not _packs(model, vectors, rows.mask):
        run = partial(padded_states, model, all_states=all_states)
        parts = _parts(run, model, vectors, rows, mini_batch_size, heads)
        return [torch.cat(states) for states in zip(*parts, strict=True)]
    run = partial(_packed, model, all_states=all_states)
    found = packing.packs(rows, PACK_TOKENS, mini_batch_size)
    parts = _parts(run, model, vectors, rows, mini_batch_size, heads, found)
    places = torch.cat([pack.places for pack in found])
    count, shape = rows.mask.numel(), (*rows.mask.shape, -1)
    layers = (torch.cat(states) for states in zip(*parts, strict=True))  # (T, D), to (B, L, D) with zeros at padding
    return [each.new_zeros(count, each.shape[-1]).index_copy(0, places, each).view(shape) for each in layers]


def first_states(
    model: Any, vectors: Tensor, rows: Rows, mini_batch_size: int | None = None, heads: Tensor | None = None
) -> Tensor:
    """Return the (B, D) last state of each sentence's first token. The arguments are those of `run_blocks`."""
    fast = compiled(model) if heads is None else None
    if fast is not None or not _packs(model, vectors, rows.mask):

        def run(vectors: Tensor, rows: Rows) -> Tensor:
            if fast is not None:
                return fast.run(_padded_first, vectors, rows.mask)
            if is_split(model):
                return _padded_first(model, vectors, rows.mask)
            return padded_states(model, vectors, rows, all_states=False)[0][:, 0]

        return torch.cat(_parts(run, model, vectors, rows, mini_batch_size, heads))
    found = packing.packs(rows, PACK_TOKENS, mini_batch_size)
    parts = _parts(partial(_packed_first, model), model, vectors, rows, mini_batch_size, heads, found)
    return torch.cat(parts)[torch.argsort(torch.cat([pack.sentences for pack in found]))]


def states_and_attentions(
    model: Any,
    vectors: Tensor,
    rows: Rows,
    all_states: bool,
    blocks: Sequence[int],
    mini_batch_size: int | None = None,
    heads: Tensor | None = None,
) -> tuple[list[Tensor], dict[int, Tensor]]:
    """Return the states of `run_blocks`, and block → attention weights (B, H, L, L) after dropout.

    Rows are not packed and blocks are not compiled. Each of these blocks needs B·H·L² more numbers in memory. The
    weights of padding are exactly 0.

    `blocks` are indices from 0 in ascending order.
    """

    def run(vectors: Tensor, rows: Rows) -> list[Tensor]:
        with packing.attending(model, "eager"), _attentions(model, blocks) as weights:
            if not is_split(model):
                return [*architectures.states(model, vectors, rows, all_states), *weights]
            # Eager attention adds the mask to the scores, so that a boolean mask cannot be used.
            unseen = rows.mask == 0
            hidden = vectors.new_zeros(unseen.shape).masked_fill(unseen, torch.finfo(vectors.dtype).min)[:, None, None]
            return [*_states(model, _projected(model, vectors), all_states, attention_mask=hidden), *weights]

    parts = _parts(run, model, vectors, rows, mini_batch_size, heads)
    made = [torch.cat(part) for part in zip(*parts, strict=True)]
    return made[: -len(blocks)], dict(zip(blocks, made[-len(blocks) :], strict=True))


def _packs(model: Any, vectors: Tensor, mask: Tensor) -> bool:
    """Return whether rows are packed without padding. Each row must begin with a real token."""
    return bool(
        architectures.runs_packed(model) and vectors.device.type == "cpu" and not mask.all() and mask[:, 0].all()
    )


def _parts(
    run: Callable[..., Any],
    model: Any,
    vectors: Tensor,
    rows: Rows,
    mini_batch_size: int | None,
    heads: Tensor | None,
    packs: Sequence[Pack] = (),
) -> list[Any]:
    """Return the output of `run` for each pack, or for each mini-batch of padded rows if there are no packs.

    With `mini_batch_size`, the backward pass computes the states again.
    """
    size = mini_batch_size or len(vectors)
    parts: Sequence[Pack | slice] = packs or [slice(start, start + size) for start in range(0, len(vectors), size)]
    made = []
    for part in parts:
        where: Pack | Rows
        if isinstance(part, Pack):
            given, where = vectors.flatten(0, 1).index_select(0, part.places).unsqueeze(0), part
            places = part.places // rows.mask.shape[1]
            weights = None if heads is None else (heads[places].unsqueeze(0), heads[part.sentences])
        else:
            given, where = vectors[part], rows[part]
            weights = None if heads is None else (heads[part].unsqueeze(1), heads[part])
        one = run if weights is None else partial(_weighed, run, model, weights)
        if mini_batch_size is None or not torch.is_grad_enabled():
            made.append(one(given, where))
        else:
            made.append(checkpoint(one, given, where, use_reentrant=False))
    return made


def _weighed(run: Callable[..., Any], model: Any, heads: tuple[Tensor, Tensor], vectors: Tensor, where: Any) -> Any:
    """Return `run(vectors, where)` with weighted attention heads: weights of tokens and of sentences."""
    with heads_weighted(model, *heads):
        return run(vectors, where)


def padded_states(model: Any, vectors: Tensor, rows: Rows, all_states: bool) -> list[Tensor]:
    """Return the states of `run_blocks`, bit for bit as transformers computes them."""
    with architectures.states_replaced(model, rows.prepended):
        if not is_split(model):
            return architectures.states(model, vectors, rows, all_states)
        attention = _attention_mask(model, vectors, rows.mask)
        return _states(model, _projected(model, vectors), all_states, attention_mask=attention)


def _padded_last(model: Any, vectors: Tensor, mask: Tensor) -> Tensor:
    return padded_states(model, vectors, Rows(mask), all_states=False)[0]


def _packed(model: Any, vectors: Tensor, pack: Pack, all_states: bool) -> list[Tensor]:
    with packing.attending(model):
        if is_split(model):
            states = _states(model, _projected(model, vectors), all_states, attention_mask=None, pack=pack)
        else:
            states = architectures.states(model, vectors, Rows(None, pack.positions), all_states, pack=pack)
    return [state[0] for state in states]


def _padded_first(model: Any, vectors: Tensor, mask: Tensor) -> Tensor:
    if not built_as_bert(model):
        return _padded_last(model, vectors, mask)[:, 0]
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
    with packing.attending(model):
        states = _before_last(model, _projected(model, vectors), attention_mask=None, pack=pack)[0]
    return _last_of_first(model.encoder.layer[-1], states, states[pack.firsts], pack.attend_first)


def _last_of_first(block: Any, states: Tensor, first: Tensor, attend: Callable[..., Tensor]) -> Tensor:
    """Return the block's output (n, D) for each sentence's first token, whose input states are `first` (n, D).

    Keys and values come from all tokens. Queries, output and feed-forward layer run on n rows only.
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
    """Return whether the last block of a split model has the parts of a BERT block."""
    block = (getattr(getattr(model, "encoder", None), "layer", None) or [None])[-1]
    own = getattr(getattr(block, "attention", None), "self", None)
    parts = ("query", "key", "value", "num_attention_heads", "attention_head_size", "scaling", "dropout")
    return is_split(model) and all(hasattr(own, part) for part in parts) and hasattr(block, "feed_forward_chunk")


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

    # By place: transformers 5.0 calls the second one `input_embeds`, later releases `inputs_embeds`.
    made: Tensor | None = create_bidirectional_mask(model.config, vectors, attention_mask(mask))
    return made


def _projected(model: Any, vectors: Tensor) -> Tensor:
    """Return token vectors with the width of the blocks. Those of small ELECTRA models are narrower."""
    return model.embeddings_project(vectors) if hasattr(model, "embeddings_project") else vectors


@contextmanager
def _attentions(model: Any, blocks: Sequence[int]) -> Iterator[list[Tensor]]:
    """Collect the attention weights of these blocks in forward order."""
    weights: list[Tensor] = []

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        weights.append(output[1])

    with ExitStack() as hooks:
        found = architectures.attentions(model)
        for block in blocks:
            hooks.enter_context(found[block].register_forward_hook(after))
        yield weights


@contextmanager
def _recorded(encoder: Any) -> Iterator[list[Tensor]]:
    """Collect the input of the first block and the output of every block in forward order."""
    states: list[Tensor] = []

    def before(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        if not states:
            states.append(arguments[0])

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        states.append(output if isinstance(output, Tensor) else output[0])

    with ExitStack() as hooks:
        for block in getattr(encoder, "layer", None) or encoder.albert_layer_groups:
            hooks.enter_context(block.register_forward_pre_hook(before))
            hooks.enter_context(block.register_forward_hook(after))
        yield states
