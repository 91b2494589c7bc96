"""MoCoSE's adversarial view: token embeddings changed by the fast gradient sign method."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import AUGMENTERS
from registry.errors import CseError
from registry.tokens import Embedded
from registry.types import Augmenter, Step, Tune, take_shape_from_checkpoint


@AUGMENTERS.register("fgsm")
class Fgsm(Augmenter, nn.Module):
    """Move each element of the token embeddings by ε toward a larger loss: x′ = x + ε·sign(∂L/∂x).

    The sum is computed in single precision or better, regardless of the precision of the run. "exact" needs one more
    forward and backward pass per step. The encoder's `augment_at` selects the embeddings x. MoCoSE moves word
    embeddings.

    Shapes: (B, L, W) → (B, L, W).

    Source: MoCoSE (2022, eq. 1); Goodfellow et al. 2015. Doubtful and settled in methods/mocose.md: the gradient of
    this batch, as in the paper, or of the previous batch, as in the code (M4, `mode`).

    Args:
        epsilon: Step size ε. MoCoSE's 5e-9 is about the spacing of single-precision numbers near typical word
            embeddings.
        mode: "exact" uses the gradient of this batch. "stale" uses the gradient of the previous batch at the same
            place, truncated or padded with zeros to the shape of this batch. It changes nothing in the first step.
        of: View whose gradient is used instead. Necessary for a detached target, which has no gradient. In
            "stale" mode that view must precede this view in the recipe.

    Example:
        [views.query]
        encoder = "online"
        augment = [{ name = "fgsm", epsilon = 5e-9 }]
    """

    previous: Tensor
    """(B, L, W) gradient of the previous step. Empty before the first step and in "exact" mode."""

    def __init__(
        self,
        epsilon: Annotated[float, Field(ge=0), Tune(1e-9, 1e-2, log=True)] = 5e-9,
        mode: Literal["exact", "stale"] = "exact",
        of: str | None = None,
    ) -> None:
        super().__init__()
        self.epsilon, self.mode, self.of = epsilon, mode, of
        self.register_buffer("previous", torch.zeros(0, 0, 0))
        take_shape_from_checkpoint(self, "previous", only_if_empty=False)
        self._sources: list[tuple[Step, Tensor]] = []
        self._pending: list[tuple[Step, str, Tensor, Tensor, torch.dtype]] = []
        self._checked = False
        self._notices: list[str] = []

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:
        """Return the moved embeddings."""
        vectors = embedded.vectors
        if self.mode == "stale":
            vectors = self._with_gradient(vectors, view, step)
            gradient = self.previous
        else:
            gradient = step.gradient(self.of or view)
        exact = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        direction = torch.zeros_like(exact)
        if gradient.numel():  # a negative amount of padding truncates
            rows, places = (vectors.shape[axis] - gradient.shape[axis] for axis in (0, 1))
            direction = F.pad(gradient.sign().to(exact.dtype), (0, 0, 0, places, 0, rows))
        if not self._checked and self.epsilon and gradient.numel() and torch.is_grad_enabled():
            kind = vectors.device.type
            running = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
            self._pending.append((step, view, vectors.detach(), direction, running))
        return Embedded(embedded.tokens, exact + self.epsilon * direction)

    def after_step(self, step: Step) -> None:
        """Store the gradient for "stale" mode, and check once that ε has an effect in this precision."""
        # The lists also contain vectors of probes, which are not training steps.
        for seen, vectors in self._sources:
            if seen is step:
                gradient = torch.zeros_like(vectors) if vectors.grad is None else vectors.grad
                self.previous = torch.nan_to_num(gradient.detach().float())
        for seen, view, vectors, direction, running in self._pending:
            if seen is step and not self._checked:
                self._checked = True
                notice: str | None = "its token embeddings have no gradient and do not change. Set `of` to another view"
                if direction.any():
                    notice = describe_loss(self.epsilon, vectors, direction, running)
                if notice is not None:
                    self._notices.append(f"view '{view}': fgsm: {notice}")
        self._sources.clear()
        self._pending.clear()

    def notices(self) -> list[str]:
        """Return, once, a warning that ε has no effect in this precision or that no gradient exists."""
        notices, self._notices = self._notices, []
        return notices

    def _with_gradient(self, vectors: Tensor, view: str, step: Step) -> Tensor:
        """Return `vectors` after marking the tensor whose gradient `after_step` stores."""
        if not torch.is_grad_enabled():
            return vectors
        if not vectors.requires_grad:  # the embedding layer is frozen
            vectors = vectors.detach().requires_grad_()
        source = vectors
        if self.of is not None and self.of != view:
            if self.of not in step.embedded:
                known = ", ".join(step.embedded) or "none"
                raise CseError(
                    f"view '{view}': fgsm needs the gradient of view '{self.of}', which does not precede it "
                    f"(preceding views: {known})",
                    f"move [views.{self.of}] above [views.{view}]",
                    code="augmenters.late_view",
                )
            source = step.embedded[self.of].vectors
        if source.requires_grad:
            source.retain_grad()
        self._sources.append((step, source))
        return vectors


NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def share_changed(values: Tensor, changes: Tensor, precision: torch.dtype) -> float:
    """Return the share of `values` that `changes` alter, with all numbers rounded to `precision`."""
    rounded = values.to(precision)
    return float(((rounded + changes.to(precision)) != rounded).float().mean())


def share_coarse(values: Tensor, epsilon: float) -> float:
    """Return the share of single-precision `values` whose distance to the next number exceeds `epsilon`."""
    sizes = values.abs()
    gaps = torch.nextafter(sizes, torch.full_like(sizes, torch.inf)) - sizes
    return float((gaps > epsilon).float().mean())


def describe_loss(epsilon: float, vectors: Tensor, direction: Tensor, running: torch.dtype) -> str | None:
    """Return a warning if `epsilon` is too small for the precision of the run, or None."""
    changed = direction != 0
    values = vectors.float()[changed]
    changes = epsilon * direction.float()[changed]
    coarse, shares = share_coarse(values, epsilon), {p: share_changed(values, changes, p) for p in NAMES}
    if coarse == 0 and shares[running] == 1:
        return None
    mean = float(((values + changes) - values).abs().mean())
    notice = (
        f"epsilon = {epsilon:g} changes {shares[torch.float32]:.2%} of the elements of token embeddings in fp32, "
        f"by {mean:.2g} on average (epsilon is below the spacing of numbers for {coarse:.2%}). "
        f"It would change {shares[torch.bfloat16]:.2%} in bf16 and {shares[torch.float16]:.2%} in fp16"
    )
    if running != torch.float32:
        notice += f". This run uses {NAMES[running]}: set train.precision = 'fp32', or a larger epsilon"
    return notice
