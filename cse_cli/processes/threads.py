"""How processes of one machine share its cores."""

from __future__ import annotations

import os

import torch

from cse_cli.cores import allowed

VARIABLE = "OMP_NUM_THREADS"


def environment(processes: int, device: str) -> dict[str, str]:
    """Return the environment of one of several processes: with its share of the cores, if it computes on them.

    A number of threads that was set by hand stays.
    """
    own = dict(os.environ)
    if device == "cpu" or not torch.cuda.is_available():
        own.setdefault(VARIABLE, str(max(1, allowed() // processes)))
    return own
