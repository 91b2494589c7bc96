"""A copy of an encoder that keeps some parts in common with it. Registers nothing."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from registry.errors import CseError, suggestion
from registry.types import Encoder, Head


def copy_encoder(of: Encoder, share: Sequence[str], without: Sequence[str]) -> Encoder:
    """Return a frozen copy of `of` in training mode.

    Args:
        of: Complete: weights loaded, heads attached.
        share: Parts that are not copied: the copy holds the same modules, which stay trainable.
        without: Heads that the copy does not get.

    Raises:
        CseError: There is no such part, or what remains does not fit together.
    """
    known, heads = shareable(of), _heads(of)
    for parameter, names, there in (("share", share, known), ("without", without, heads)):
        for name in names:
            if name not in there:
                hint = suggestion(name, there) or f" It has: {', '.join(there) or 'none'}."
                kind = "part that can be shared" if parameter == "share" else "head"
                raise CseError(f"{parameter}: encoder has no {kind} called {name!r}.{hint}")
    if both := sorted(set(share) & set(without)):
        raise CseError(f"{both[0]!r} is in share and in without", "name it in one of them")
    kept = {id(known[name]): known[name] for name in share}
    made = copy.deepcopy(of, {**kept, id(getattr(of, "vocabulary", None)): getattr(of, "vocabulary", None)})
    for name in without:
        del _heads(made)[name]
    for mine, _ in own_parameters(made, of):
        mine.requires_grad_(False)
    with modes_kept(made):
        made.dim = _width(made) if without else of.dim
    lent = {id(module) for name in share for module in known[name].modules()}
    for module in made.modules():
        module.training = module.training if id(module) in lent else True
    return made


def shareable(encoder: Encoder) -> dict[str, nn.Module]:
    """Return the parts that `share` can name: the embedding layer and the heads."""
    embeddings = getattr(getattr(encoder, "backbone", None), "embeddings", None)
    layer = {"embeddings": embeddings} if isinstance(embeddings, nn.Module) else {}
    return {**layer, **dict(_heads(encoder).items())}


def own_parameters(made: Encoder, of: Encoder) -> list[tuple[Tensor, Tensor]]:
    """Return the copy's parameter and the original's, for each that is not shared."""
    theirs = dict(of.named_parameters(remove_duplicate=False))
    return [(mine, theirs[name]) for name, mine in made.named_parameters() if mine is not theirs[name]]


def own_buffers(made: Encoder, of: Encoder) -> list[tuple[Tensor, Tensor]]:
    """Return the same for buffers, such as the running statistics of a batch normalisation."""
    theirs = dict(of.named_buffers(remove_duplicate=False))
    return [(mine, theirs[name]) for name, mine in made.named_buffers() if mine is not theirs[name]]


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Give every sub-module its training mode back: those that are shared have another owner."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _heads(encoder: Encoder) -> nn.ModuleDict:
    heads = getattr(encoder, "heads", None)
    return heads if isinstance(heads, nn.ModuleDict) else nn.ModuleDict()


def _width(encoder: Encoder) -> int:
    """Return how wide the vectors are, found by encoding one sentence."""
    encoder.eval()
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(["a"], 8))
    try:
        return int(encoder.encode(tokens, encoder.embed(tokens)).sentence.shape[-1])
    except RuntimeError as error:
        left = ", ".join(name for name, head in _heads(encoder).items() if isinstance(head, Head))
        raise CseError(f"without: the heads that remain ({left}) do not fit each other: {error}") from error
