"""Processor time of a step by kind of operation, and the fastest matrix products of this machine."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.training.cse_steps import CseSteps
from benchmarks.training.material import Setting

KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "mkldnn_linear"),
    "zeros and copies": ("fill_", "zero_", "copy_", "cat", "index_select", "index_add_", "index_copy_", "scatter_add_"),
    "random numbers": ("bernoulli_", "random_", "uniform_"),
    "optimizer and clipping": ("_fused_adamw_", "linalg_vector_norm", "_foreach_norm", "_foreach_mul_"),
    "norm, activation, softmax": (
        "gelu", "gelu_backward", "native_layer_norm", "native_layer_norm_backward", "_softmax",
        "_softmax_backward_data",
    ),
}  # fmt: skip
"""Kind → names of torch's operations, without the prefix. All others are "other"."""
SHAPE = (2048, 384, 1536)
"""Rows, inner and outer size of the timed product: one pack through MiniLM's feed-forward layer."""
REPEATS = 15


def shares(setting: Setting, steps: int) -> dict[str, float]:
    """Return kind of operation → share of the processor time of the steps of `cse`, after two other steps."""
    way = CseSteps(setting)
    way.steps(2)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        way.steps(steps)
    way.close()
    spent: Counter[str] = Counter()
    for event in seen.key_averages():
        spent[_kind(event.key.removeprefix("aten::"))] += event.self_cpu_time_total
    return {kind: spent[kind] / spent.total() for kind in (*KINDS, "other")}


def limit(precision: str) -> float:
    """Return the fastest matrix products in 10⁹ floating-point operations per processor second."""
    rows, inner, outer = SHAPE
    dtype: Any = torch.bfloat16 if precision == "bf16" else torch.float32
    states, weights = torch.randn(rows, inner, dtype=dtype), torch.randn(outer, inner, dtype=dtype)
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        torch.nn.functional.linear(states, weights)
        best = min(best, time.process_time() - began)
    return 2 * rows * inner * outer / best / 1e9


def _kind(operation: str) -> str:
    return next((kind for kind, names in KINDS.items() if operation in names), "other")
