"""MoCoSE's adversarial view: token vectors moved against the loss by the fast gradient sign method."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry.augmenters.precision import describe_loss, precision_in_use
from registry.errors import CseError
from registry.registries import AUGMENTERS
from registry.tokens import Embedded
from registry.types import Augmenter, Step, Tune


@AUGMENTERS.register("fgsm")
class Fgsm(Augmenter, nn.Module):
    """Move each token vector's elements by ε towards a larger loss: x′ = x + ε·sign(∂L/∂x).

    Added in single precision at least, whatever the forward pass runs in. "exact" spends one more forward and backward
    pass a step. The encoder's `augment_at` says which vectors x are; MoCoSE moves word vectors.

    Shapes: (B, L, W) → (B, L, W).

    Source: MoCoSE (2022, eq. 1); Goodfellow et al. 2015. Doubtful and settled in methods/mocose.md: gradient of this
    batch, as in the paper, or of the one before, as in the code (M4, `mode`).

    Args:
        epsilon: ε. MoCoSE's 5e-9 is about the spacing of single-precision numbers as large as word vectors' elements.
        mode: "exact" takes the gradient of this batch; "stale" that of the previous batch at the same place, cut or
            filled with zeros to this batch's shape, and none at the first step.
        of: View whose gradient is used instead of the view's own, which a detached target does not have. In "stale"
            mode it stands before this view in the recipe.
    """

    previous: Tensor
    """(B, L, W) the gradient that "stale" goes by; empty before the first step and in "exact" mode."""

    def __init__(
        self,
        epsilon: Annotated[float, Field(ge=0), Tune(1e-9, 1e-2, log=True)] = 5e-9,
        mode: Literal["exact", "stale"] = "exact",
        of: str | None = None,
    ) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.mode = mode
        self.of = of
        self.register_buffer("previous", torch.zeros(0, 0, 0))
        self._watching: list[tuple[Step, Tensor]] = []
        self._shown: list[tuple[Step, str, Tensor, Tensor, torch.dtype]] = []
        self._told = False
        self._notices: list[str] = []

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:
        """Return the moved vectors.

        Raises:
            CseError: There is no view `of`, or it is not embedded yet.
        """
        vectors = embedded.vectors
        if self.mode == "stale":
            vectors = self._watched(vectors, view, step)
            gradient = self.previous
        else:
            gradient = step.gradient(self.of or view)
        exact = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        direction = _shaped(gradient.sign().to(exact.dtype), vectors.shape)
        if not self._told and self.epsilon and gradient.numel() and torch.is_grad_enabled():
            self._shown.append((step, view, vectors.detach(), direction, precision_in_use(vectors.device)))
        return Embedded(embedded.tokens, exact + self.epsilon * direction)

    def after_step(self, step: Step) -> None:
        """Keep the gradient that reached the watched vectors; look once at what ε comes to."""
        # The lists also hold what passed through in a probe, which is no step of the training.
        for seen, vectors in self._watching:
            if seen is step:
                gradient = torch.zeros_like(vectors) if vectors.grad is None else vectors.grad
                self.previous = torch.nan_to_num(gradient.detach().float())
        for seen, view, vectors, direction, running in self._shown:
            if seen is step and not self._told:
                self._told = True
                self._tell(view, vectors, direction, running)
        self._watching.clear()
        self._shown.clear()

    def notices(self) -> list[str]:
        """Return, once, that ε is lost in the precision in use, or that there is no gradient."""
        told, self._notices = self._notices, []
        return told

    def _watched(self, vectors: Tensor, view: str, step: Step) -> Tensor:
        """Return `vectors`, arranged so that `after_step` finds the gradient of the view whose gradient is used."""
        if not torch.is_grad_enabled():
            return vectors
        if not vectors.requires_grad:  # the embedding layer is frozen
            vectors = vectors.detach().requires_grad_()
        source = vectors
        if self.of is not None and self.of != view:
            if self.of not in step.embedded:
                known = ", ".join(step.embedded) or "none"
                raise CseError(
                    f"view '{view}': fgsm goes by the gradient of view '{self.of}', which is not embedded before it "
                    f"(before it: {known})",
                    f"declare [views.{self.of}] above [views.{view}]",
                )
            source = step.embedded[self.of].vectors
        if source.requires_grad:
            source.retain_grad()
        self._watching.append((step, source))
        return vectors

    def _tell(self, view: str, vectors: Tensor, direction: Tensor, running: torch.dtype) -> None:
        if not direction.any():
            told: str | None = "no gradient reaches its token vectors, so nothing moves; name another view in `of`"
        else:
            told = describe_loss(self.epsilon, vectors, direction, running)
        if told is not None:
            self._notices.append(f"view '{view}': fgsm: {told}")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any, **options: Any) -> None:
        stored = state_dict.get(f"{prefix}previous")
        if stored is not None:
            self.previous = self.previous.new_zeros(stored.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)


def _shaped(gradient: Tensor, shape: torch.Size) -> Tensor:
    """Return `gradient` cut, or filled with zeros, to `shape` (B, L, W)."""
    if not gradient.numel():
        return gradient.new_zeros(shape)
    rows, places = shape[0] - gradient.shape[0], shape[1] - gradient.shape[1]
    return F.pad(gradient, (0, 0, 0, places, 0, rows))  # a negative amount cuts
