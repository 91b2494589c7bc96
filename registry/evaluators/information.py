"""What one vector of a pair tells of the other: InfoNCE's bound on mutual information. Registers nothing."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from registry.errors import CseError
from registry.evaluators.sphere import unit


def mutual_information(first: Tensor, second: Tensor, size: int, temperature: float) -> dict[str, float]:
    """Return "mutual_information" in nats, averaged over chunks of `size` rows in order, and its "bound", log `size`.

    Each chunk: log N + (1/N) Σᵢ log( e^{cos(hᵢ,h*ᵢ)/τ} / Σⱼ e^{cos(hᵢ,h*ⱼ)/τ} ), in double precision. An incomplete
    last chunk is left out, for its bound would be another.

    Args:
        first: (n, D) h; what is not finite is 0.
        second: (n, D) h*, row i the counterpart of row i.
        size: N.
        temperature: τ.

    Raises:
        CseError: There are fewer rows than `size`.
    """
    if len(first) < size:
        raise CseError(f"{len(first)} rows, which is less than one chunk of {size}", f"set mi_n = {len(first)} or less")
    one, other = (unit(side.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)) for side in (first, second))
    chunks = len(first) // size
    total = 0.0
    for start in range(0, chunks * size, size):
        logits = one[start : start + size] @ other[start : start + size].T / temperature
        total += float(torch.log_softmax(logits, dim=1).diagonal().mean())
    return {"mutual_information": math.log(size) + total / chunks, "bound": math.log(size)}
