"""A transformers model in two halves: the embedding layer, and the rest.

`open_halves` prepares a model, and checks that the halves together compute the same as the model's own `forward`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from registry.encoders import architectures, packing
from registry.encoders.architectures import embedding_layer, is_split, position_offset, states
from registry.encoders.blocks import first_states, padded_states, run_blocks
from registry.encoders.half import Dropout
from registry.encoders.lookup import look_up
from registry.encoders.packing import Prepended, Rows
from registry.errors import CseError, suggestion
from registry.resources.models import WeightType, load_config, load_model
from registry.tokens import Tokens

Attention = Literal["causal", "bidirectional"]

Scope = Literal["all", "embedding", "hidden", "attention"]
"""Parts of a model whose dropout rate is set together."""


def load(name: str, random_weights: bool, dtype: WeightType, rate: float | None, scope: Scope) -> tuple[Any, nn.Module]:
    """Return a model and the dropout at the end of its embedding layer."""
    rates: dict[str, Any] = {} if rate is None else architectures.rates(load_config(name), rate, scope)
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
    """Prepare a model and return the dropout at the end of its embedding layer. Augmenters act before it."""
    split = is_split(model)
    dropout = take_dropout(model)
    model.cse_split = split and _halves_agree(model)
    if not is_split(model):
        _verify(model)
    _verify_padding(model)
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
    return Rows(tokens.mask, None if is_split(model) else positions(model, tokens), replaced)


@torch.no_grad()
def widths(model: Any, augment_at: str, layer: int | None) -> tuple[int, int]:
    """Return the width D of the states after a layer, and W of the token vectors. Some models have several widths."""
    tokens = example(model, padded=False)
    vectors = embed_layer(model, tokens)
    states = padded_states(model, vectors, rows_of(model, tokens), all_states=layer is not None)
    words = embed_words(model, tokens) if augment_at == "word" else vectors
    return int(states[layer or 0].shape[-1]), int(words.shape[-1])


def longest(model: Any) -> int | None:
    """Return the maximum number of tokens, special tokens included, or None if there is no limit."""
    if is_split(model):
        found = model.embeddings.position_embeddings.num_embeddings
    else:
        found = getattr(model.config, "max_position_embeddings", None)
    return int(found) - position_offset(model) if found is not None and found > 0 else None  # XLNet has -1


def positions(model: Any, tokens: Tokens) -> Tensor:
    """Return the positions (B, L), counted from each row's first real token and limited to the model's last."""
    real = tokens.positions.masked_fill(tokens.mask == 0, torch.iinfo(torch.int64).max)
    counted = (tokens.positions - real.amin(dim=1, keepdim=True)).clamp(min=0)
    limit = longest(model)
    return (counted if limit is None else counted.clamp(max=limit - 1)) + position_offset(model)


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
        layer = embedding_layer(model)
        if layer is None:
            return words
        given = {"position_ids": positions(model, tokens), "token_type_ids": tokens.types, "mask": tokens.mask}
        known = inspect.signature(layer.forward).parameters
        required = {"input_ids": None} if "input_ids" in known else {}
        given = {key: value for key, value in given.items() if key in known}
        made: Tensor = layer(inputs_embeds=words, **required, **given)
        return made
    offset = position_offset(model)
    places = tokens.positions.clamp(max=int(longest(model) or 0) - 1) + offset
    if padding_index and offset:
        places = places.masked_fill(tokens.mask == 0, offset - 1)
    vectors: Tensor = model.embeddings(inputs_embeds=words, token_type_ids=tokens.types, position_ids=places)
    return vectors


def freeze(model: nn.Module, prefixes: list[str]) -> None:
    """Disable the gradient of every weight in these submodules."""
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


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Restore the training mode of every submodule after the block, because shared submodules have another owner."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def never_empty(tokens: Tokens) -> Tokens:
    """Return the tokens with one padding token as a real token in each empty row."""
    tokens = tokens.padded_to(1)
    mask = tokens.mask.clone()
    mask[:, 0] |= mask.any(dim=1).logical_not()
    return replace(tokens, mask=mask)


def set_attention(model: Any, attention: Attention | None) -> Attention:
    """Set the attention of a model and return the attention that a test pass shows.

    For a batch without padding, transformers makes no mask for bidirectional attention. Then the configuration or the
    decoder's modules decide, depending on the release. This function sets both.

    None keeps the attention of the checkpoint.
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
                    model.cse_packs = False
    seen = {padded: attention_of(model, padded) for padded in (False, True)}
    if len(set(seen.values())) > 1 or attention not in (None, seen[False]):
        setting = f"attention = '{attention}' does not work" if attention else "the attention depends on padding"
        raise CseError(
            f"{setting}: {type(model).__name__} is {seen[False]} without padding and {seen[True]} with padding",
            "remove attention, or use another checkpoint (a decoder needs transformers 5.2 or later)",
            code="encoders.unsupported_attention",
        )
    return seen[False]


@torch.no_grad()
def attention_of(model: Any, padded: bool) -> Attention:
    """Return the attention of a model, bidirectional if the last of five tokens changes the first state."""
    tokens = example(model, padded)
    first = _run(model, tokens)[:, 0]
    change = (first[0] - first[1]).abs().max()
    return "bidirectional" if bool(change > 1e-6 * first.abs().max()) else "causal"


@torch.no_grad()
def _halves_agree(model: Any) -> bool:
    """Return whether embedding layer and blocks, called separately, give the states of the model for two sentences."""
    tokens = example(model, padded=False)
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


@torch.no_grad()
def _verify_padding(model: Any) -> None:
    """Check that the states of a sentence are the same with and without padding."""
    tokens = example(model, padded=True)
    tokens.mask[1, 3:] = 0
    ids = tokens.ids.masked_fill(tokens.mask == 0, getattr(model.config, "pad_token_id", None) or 0)
    batch = model(input_ids=ids, attention_mask=tokens.mask).last_hidden_state[1, :3].float()
    alone = model(input_ids=ids[1:, :3], attention_mask=tokens.mask[1:, :3]).last_hidden_state[0].float()
    exact = next(model.parameters()).dtype == torch.float32
    if (batch - alone).norm() > (1e-4 if exact else 0.1) * alone.norm():
        raise _unsupported(model, "the states of a sentence change in a padded batch")


@torch.no_grad()
def _verify(model: Any) -> None:
    """Check that the model gives the same states for token vectors and positions as for token IDs.

    Also stores whether it gives the same states in a packed batch, for `runs_packed`.
    """
    tokens = example(model, padded=True)
    tokens.mask[1, 3:] = 0
    try:
        found = _run(model, tokens)
        expected = model(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
    except (TypeError, AttributeError, ValueError, RuntimeError, NotImplementedError, AssertionError) as error:
        raise _unsupported(model, f"it does not run on token vectors ({error})") from error
    if not _same(found, expected, tokens):
        why = "its output for token vectors and positions differs from that for token IDs"
        raise _unsupported(model, why)
    try:
        agrees = model.is_backend_compatible() and _same(_run(model, tokens, packed=True), expected, tokens)
    except Exception:  # an attention with other parameters, such as a position bias, runs padded
        agrees = False
    model.cse_packs = agrees


def _run(model: Any, tokens: Tokens, packed: bool = False) -> Tensor:
    """Return the last layer's states (B, L, D) of tokens, or those of a pack (1, T, D)."""
    vectors = embed_layer(model, tokens, model.get_input_embeddings()(tokens.ids))
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


def _same(found: Tensor, expected: Tensor, tokens: Tokens) -> bool:
    real = tokens.mask.bool()
    return found.shape == expected.shape and torch.allclose(found[real], expected[real], rtol=1e-3, atol=1e-4)


def _unsupported(model: Any, why: str) -> CseError:
    action = "use a model such as BERT, ModernBERT, Llama or Qwen3"
    return architectures.unsupported(model, 'the encoder "transformer"', action, why)
