"""Momentum encoder: a slow copy of another encoder, which can share parts with it."""

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
from registry.resources.models import load_model
from registry.tokens import Encoded, Tokens
from registry.types import Encoder, Head, Step, Tune


class CopiedEncoder(Encoder):
    """Base class of encoders that use a copy of another encoder, `target`."""

    target: Encoder

    def expect(self, *, hidden_read: bool, mini_batch_size: int | None) -> None:
        """Set the states of the copy that training uses."""
        self.target.expect(hidden_read=hidden_read, mini_batch_size=mini_batch_size)

    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the (B, D) embeddings that the copy gives in eval mode."""
        with modes_kept(self.target):
            return self.target.encode_for_eval(tokens, embeddings)

    def export(self, folder: Path, max_length: int) -> None:
        """Write the copy, shared parts included, in the format of the other encoder."""
        self.target.prompts = self.prompts
        self.target.export(folder, max_length)


@ENCODERS.register("ema")
class Ema(CopiedEncoder):
    """Encode with the exponential moving average of another encoder's weights.

    θ' ← η·θ' + (1 − η)·θ after each optimizer step. With the cosine schedule the decay rises from η₀ to 1:
    ηₜ = 1 − (1 − η₀)·(cos(πt/T) + 1)/2, where t is the number of optimizer steps. The copy is made after the weights
    and heads of `of` are complete. Before the first step, `cse` checks that the copy equals `of`. The copy is not
    trained, except for the heads in `trained`. Its dropout is active in training and inactive in evaluation,
    independent of train() and eval().

    Shapes: those of `of`. D is the width after the remaining heads.

    Source: MoCoSE (2022, section 3.2, Algorithm 1) and its code; MoCo (He et al. 2020), BYOL (Grill et al. 2020).
    Doubtful and settled in methods/mocose.md: gradient through the target (M3, `target_gradient`, `trained`); constant
    or cosine decay, and T (M6, `schedule`, `total_steps`); order of update and forward pass (M7, `update`). In
    methods/esimcse.md and methods/pt_bert.md: start of the copy (ES4, PT3, `random_weights`).

    Args:
        of: Encoder whose weights are averaged. The recipe declares it before this one.
        decay: Decay η, or η₀ of the cosine schedule: fraction of the copy's weights that remains at a step. 0 copies
            `of`, 1 never changes the copy.
        schedule: Schedule of the decay over training.
        total_steps: Number of steps T of the cosine schedule. After T the decay stays 1. Default: the number of
            training steps.
        update: Time of the update: "after_step", after step t with ηₜ, or "before_forward", before the next forward
            pass with ηₜ₊₁, as in MoCoSE's code. Both use the same weights for the same batch.
        share: Parts of `of` that are shared instead of copied: "embeddings", or names of its heads. They are trained as
            parts of `of`. MoCoSE shares the embeddings.
        without: Heads of `of` that the copy does not have, such as a predictor.
        dropout: Dropout rate of the copy, without shared heads. 0 disables dropout. Default: the rates of `of`.
        target_gradient: Gradient through the copy: "none", or "embeddings" for a gradient through the frozen copy into
            the shared embedding layer and shared heads, as in MoCoSE's code.
        trained: Heads of the copy that the optimizer also trains, before each update of the average. MoCoSE's code
            trains its projection because it does not freeze it. Default: none.
        random_weights: Whether the copy starts with random weights instead of those of the checkpoint, as in the code
            of ESimCSE and PT-BERT. Its heads and shared parts start as those of `of`. Default: false.

    Example:
        [encoders.momentum]
        name = "ema"
        of = "online"
        decay = 0.85
        share = ["embeddings"]
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
        random_weights: bool | None = None,
    ) -> None:
        super().__init__()
        if target_gradient == "embeddings" and "embeddings" not in share:
            raise CseError(
                'target_gradient = "embeddings" requires a shared embedding layer, and share does not contain it',
                'add "embeddings" to share',
                code="encoders.gradient_not_shared",
            )
        self._of = (of,)  # in a tuple: not a sub-module
        self.target = copy_encoder(of, share, without)
        self.target_gradient = target_gradient
        self._train(trained or [], share)
        if not own_parameters(self.target, of):
            raise CseError(
                "ema: the encoder in `of` has no weights to average",
                "set of to a trained encoder, for example 'online'",
                code="encoders.nothing_to_average",
            )
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
        self._checked = bool(random_weights)
        if random_weights:
            self._draw_weights(of)
        self._latest = decay

    def train(self, mode: bool = True) -> Ema:
        """Set only the flag. The copy and the shared parts keep their modes."""
        self.training = mode
        return self

    def keep_attentions(self, blocks: Sequence[int]) -> None:
        """Select the blocks of the copy whose attention weights `encode` returns."""
        self.target.keep_attentions(blocks)

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the (B, L, W) token vectors before any dropout."""
        # A copy that is made before the weights are loaded would stay random.
        pairs = [] if self._checked or self.updates else own_parameters(self.target, self._of[0])
        if not all(torch.equal(mine, theirs) for mine, theirs in pairs):
            raise CseError(
                "ema: the encoder in `of` changed after it was copied, before the first step",
                "load the weights and attach the heads before you build `ema`",
                code="encoders.copy_differs",
            )
        self._checked = True
        with self._gradient():
            return self.target.embed(tokens)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Apply dropout, blocks, pooling and the remaining heads."""
        with self._gradient():
            return self.target.encode(tokens, embeddings)

    def after_step(self, step: Step) -> None:
        """Update the average of the weights, and copy the buffers."""
        self.updates += 1
        # Reading the buffer would wait for the GPU.
        self._latest = self.decay_at(step.index + 1 + self.ahead, self.total_steps or step.total)
        weights, sources = map(list, zip(*own_parameters(self.target, self._of[0]), strict=True))
        with torch.no_grad():
            get_ema_multi_avg_fn(self._latest)(weights, sources, None)  # type: ignore[no-untyped-call]
            theirs = dict(self._of[0].named_buffers(remove_duplicate=False))
            for name, buffer in self.target.named_buffers():  # such as the statistics of a batch normalization
                if buffer is not theirs[name]:
                    buffer.copy_(theirs[name])

    def decay_at(self, t: int, total: int) -> float:
        """Return the decay ηₜ."""
        if self.schedule == "constant":
            return self.decay
        return 1 - (1 - self.decay) * (math.cos(math.pi * min(t / total, 1.0)) + 1) / 2

    def report(self) -> dict[str, float]:
        """Return the decay of the latest update."""
        return {"decay": self._latest}

    def _draw_weights(self, of: Encoder) -> None:
        """Replace the weights that the copy has from the checkpoint by random ones of the same architecture."""
        name = getattr(of, "model", None)
        drawn = {} if name is None else dict(load_model(name, random_weights=True).named_parameters(prefix="backbone"))
        shared = {id(parameter) for parameter in of.parameters()}
        own = {path: mine for path, mine in self.target.named_parameters() if id(mine) not in shared and path in drawn}
        if not own:
            raise CseError(
                "random_weights has no effect, because the copy has no own weights of a checkpoint",
                "remove random_weights, or set of to an encoder such as `transformer`",
                code="encoders.no_random_weights",
            )
        with torch.no_grad():
            for path, mine in own.items():
                mine.copy_(drawn[path])

    def _train(self, names: Sequence[str], share: Sequence[str]) -> None:
        """Enable the gradient of some heads of the copy."""
        own = {name: head for name, head in heads_of(self.target).items() if name not in share}
        for name in names:
            if name not in own:
                hint = suggestion(name, own) or f" Its heads: {', '.join(own) or 'none'}."
                raise CseError(
                    f"trained: the copy has no head '{name}' that is not shared.{hint}",
                    "use names of heads of `of` that are not in share",
                    code="encoders.unknown_head",
                )
            own[name].requires_grad_(True)
        if names and self.target_gradient == "none":
            raise CseError(
                'trained has no effect with target_gradient = "none", because no gradient reaches the copy',
                'set target_gradient = "embeddings"',
                code="encoders.no_gradient",
            )

    def _gradient(self) -> AbstractContextManager[object]:
        return torch.set_grad_enabled(torch.is_grad_enabled() and self.target_gradient == "embeddings")


def copy_encoder(of: Encoder, share: Sequence[str], without: Sequence[str]) -> Encoder:
    """Return a frozen copy of `of` in training mode.

    Args:
        of: Encoder with loaded weights and attached heads.
        share: Parts that are not copied. The copy contains the same modules, which stay trainable.
        without: Heads that the copy does not have.
    """
    heads = heads_of(of)
    known = dict(heads.items())
    layer = getattr(getattr(of, "backbone", None), "embeddings", None)
    if isinstance(layer, nn.Module):
        known = {"embeddings": layer, **known}
    for parameter, names, there in (("share", share, known), ("without", without, heads)):
        for name in names:
            if name not in there:
                hint = suggestion(name, there) or f" It has: {', '.join(there) or 'none'}."
                kind = "part to share" if parameter == "share" else "head"
                raise CseError(
                    f"{parameter}: the encoder has no {kind} called '{name}'.{hint}",
                    f"correct '{name}' in {parameter}, or remove it",
                    code="encoders.unknown_part",
                )
    if both := sorted(set(share) & set(without)):
        raise CseError(
            f"'{both[0]}' is in share and in without",
            f"remove '{both[0]}' from one of them",
            code="encoders.shared_and_removed",
        )
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


def own_parameters(made: Encoder, of: Encoder) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of the copy's and the original's parameter, without shared parameters."""
    theirs = dict(of.named_parameters(remove_duplicate=False))
    return [(mine, theirs[name]) for name, mine in made.named_parameters() if mine is not theirs[name]]


def heads_of(encoder: Encoder) -> nn.ModuleDict:
    """Return an encoder's training heads by name, empty for encoders without heads."""
    heads = getattr(encoder, "heads", None)
    return heads if isinstance(heads, nn.ModuleDict) else nn.ModuleDict()


def _width(encoder: Encoder) -> int:
    """Return the width of the embeddings, measured on one sentence."""
    encoder.eval()
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(["a"], 8))
    try:
        return int(encoder.encode(tokens, encoder.embed(tokens)).sentence.shape[-1])
    except RuntimeError as error:
        left = ", ".join(name for name, head in heads_of(encoder).items() if isinstance(head, Head))
        raise CseError(
            f"without: the remaining heads ({left}) do not fit together: {error}",
            "also remove the head whose input has another width",
            code="encoders.heads_do_not_fit",
        ) from error
