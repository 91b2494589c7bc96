"""The sentence encoder of several processes: each encodes its share of the batches, the first one asks and scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from cse_cli.encoding import SentenceEncoder
from cse_cli.ranks import rows_at_first, shared
from registry.distributed import alone


class ShardedEncoder(SentenceEncoder):
    """Encodes what the first process asks for on all of them, in the batches of one process.

    Whatever is fitted to vectors exists on the first process alone: the others give what lies below it.
    """

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Ask from within this block, which ends the others' `follow`; on the first process."""
        try:
            yield
        except Exception:
            shared(None)
            raise
        shared(None)

    @torch.inference_mode()
    def follow(self) -> None:
        """Encode this process's share of what the first one asks for, until that is done; on the others."""
        with alone():
            while (asked := shared()) is not None:
                self._below(*asked)

    def _vectors(self, rows: Sequence[Sequence[int]], batches: Sequence[slice]) -> list[Tensor]:
        if self.encoder.fits != "never" and self.encoder.foundation is self.encoder:
            return super()._vectors(rows, batches)  # the others have none of what was fitted
        shared((rows, batches))
        below = self._below(rows, batches)
        return [self.encoder.finished(part.to(self.compute.device)).float().cpu() for part in below]

    def _below(self, rows: Sequence[Sequence[int]], batches: Sequence[slice]) -> list[Tensor]:
        """Return, on the first process, the vectors of each batch before anything fitted to them."""
        world, rank = dist.get_world_size(), dist.get_rank()
        try:
            own = [self._represented(self.encoder.foundation, rows[batch]) for batch in batches[rank::world]]
        except Exception:
            if rank == 0:
                shared(None)
            raise
        width = shared(own[0].shape[1] if own else 0)  # one with no batch of its own cannot know it
        if width is None:
            return []
        sizes = [[batch.stop - batch.start for batch in batches[one::world]] for one in range(world)]
        gathered = rows_at_first(torch.cat([torch.empty(0, width), *own]), [sum(of) for of in sizes])
        parts = [list(torch.split(part, of)) for part, of in zip(gathered, sizes, strict=False)]
        return [parts[place % world][place // world] for place in range(len(batches))] if parts else []
