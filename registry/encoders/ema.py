"""A momentum encoder: the slow copy of another encoder, which may keep some parts in common with it."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from registry import ENCODERS
from registry.encoders.backbone import modes_kept
from registry.errors import CseError, suggestion
from registry.tokens import Encoded, Tokens
from registry.types import Encoder, Head, Step, Tune


@ENCODERS.register("ema")
class Ema(Encoder):
    """Follow another encoder's weights slowly: their exponential moving average.

    θ' ← η·θ' + (1 − η)·θ after each step of the optimiser. With the cosine schedule the decay rises from η₀ to 1:
    ηₜ = 1 − (1 − η₀)·(cos(πt/T) + 1)/2, t counting the optimiser's steps. The copy is made once `of` is complete,
    weights loaded and heads attached; that it still equals `of` is checked before the first step. It is not trained,
    but for the heads in `trained`.
    Its dropout is on or off as `dropout` says, whatever train() and eval() do; evaluation draws nothing.

    Shapes: as `of`; D is the width behind the heads that are left.

    Source: MoCoSE (2022, section 3.2, Algorithm 1) and its code; MoCo (He et al. 2020), BYOL (Grill et al. 2020).
    Doubtful and settled in methods/mocose.md: gradient through the target (M3, `target_gradient`, `trained`); constant
    or cosine decay, and T (M6, `schedule`, `total_steps`); order of update and forward pass (M7, `update`).

    Args:
        of: The encoder that is followed; the recipe declares it before this one.
        decay: η, or η₀: the share of its old weights that the copy keeps at a step. 0 copies, 1 never moves.
        schedule: How the decay changes over training.
        total_steps: T of the cosine; the training's own number of steps if left out. Beyond T the decay stays 1.
        update: "after_step" follows after step t with ηₜ. "before_forward" follows before the next forward pass, as
            MoCoSE's code does: the same weights meet the same batch, but t counts one further.
        share: Parts of `of` that are used, not copied: "embeddings", or names of its heads. They are trained there;
            MoCoSE shares the embeddings.
        without: Heads of `of` that the copy lacks, such as a predictor.
        dropout: Rate instead of those of `of`; 0 switches dropout off. Shared heads keep theirs.
        target_gradient: "none" detaches what the copy makes; "embeddings" lets the gradient pass through the frozen
            copy into the embedding layer it shares (and into shared heads), as MoCoSE's code does.
        trained: Heads of the copy that the loss trains besides: the optimiser moves them, then the average does.
            MoCoSE's code trains its projection, which it forgot to freeze. Left out is none.
    """

    def __init__(
        self,
        of: Encoder,
        decay: Annotated[float, Field(ge=0, le=1), Tune(0.5, 0.999)] = 0.85,
        schedule: Literal["cosine", "constant"] = "cosine",
        total_steps: Annotated[int, Field(gt=0)] | None = None,
        update: Literal["after_step", "before_forward"] = "after_step",
        share: list[str] = [],  # noqa: B006 - a declaration, never changed
        without: list[str] = [],  # noqa: B006 - a declaration, never changed
        dropout: Annotated[float, Field(ge=0, lt=1), Tune(0.0, 0.3)] | None = None,
        target_gradient: Literal["none", "embeddings"] = "none",
        trained: list[str] | None = None,
    ) -> None:
        super().__init__()
        if target_gradient == "embeddings" and "embeddings" not in share:
            raise CseError(
                'target_gradient = "embeddings", but the embedding layer is not shared: no gradient would reach it',
                'add "embeddings" to share',
            )
        self._of = (of,)  # in a tuple: not a sub-module
        self.target = copy_encoder(of, share, without)
        self.target_gradient = target_gradient
        self._train(trained or [], share)
        if not own_parameters(self.target, of):
            raise CseError("ema: the encoder has no weights of its own to average", "name a trained encoder in `of`")
        if dropout is not None:
            lent = set(of.modules())
            for module in self.target.modules():
                if isinstance(module, nn.Dropout) and module not in lent:
                    module.p = dropout
        self.decay, self.schedule, self.total_steps = decay, schedule, total_steps
        self.ahead = 1 if update == "before_forward" else 0
        self.memory = 1 / (1 - decay) if decay < 1 else math.inf
        self.dim, self.width, self.max_length = self.target.dim, of.width, of.max_length
        self.augment_at, self.vocabulary = of.augment_at, of.vocabulary
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.updates: Tensor
        self._checked = False
        self._latest = decay

    def train(self, mode: bool = True) -> Ema:
        """Set the flag alone: neither the copy's dropout nor the shared parts change mode."""
        self.training = mode
        return self

    def expect(self, *, hidden_read: bool, rows_at_once: int | None) -> None:
        """Pass it on to the copy."""
        self.target.expect(hidden_read=hidden_read, rows_at_once=rows_at_once)

    def keep_attentions(self, blocks: Sequence[int]) -> None:
        """Pass it on to the copy."""
        self.target.keep_attentions(blocks)

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, W) token vectors, before any dropout."""
        if not self._checked:
            self._check_start()
        with self._gradient():
            return self.target.embed(tokens)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Drop, contextualise, pool and apply the heads that are left."""
        with self._gradient():
            return self.target.encode(tokens, embeddings)

    def represent(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the vectors that `of` would give with these weights, in eval mode."""
        with modes_kept(self.target):
            return self.target.represent(tokens, embeddings)

    def export(self, folder: Path, max_length: int) -> None:
        """Write the slow weights, shared parts included, in the form of `of`."""
        self.target.export(folder, max_length)

    def after_step(self, step: Step) -> None:
        """Move towards the encoder that is followed; buffers are taken over as they are."""
        self.updates += 1
        # From the step, not from the buffer: looking at a number on a GPU waits for it.
        self._latest = self.decay_at(step.index + 1 + self.ahead, self.total_steps or step.total)
        mine, theirs = map(list, zip(*own_parameters(self.target, self._of[0]), strict=True))
        with torch.no_grad():
            get_ema_multi_avg_fn(self._latest)(mine, theirs, None)  # type: ignore[no-untyped-call]
            for buffer, source in own_buffers(self.target, self._of[0]):
                buffer.copy_(source)

    def decay_at(self, t: int, total: int) -> float:
        """Return ηₜ."""
        if self.schedule == "constant":
            return self.decay
        return 1 - (1 - self.decay) * (math.cos(math.pi * min(t / total, 1.0)) + 1) / 2

    def report(self) -> dict[str, float]:
        """Return the decay of the latest update."""
        return {"decay": self._latest}

    def _train(self, names: Sequence[str], share: Sequence[str]) -> None:
        """Let the loss train heads of the copy.

        Raises:
            CseError: The copy has no such head of its own, or no gradient reaches it.
        """
        own = {name: head for name, head in heads_of(self.target).items() if name not in share}
        for name in names:
            if name not in own:
                hint = suggestion(name, own) or f" It has: {', '.join(own) or 'none'}."
                raise CseError(f"trained: the copy has no head of its own called {name!r}.{hint}")
            own[name].requires_grad_(True)
        if names and self.target_gradient == "none":
            raise CseError(
                'trained: no gradient reaches a head of the copy while target_gradient = "none"',
                'set target_gradient = "embeddings"',
            )

    def _gradient(self) -> AbstractContextManager[object]:
        return torch.set_grad_enabled(torch.is_grad_enabled() and self.target_gradient == "embeddings")

    def _check_start(self) -> None:
        """Check, before the first update, that the copy is one: copied before loading, it would stay random."""
        pairs = own_parameters(self.target, self._of[0])
        if not self.updates and not all(torch.equal(mine, theirs) for mine, theirs in pairs):
            raise CseError(
                "ema: the copy differs from its encoder before the first step: that one changed after it was copied",
                "load weights and attach heads first, then build `ema`",
            )
        self._checked = True


def copy_encoder(of: Encoder, share: Sequence[str], without: Sequence[str]) -> Encoder:
    """Return a frozen copy of `of` in training mode.

    Args:
        of: Complete: weights loaded, heads attached.
        share: Parts that are not copied: the copy holds the same modules, which stay trainable.
        without: Heads that the copy does not get.

    Raises:
        CseError: There is no such part, or what remains does not fit together.
    """
    known, heads = shareable(of), heads_of(of)
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
        del heads_of(made)[name]
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
    return {**layer, **dict(heads_of(encoder).items())}


def own_parameters(made: Encoder, of: Encoder) -> list[tuple[Tensor, Tensor]]:
    """Return the copy's parameter and the original's, for each that is not shared."""
    theirs = dict(of.named_parameters(remove_duplicate=False))
    return [(mine, theirs[name]) for name, mine in made.named_parameters() if mine is not theirs[name]]


def own_buffers(made: Encoder, of: Encoder) -> list[tuple[Tensor, Tensor]]:
    """Return the same for buffers, such as the running statistics of a batch normalisation."""
    theirs = dict(of.named_buffers(remove_duplicate=False))
    return [(mine, theirs[name]) for name, mine in made.named_buffers() if mine is not theirs[name]]


def heads_of(encoder: Encoder) -> nn.ModuleDict:
    """Return an encoder's training heads by name; none where it takes none."""
    heads = getattr(encoder, "heads", None)
    return heads if isinstance(heads, nn.ModuleDict) else nn.ModuleDict()


def _width(encoder: Encoder) -> int:
    """Return how wide the vectors are, found by encoding one sentence."""
    encoder.eval()
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(["a"], 8))
    try:
        return int(encoder.encode(tokens, encoder.embed(tokens)).sentence.shape[-1])
    except RuntimeError as error:
        left = ", ".join(name for name, head in heads_of(encoder).items() if isinstance(head, Head))
        raise CseError(f"without: the heads that remain ({left}) do not fit each other: {error}") from error
