"""A queue of sentences instead of vectors: it never grows stale."""

from __future__ import annotations

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from registry import QUEUES
from registry.distributed import all_devices
from registry.queues.rolling import RollingQueue
from registry.tokens import Tokens
from registry.types import Encoder, Step, ViewName, take_shape_from_checkpoint

LONGEST = 512
"""Tokens of a sentence kept at most, where the encoder knows no limit."""


@QUEUES.register("reencoded")
class Reencoded(RollingQueue):
    """Serve the sentences of earlier steps as negatives, encoded anew at each step by the view's present encoder.

    What is stored of a step are its tokens, as the view's augmenters left them; changes of token vectors are not made
    again. They enter after the optimiser's step, in batch order, and leave as a fifo's do. Encoded without gradient,
    with the encoder's own dropout, from a random stream that all devices share, so that all serve the same.

    Shapes: negatives (K, D) with K ≤ length rows, zero log-weights (K,).

    Source: MoCoSE (2022, Table 8, "latest") and its code.

    Args:
        view: The view whose sentences are stored.
        length: Most entries kept; each is encoded at every step.
        initial: Random unit vectors that the queue starts with and that leave first; they stay as they are.
        chunk: Sentences encoded at once.
    """

    tokens: Tensor
    """(length, 4, L) ids, mask, types and positions; rows with an empty mask have none."""

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
        """Take the encoder of the view, its width and the number of tokens it takes."""
        self._encoder = (encoder,)
        longest = min(encoder.max_length or LONGEST, LONGEST)
        self.tokens = torch.zeros(self.length, 4, longest, dtype=torch.int32, device=self.ages.device)
        super().bind(encoder)

    def observe(self, step: Step) -> None:
        """Encode anew what is stored."""
        held = self.tokens[: self.filled]
        known = held[:, 1].any(dim=1)
        if not known.any():
            return
        seed = int(torch.randint(2**62, (1,), generator=step.generator))
        own = [self.ages.device] if self.ages.is_cuda else []  # unnamed, all of a machine's devices would be asked
        with torch.random.fork_rng(devices=own), torch.no_grad():
            torch.manual_seed(seed)
            made = torch.cat([self._encode(rows) for rows in torch.split(held[known], self.chunk)])
        vectors = self.vectors[: self.filled].clone()  # the graph of a step may hold what was served before
        vectors[known] = F.normalize(made.float(), dim=-1, eps=1e-8).to(vectors.dtype)
        self.vectors = F.pad(vectors, (0, 0, 0, self.length - self.filled))

    def after_step(self, step: Step) -> None:
        """Store the view's tokens of this step from every device, and until the next step its vectors."""
        tokens = step.views[self.view].tokens
        rows = torch.stack([tokens.ids, tokens.mask, tokens.types, tokens.positions], dim=1).to(torch.int32)
        rows = rows * rows[:, 1:2]  # nothing at padding, of which each device has its own
        longest = self.tokens.shape[2]
        new = all_devices(F.pad(rows, (0, longest - rows.shape[2])))
        kept = torch.cat([self.tokens[: self.filled], new])[-self.length :]
        self.tokens = F.pad(kept, (0, 0, 0, 0, 0, self.length - len(kept)))
        super().after_step(step)

    def _encode(self, rows: Tensor) -> Tensor:
        """Return (n, D) of stored tokens (n, 4, L), without the places that none of them uses."""
        used = int(rows[:, 1].any(dim=0).nonzero().max()) + 1
        ids, mask, types, positions = rows[:, :, :used].long().unbind(dim=1)
        tokens = Tokens(ids, mask, types, positions)
        encoder = self._encoder[0]
        return encoder.encode(tokens, encoder.embed(tokens)).sentence
