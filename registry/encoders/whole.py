"""A transformers model that runs through its own `forward`, from token vectors to states.

This is every architecture that is not split (`registry.encoders.families`): decoders, ModernBERT, T5's encoder.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from registry.encoders import families, packing
from registry.encoders.families import blocks, embedded, embedding_layer, is_split
from registry.encoders.packing import Pack, Prepended, Rows
from registry.errors import CseError
from registry.poolings import last_places
from registry.tokens import Tokens

Attention = Literal["causal", "bidirectional"]

_HERE, _OTHERS = 'the encoder "transformer"', "use a model such as BERT, ModernBERT, Llama or Qwen3"
_PACKS = "cse_packs"
"""Attribute of a model whose states are the same in a packed batch."""


def states(model: Any, vectors: Tensor, rows: Rows, all_states: bool, pack: Pack | None = None) -> list[Tensor]:
    """Return the last layer's states (B, L, D), or the first block's input and the output of every block.

    The last state includes the model's final normalization.

    Args:
        model: Transformers model.
        vectors: Output (B, L, W) of the embedding layer.
        rows: Mask and positions. Padding can be on either side.
        all_states: Whether to return the states of all layers.
        pack: Sentences of a packed batch (1, T, W).
    """
    known = inspect.signature(model.forward).parameters
    given: dict[str, Any] = {"attention_mask": rows.mask, "position_ids": rows.positions, "use_cache": False}
    given = {key: value for key, value in given.items() if key in known}
    if pack is not None:
        given["pack"] = pack
    with embedded(model, vectors):
        made = model(inputs_embeds=vectors, output_hidden_states=all_states, **given)
    return list(made.hidden_states) if all_states else [made.last_hidden_state]


def embed(model: Any, tokens: Tokens, words: Tensor) -> Tensor:
    """Return the (B, L, W) output of the embedding layer for word embeddings (B, L, W)."""
    layer = embedding_layer(model)
    if layer is None:
        return words
    given = {"position_ids": positions(model, tokens), "token_type_ids": tokens.types, "mask": tokens.mask}
    known = inspect.signature(layer.forward).parameters
    required = {"input_ids": None} if "input_ids" in known else {}
    vectors: Tensor = layer(inputs_embeds=words, **required, **{key: one for key, one in given.items() if key in known})
    return vectors


def never_empty(tokens: Tokens) -> Tokens:
    """Return the tokens with one padding token as a real token in each empty row."""
    tokens = tokens.padded_to(1)
    mask = tokens.mask.clone()
    mask[:, 0] |= mask.any(dim=1).logical_not()
    return replace(tokens, mask=mask)


def longest(model: Any) -> int | None:
    """Return the maximum number of tokens, or None if the configuration does not limit it."""
    found = getattr(model.config, "max_position_embeddings", None)
    return int(found) - position_offset(model) if found is not None and found > 0 else None  # XLNet has -1


def positions(model: Any, tokens: Tokens) -> Tensor:
    """Return the positions (B, L), counted from each row's first real token and limited to the model's last."""
    real = tokens.positions.masked_fill(tokens.mask == 0, torch.iinfo(torch.int64).max)
    counted = (tokens.positions - real.amin(dim=1, keepdim=True)).clamp(min=0)
    limit = longest(model)
    return (counted if limit is None else counted.clamp(max=limit - 1)) + position_offset(model)


def position_offset(model: Any) -> int:
    """Return the offset that the model adds to positions: padding_idx + 1 in the RoBERTa family and MPNet, else 0."""
    embeddings = getattr(model, "embeddings", None)
    counts = hasattr(embeddings, "create_position_ids_from_inputs_embeds")
    return int(embeddings.padding_idx) + 1 if counts else 0  # type: ignore[union-attr]


def prepended(blocks: tuple[int, int], tokens: Tokens, placeholder: int) -> Prepended:
    """Return the replacement of the first placeholder's state by the last token's state.

    Args:
        blocks: Indices a and b of the blocks before which the state is replaced, from a to b − 1.
        tokens: Input of the model.
        placeholder: ID of the placeholder.

    Raises:
        CseError: If a row has no placeholder.
    """
    found = (tokens.ids == placeholder) & (tokens.mask == 1)
    if not bool(found.any(dim=1).all()):
        raise CseError(
            "prepend: a sentence has no placeholder",
            "add the placeholder to the encoder's template, before {text}",
            code="encoders.no_placeholder",
        )
    return Prepended(blocks, last_places(tokens.mask), found.int().argmax(dim=1))


@contextmanager
def states_replaced(model: Any, replaced: Prepended | None) -> Iterator[None]:
    """Replace a state of each sentence before some blocks of a model."""
    if replaced is None:
        yield
        return

    def before(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        if arguments:
            return (replaced.replace(arguments[0]), *arguments[1:]), named
        return (), {**named, "hidden_states": replaced.replace(named["hidden_states"])}

    with ExitStack() as hooks:
        for block in blocks(model)[slice(*replaced.blocks)]:
            hooks.enter_context(block.register_forward_pre_hook(before, with_kwargs=True))
        yield


def set_attention(model: Any, attention: Attention | None) -> Attention:
    """Set the attention of a model and return the attention that a test pass shows.

    For a batch without padding, transformers makes no mask for bidirectional attention. Then the configuration or the
    decoder's modules decide, depending on the release. This function sets both.

    Args:
        model: Transformers model.
        attention: Attention to set. Default: the attention of the checkpoint.

    Raises:
        CseError: If the model attends in another way.
    """
    if is_split(model) and not getattr(model.config, "is_decoder", False) and attention != "causal":
        return "bidirectional"
    if attention is None and getattr(model.config, "is_causal", True) is False:
        attention = "bidirectional"  # a decoder exported by cse
    if attention == "bidirectional":
        model.config.is_causal = False
        for part in model.modules():
            if getattr(part, "is_causal", None):
                part.is_causal = False
                if getattr(part, "sliding_window", None) is not None:  # transformers counts its tokens differently
                    setattr(model, _PACKS, False)
    seen = {padded: attention_of(model, padded) for padded in (False, True)}
    if len(set(seen.values())) > 1 or attention not in (None, seen[False]):
        setting = f"attention = '{attention}' does not work" if attention else "the attention depends on padding"
        raise CseError(
            f"{setting}: {type(model).__name__} is {seen[False]} without padding and {seen[True]} with padding",
            "remove attention, or use another checkpoint",
            code="encoders.unsupported_attention",
        )
    return seen[False]


def is_decoder(model: Any) -> bool:
    """Return whether a model is built with causal attention."""
    return any(getattr(part, "is_causal", None) is True for part in model.modules())


@torch.no_grad()
def attention_of(model: Any, padded: bool) -> Attention:
    """Return the attention of a model, bidirectional if the last of five tokens changes the first state."""
    tokens = example(model, padded)
    first = run(model, tokens)[:, 0]
    change = (first[0] - first[1]).abs().max()
    return "bidirectional" if bool(change > 1e-6 * first.abs().max()) else "causal"


@torch.no_grad()
def verify_padding(model: Any) -> None:
    """Check that the states of a sentence are the same with and without padding.

    Raises:
        CseError: If they differ.
    """
    tokens = example(model, padded=True)
    tokens.mask[1, 3:] = 0
    ids = tokens.ids.masked_fill(tokens.mask == 0, getattr(model.config, "pad_token_id", None) or 0)
    batch = model(input_ids=ids, attention_mask=tokens.mask).last_hidden_state[1, :3].float()
    alone = model(input_ids=ids[1:, :3], attention_mask=tokens.mask[1:, :3]).last_hidden_state[0].float()
    exact = next(model.parameters()).dtype == torch.float32
    if (batch - alone).norm() > (1e-4 if exact else 0.1) * alone.norm():
        raise families.unsupported(model, _HERE, _OTHERS, "the states of a sentence change in a padded batch")


def run(model: Any, tokens: Tokens, packed: bool = False) -> Tensor:
    """Return the last layer's states (B, L, D) of tokens, or those of a pack (1, T, D)."""
    vectors = embed(model, tokens, model.get_input_embeddings()(tokens.ids))
    rows = Rows(tokens.mask, positions(model, tokens))
    if not packed:
        return states(model, vectors, rows, False)[0]
    (pack,) = packing.packs(rows, most_tokens=tokens.ids.numel())
    vectors = vectors.flatten(0, 1)[pack.places].unsqueeze(0)
    with packing.attending(model):
        made = states(model, vectors, Rows(None, pack.positions), False, pack)[0]
    empty = made.new_zeros(tokens.ids.numel(), made.shape[-1])
    return empty.index_copy(0, pack.places, made[0]).view(*tokens.ids.shape, -1)


def example(model: Any, padded: bool) -> Tokens:
    """Return two rows of five tokens that differ in the last token, optionally with two padding tokens.

    They do not contain the model's padding token, which has another position in the RoBERTa family.
    """
    padding, count = getattr(model.config, "pad_token_id", None), model.config.vocab_size
    words = [word % count for word in range(2, 9) if word % count != padding]
    ids = torch.tensor([words[:5], [*words[:4], words[5]]])
    mask = torch.ones_like(ids)
    tokens = Tokens(ids, mask, torch.zeros_like(ids), torch.arange(5).expand(2, 5))
    return tokens.padded_to(7) if padded else tokens


@torch.no_grad()
def verify(model: Any) -> None:
    """Check that the model gives the same states for token vectors and positions as for token IDs.

    Also stores whether it gives the same states in a packed batch, for `packs`.

    Raises:
        CseError: If the states differ, or if the model does not run on token vectors.
    """
    tokens = example(model, padded=True)
    tokens.mask[1, 3:] = 0
    try:
        found = run(model, tokens)
        expected = model(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
    except (TypeError, AttributeError, ValueError, RuntimeError, NotImplementedError, AssertionError) as error:
        raise families.unsupported(model, _HERE, _OTHERS, f"it does not run on token vectors ({error})") from error
    if not _same(found, expected, tokens):
        why = "its output for token vectors and positions differs from that for token IDs"
        raise families.unsupported(model, _HERE, _OTHERS, why)
    try:
        agrees = model.is_backend_compatible() and _same(run(model, tokens, packed=True), expected, tokens)
    except Exception:  # an attention with other parameters, such as a position bias, runs padded
        agrees = False
    setattr(model, _PACKS, agrees)


def packs(model: Any) -> bool:
    """Return whether the model gives the same states for packed rows. `verify` finds out."""
    return bool(getattr(model, _PACKS, False))


def _same(found: Tensor, expected: Tensor, tokens: Tokens) -> bool:
    real = tokens.mask.bool()
    return found.shape == expected.shape and torch.allclose(found[real], expected[real], rtol=1e-3, atol=1e-4)
