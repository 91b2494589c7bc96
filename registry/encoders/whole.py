"""Any transformers model as it is: word vectors in, states out, its attention set and found out. Registers nothing.

What `registry.encoders.backbone` does for models that it can take apart is done here through the model's own `forward`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from registry.encoders.backbone import position_offset
from registry.encoders.pooling import last_places
from registry.errors import CseError, MissingError
from registry.tokens import Tokens

Attention = Literal["causal", "bidirectional"]

DROPOUT_KEYS = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
"""What configurations call the dropout of attention weights."""


def embed_words(model: Any, ids: Tensor) -> Tensor:
    """Return the (B, L, W) word vectors of (B, L) ids."""
    vectors: Tensor = model.get_input_embeddings()(ids)
    return vectors


def contextual_states(model: Any, tokens: Tokens, vectors: Tensor, layer: int | None = None) -> Tensor:
    """Return (B, L, D) the states after a layer, of word vectors (B, L, W).

    Args:
        model: A transformers model.
        tokens: Their mask, segments and positions; padding may stand on either side.
        vectors: The word vectors.
        layer: 0 is what enters the first block, k the output of the k-th, the last one normalised where the model does
            that at its end; None is the last.
    """
    known = inspect.signature(model.forward).parameters
    given: dict[str, Any] = {
        "inputs_embeds": vectors,
        "attention_mask": tokens.mask,
        "position_ids": _positions(model, tokens),
        "token_type_ids": tokens.types,
        "use_cache": False,
    }
    if getattr(model.config, "type_vocab_size", 0) == 0:
        del given["token_type_ids"]  # GPT-2 would take them for words
    made = model(**{key: given[key] for key in given if key in known}, output_hidden_states=layer is not None)
    states: Tensor = made.last_hidden_state if layer is None else made.hidden_states[layer]
    return states


def rows_of(tokens: Tokens, rows: slice) -> Tokens:
    """Return what `contextual_states` reads of some rows."""
    ids, mask, types, positions = (part[rows] for part in (tokens.ids, tokens.mask, tokens.types, tokens.positions))
    return Tokens(ids, mask, types, positions)


def never_empty(tokens: Tokens) -> Tokens:
    """Return the same tokens, a row without any, as decoders make of an empty sentence, with its padding for one."""
    tokens = tokens.padded_to(1)
    mask = tokens.mask.clone()
    mask[:, 0] |= mask.any(dim=1).logical_not()
    return replace(tokens, mask=mask)


def longest(model: Any) -> int | None:
    """Return the most tokens the model has positions for, where its configuration says."""
    found = getattr(model.config, "max_position_embeddings", None)
    return None if found is None else int(found) - _offset(model)


def _positions(model: Any, tokens: Tokens) -> Tensor:
    """Return (B, L) positions, 0 for the first of a row's real tokens; those beyond the model's last one share it."""
    real = tokens.positions.masked_fill(tokens.mask == 0, torch.iinfo(torch.int64).max)
    counted = (tokens.positions - real.amin(dim=1, keepdim=True)).clamp(min=0)
    limit = longest(model)
    return (counted if limit is None else counted.clamp(max=limit - 1)) + _offset(model)


def _offset(model: Any) -> int:
    return position_offset(model) if hasattr(model, "embeddings") else 0


def blocks(model: Any) -> nn.ModuleList:
    """Return the model's blocks in the order they run.

    Raises:
        CseError: They are not kept in one list.
    """
    count = int(model.config.num_hidden_layers)
    for part in model.modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return part
    raise CseError(f"{type(model).__name__} keeps its {count} blocks in no list", "leave prepend out")


@contextmanager
def last_state_prepended(model: Any, start: int, stop: int, tokens: Tokens, placeholder: int) -> Iterator[None]:
    """Put, before each of the blocks start … stop − 1 (from 0), the last token's state where the placeholder stands.

    Args:
        model: A transformers model.
        start: The first such block.
        stop: The first block that runs as usual again.
        tokens: What the model is given within; the first placeholder of a row counts.
        placeholder: Its id.

    Raises:
        CseError: A row has none.
    """
    found = (tokens.ids == placeholder) & (tokens.mask == 1)
    if not bool(found.any(dim=1).all()):
        raise CseError("prepend: a sentence has no placeholder in front of it", "put it into the encoder's template")
    rows = torch.arange(tokens.rows, device=tokens.ids.device)
    places, ends = found.int().argmax(dim=1), last_places(tokens.mask)

    def before(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        states = arguments[0] if arguments else named["hidden_states"]
        moved = states.index_put((rows, places), states[rows, ends])
        return ((moved, *arguments[1:]), named) if arguments else ((), {**named, "hidden_states": moved})

    handles = [block.register_forward_pre_hook(before, with_kwargs=True) for block in blocks(model)[start:stop]]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def set_attention(model: Any, wanted: Attention | None) -> Attention:
    """Let a model attend as `wanted`, or as it was trained, and return how it does; found out, not believed.

    Where a batch has no padding, transformers makes no mask for bidirectional attention; what then decides is the
    configuration or the modules of the decoder, depending on the release: both are told.

    Raises:
        CseError: It attends otherwise than wanted.
    """
    if wanted is None and getattr(model.config, "is_causal", True) is False:
        wanted = "bidirectional"  # a decoder saved by this project
    if wanted == "bidirectional":
        model.config.is_causal = False
        for part in model.modules():
            if hasattr(part, "is_causal"):
                part.is_causal = False
    seen = {padded: attention_of(model, padded) for padded in (False, True)}
    if len(set(seen.values())) > 1 or wanted not in (None, seen[False]):
        told = f"attention = {wanted!r}, but " if wanted else ""
        how = ", ".join(f"{way} {'with' if padded else 'without'} padding" for padded, way in seen.items())
        raise CseError(
            f"{told}{type(model).__name__} attends otherwise: {how}", "leave attention out, or use another checkpoint"
        )
    return seen[False]


@torch.no_grad()
def states_width(model: Any, layer: int | None) -> int:
    """Return D, how wide the states after a layer are: some models make those of the last narrower."""
    tokens = _example(model, padded=False)
    return int(contextual_states(model, tokens, embed_words(model, tokens.ids), layer).shape[-1])


def is_decoder(model: Any) -> bool:
    """Whether a model is built to attend causally."""
    return any(getattr(part, "is_causal", False) for part in model.modules())


@torch.no_grad()
def attention_of(model: Any, padded: bool) -> Attention:
    """Return how a model attends: whether the last of five tokens changes the state of the first."""
    tokens = _example(model, padded)
    states = contextual_states(model, tokens, embed_words(model, tokens.ids))
    change = (states[0, 0] - states[1, 0]).abs().max()
    return "bidirectional" if bool(change > 1e-6 * states[:, 0].abs().max()) else "causal"


def _example(model: Any, padded: bool) -> Tokens:
    """Return two rows of five tokens that differ in the last one, with two places of padding after them or none."""
    first = torch.arange(2, 7)
    ids = torch.stack([first, torch.where(first == 6, 7, first)]).remainder(model.config.vocab_size)
    mask = torch.ones_like(ids)
    tokens = Tokens(ids, mask, torch.zeros_like(ids), torch.arange(5).expand(2, 5))
    return tokens.padded_to(7) if padded else tokens


@torch.no_grad()
def verify(model: Any) -> None:
    """Check that word vectors and positions of ours give what the model makes of ids by itself.

    Raises:
        CseError: They do not, or the model needs more than that.
    """
    tokens = _example(model, padded=True)
    try:
        ours = contextual_states(model, tokens, embed_words(model, tokens.ids))
        whole = model(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
    except (TypeError, AttributeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise _unsupported(model, f"it does not run on word vectors alone ({error})") from error
    real = tokens.mask.bool()
    if ours.shape != whole.shape or not torch.allclose(ours[real], whole[real], rtol=1e-3, atol=1e-4):
        raise _unsupported(model, "its word vectors and positions alone do not give its output")


def _unsupported(model: Any, why: str) -> CseError:
    return CseError(
        f"the architecture {type(model).__name__} cannot be used as an encoder: {why}",
        "use a decoder or an encoder that transformers' AutoModel opens by word vectors, such as Llama or ModernBERT",
    )


def dropout_key(config: Any) -> str:
    """Return what a configuration calls the dropout of attention weights.

    Raises:
        CseError: It has none.
    """
    for key in DROPOUT_KEYS:
        if hasattr(config, key):
            return key
    raise CseError(f"{type(config).__name__} has no dropout of attention weights", "leave attention_dropout out")


# --- low-rank adaptation (LoRA, Hu et al. 2021), by `peft` ------------------------------------------------------------


def add_low_rank(model: Any, rank: int, alpha: int, dropout: float) -> None:
    """Put trainable matrices beside every linear layer of the blocks, which stay as they are: W + α/rank · B·A.

    A starts from random numbers and B from zeros, so that at first nothing changes. All other weights are frozen.

    Raises:
        MissingError: `peft` is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise MissingError("lora_rank needs the package peft", 'pip install "cse-registry[llm]"') from error
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules="all-linear")
    inject_adapter_in_model(config, model)


def merged(model: Any) -> Any:
    """Return a copy of a model with what was trained beside its layers added into them: W + α/rank · B·A."""
    from peft.tuners.lora import LoraLayer

    copied = deepcopy(model)
    for name, layer in list(copied.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge()
            copied.set_submodule(name, layer.get_base_layer())
    return copied
