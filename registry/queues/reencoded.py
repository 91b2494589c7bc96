"""Queue of sentences instead of embeddings, which never becomes stale."""

from __future__ import annotations

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import QUEUES
from registry.accelerators import kept_randomness
from registry.distributed import all_devices
from registry.errors import CseError
from registry.queues.rolling import RollingQueue
from registry.tokens import Tokens
from registry.types import Encoder, Step, ViewName, take_shape_from_checkpoint

LONGEST = 512
"""Maximum number of stored tokens per sentence."""


@QUEUES.register("reencoded")
class Reencoded(RollingQueue):
    """Return the sentences of earlier steps as negatives, re-encoded in each step by the view's current encoder.

    The queue stores the tokens of a step after the view's augmenters. Changes of token vectors are not repeated.
    Sentences are appended after the optimizer's step, in batch order, and removed as in `fifo`. They are encoded
    without gradient, with the encoder's own dropout, from a random stream shared by all devices, so that all devices
    get the same negatives.

    Shapes: negatives (K, D) with K ≤ length rows, zero log-weights (K,).

    Source: MoCoSE (2022, Table 8, "latest") and its code.

    Args:
        view: View whose sentences are stored.
        length: Maximum number of entries, each encoded in every step.
        initial: Number of random unit vectors at the start, which are removed first and never change.
        chunk: Number of sentences per forward pass.

    Example:
        [queue]
        name = "reencoded"
        view = "positive"
        length = 128
    """

    tokens: Tensor
    """(length, 4, L) ids, mask, types and positions. Rows with an empty mask hold no sentence."""

    def __init__(
        self,
        view: ViewName,
        chunk: Annotated[int, Field(gt=0)] = 128,
        **rolling: Any,
    ) -> None:
        super().__init__(view, **rolling)
        self.chunk = chunk
        self.register_buffer("tokens", torch.zeros(self.length, 4, 0, dtype=torch.int32))
        take_shape_from_checkpoint(self, "tokens", only_if_empty=True)  # not bound yet: the checkpoint has the length
        self._encoder: tuple[Encoder, ...] = ()  # in a tuple, so that its weights do not become this module's

    def bind(self, encoder: Encoder) -> None:
        """Store the encoder of the view, its width and its maximum number of tokens."""
        self._encoder = (encoder,)
        longest = min(encoder.max_length or LONGEST, LONGEST)
        self.tokens = torch.zeros(self.length, 4, longest, dtype=torch.int32, device=self.ages.device)
        super().bind(encoder)

    def observe(self, step: Step) -> None:
        """Re-encode the stored sentences."""
        held = self.tokens[: self.filled]
        known = held[:, 1].any(dim=1)
        if not known.any():
            return
        seed = int(torch.randint(2**62, (1,), generator=step.generator))
        with kept_randomness(self.ages.device), torch.no_grad():
            torch.manual_seed(seed)
            made = torch.cat([self._encode(rows) for rows in torch.split(held[known], self.chunk)])
        vectors = self.vectors[: self.filled].clone()  # the graph of a step may hold the previous vectors
        vectors[known] = F.normalize(made.float(), dim=-1, eps=1e-8).to(vectors.dtype)
        self.vectors = F.pad(vectors, (0, 0, 0, self.length - self.filled))

    def after_step(self, step: Step) -> None:
        """Store the view's tokens of this step from every device, and its embeddings until the next step."""
        tokens = step.views[self.view].tokens
        rows = torch.stack([tokens.ids, tokens.mask, tokens.types, tokens.positions], dim=1).to(torch.int32)
        rows = rows * rows[:, 1:2]  # zeros at padding, whose length differs between devices
        longest = self.tokens.shape[2]
        if tokens.length > longest:
            raise CseError(
                f"queue 'reencoded' stores at most {longest} tokens of a sentence, but one has {tokens.length}",
                f"use --set data.max_length={longest}, or another queue",
                code="queues.too_long",
            )
        new = all_devices(F.pad(rows, (0, longest - rows.shape[2])))
        kept = torch.cat([self.tokens[: self.filled], new])[-self.length :]
        self.tokens = F.pad(kept, (0, 0, 0, 0, 0, self.length - len(kept)))
        super().after_step(step)

    def _encode(self, rows: Tensor) -> Tensor:
        """Return (n, D) embeddings of stored tokens (n, 4, L), without unused places."""
        used = int(rows[:, 1].any(dim=0).nonzero().max()) + 1
        ids, mask, types, positions = rows[:, :, :used].long().unbind(dim=1)
        tokens = Tokens(ids, mask, types, positions)
        encoder = self._encoder[0]
        return encoder.encode(tokens, encoder.embed(tokens)).sentence
