"""A transformers model in two halves: the embedding layer, and the rest.

`open_halves` prepares a model, and checks that the halves together compute the same as the model's own `forward`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from registry.encoders import families, whole
from registry.encoders.blocks import first_states, padded_states, run_blocks
from registry.encoders.families import embedding_layer, is_split, set_split
from registry.encoders.half import Dropout
from registry.encoders.lookup import look_up
from registry.encoders.packing import Prepended, Rows
from registry.encoders.whole import position_offset
from registry.errors import CseError, suggestion
from registry.resources.models import WeightType, load_config, load_model
from registry.tokens import Tokens

Scope = Literal["all", "embedding", "hidden", "attention"]
"""Parts of a model whose dropout rate is set together."""


def load(name: str, random_weights: bool, dtype: WeightType, rate: float | None, scope: Scope) -> tuple[Any, nn.Module]:
    """Return a model and the dropout at the end of its embedding layer.

    Args:
        name: Directory or name of the model.
        random_weights: Whether the weights are random.
        dtype: Type of the weights.
        rate: Dropout rate of the scope. Default: those of the checkpoint.
        scope: Parts with this rate.

    Raises:
        CseError: If the model has no dropout of this scope, or is not supported.
    """
    rates: dict[str, Any] = {} if rate is None else families.rates(load_config(name), rate, scope)
    model = load_model(name, random_weights=random_weights, dtype=dtype, **rates)
    dropout = open_halves(model)
    if rate is None:
        return model, dropout
    if isinstance(dropout, nn.Dropout) and scope != "attention":
        dropout.p = rate
    elif not rates:
        raise CseError(
            f'dropout_scope = "{scope}": {type(model).__name__} has no such dropout',
            'set dropout_scope to "all" or "attention", or remove dropout',
            code="encoders.no_such_dropout",
        )
    return model, dropout


def open_halves(model: Any) -> nn.Module:
    """Prepare a model and return the dropout at the end of its embedding layer. Augmenters act before it.

    Raises:
        CseError: If the halves do not compute the same as the model's own `forward`, or padding changes the states.
    """
    split = is_split(model)
    dropout = take_dropout(model)
    set_split(model, split and _halves_agree(model))
    if not is_split(model):
        whole.verify(model)
    whole.verify_padding(model)
    return dropout


def take_dropout(model: Any) -> nn.Module:
    """Remove and return the dropout at the end of the embedding layer, or a module without effect."""
    for part in list(model.modules()):
        for name, child in part.named_children():
            if type(child) is nn.Dropout:
                setattr(part, name, Dropout(child.p).train(child.training))
    layer = embedding_layer(model)
    for name in ("dropout", "drop"):
        if isinstance(taken := getattr(layer, name, None), nn.Dropout):
            setattr(layer, name, nn.Identity())
            return Dropout(taken.p).train(taken.training)
    return nn.Identity()


def rows_of(model: Any, tokens: Tokens, replaced: Prepended | None = None) -> Rows:
    """Return mask and positions of tokens. The token vectors of a split model already contain the positions."""
    return Rows(tokens.mask, None if is_split(model) else whole.positions(model, tokens), replaced)


@torch.no_grad()
def widths(model: Any, augment_at: str, layer: int | None) -> tuple[int, int]:
    """Return the width D of the states after a layer, and W of the token vectors. Some models have several widths."""
    tokens = whole.example(model, padded=False)
    vectors = embed_layer(model, tokens)
    states = padded_states(model, vectors, rows_of(model, tokens), all_states=layer is not None)
    words = embed_words(model, tokens) if augment_at == "word" else vectors
    return int(states[layer or 0].shape[-1]), int(words.shape[-1])


def longest(model: Any) -> int | None:
    """Return the maximum number of tokens, special tokens included, or None if there is no limit."""
    if not is_split(model):
        return whole.longest(model)
    return int(model.embeddings.position_embeddings.num_embeddings) - position_offset(model)


def embed_words(model: Any, tokens: Tokens) -> Tensor:
    """Return the (B, L, W) word embeddings."""
    words = model.get_input_embeddings()
    # Only a plain table has no other computation, such as Gemma's scaling.
    vectors: Tensor = look_up(words, tokens.ids) if type(words) is nn.Embedding else words(tokens.ids)
    return vectors


def embed_layer(model: Any, tokens: Tokens, words: Tensor | None = None, *, padding_index: bool = False) -> Tensor:
    """Return the (B, L, W) output of the embedding layer, in BERT the normalized sum of word, position and segment.

    Decoders have no such layer, and their blocks get the word embeddings. Tokens after the model's last position share
    that position.

    Args:
        model: Transformers model.
        tokens: Token IDs, mask, positions and segments.
        words: Embeddings (B, L, W) that replace the word embeddings.
        padding_index: Whether padding has the position `padding_idx` in the RoBERTa family, as in transformers. It only
            has an effect if the blocks attend to padding.
    """
    if words is None:
        words = embed_words(model, tokens)
    if not is_split(model):
        return whole.embed(model, tokens, words)
    offset = position_offset(model)
    positions = tokens.positions.clamp(max=int(longest(model) or 0) - 1) + offset
    if padding_index and offset:
        positions = positions.masked_fill(tokens.mask == 0, offset - 1)
    vectors: Tensor = model.embeddings(inputs_embeds=words, token_type_ids=tokens.types, position_ids=positions)
    return vectors


def freeze(model: nn.Module, prefixes: list[str]) -> None:
    """Disable the gradient of every weight in these submodules.

    Raises:
        CseError: If a submodule does not exist.
    """
    known = {name for name, _ in model.named_modules() if name}
    for prefix in prefixes:
        if prefix not in known:
            hint = suggestion(prefix, known)
            blocks = [name for name in known if name.rpartition(".")[2].isdigit()]
            shape = f", {min(blocks)!r}" if blocks else ""
            raise CseError(
                f"freeze: the model has no part '{prefix}'.{hint}",
                f"use names of submodules, such as 'embeddings', 'encoder'{shape}",
                code="encoders.unknown_part",
            )
        model.get_submodule(prefix).requires_grad_(False)


@torch.no_grad()
def _halves_agree(model: Any) -> bool:
    """Return whether embedding layer and blocks, called separately, give the states of the model for two sentences."""
    tokens = whole.example(model, padded=False)
    tokens.mask[1, 3:] = 0
    real = tokens.mask.bool()
    training = model.training
    model.eval()
    try:
        expected = model(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
        vectors, rows = embed_layer(model, tokens), Rows(tokens.mask)
        split = run_blocks(model, vectors, rows, all_states=False)[0]
        first = first_states(model, vectors, rows)
    except (TypeError, AttributeError, ValueError, RuntimeError):
        return False
    finally:
        model.train(training)
    same = expected.shape == split.shape and torch.allclose(expected[real], split[real], atol=1e-4)
    return same and torch.allclose(expected[:, 0], first, atol=1e-4)


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Restore the training mode of every submodule after the block, because shared submodules have another owner."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
