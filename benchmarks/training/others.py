"""What else a training waits for: the command line, its data, its checkpoints, its scores."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.training.material import Setting, available
from benchmarks.training.ours import Ours


def checkpoint(setting: Setting, repeats: int) -> dict[str, float]:
    """Return the seconds that writing a checkpoint takes, and its size in MB."""
    from cse_cli.training.checkpoint import FILE

    one = Ours(setting)
    one.steps(1)
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        one.trainer.save()
        seconds.append(time.perf_counter() - began)
    return {"seconds": statistics.median(seconds), "mb": (one.trainer.folder / FILE).stat().st_size / 1e6}


def help_text(repeats: int) -> dict[str, float]:
    """Return the seconds of `cse --help`."""
    from benchmarks.start import command

    wall, cpu = command(["--help"], repeats)
    return {"wall": wall, "cpu": cpu}


def start(text: str, model: str, repeats: int) -> dict[str, Any]:
    """Return the seconds from a recipe's `[data]` to the first batch: the first time, then from the cache."""
    from benchmarks.start import start_in_a_new_process

    if available(text) != text:
        return {"missing": f"text {text}"}
    with tempfile.TemporaryDirectory() as home, _state_in(home):
        first, rows, memory = start_in_a_new_process(text, model)
        later = [start_in_a_new_process(text, model)[0] for _ in range(repeats)]
    return {"text": text, "rows": rows, "first": first, "later": statistics.median(later), "peak_mb": memory}


def suite(model: str, device: str, precision: str, repeats: int, sentences: int | None = None) -> dict[str, Any]:
    """Return the seconds of the seven English STS test sets; of as many generated pairs where they are missing.

    Args:
        model: Directory of what is scored.
        device: Where.
        precision: In what.
        repeats: How often; the first time counts too.
        sentences: So many generated ones, whether the sets are there or not.
    """
    from benchmarks.encoding import ours
    from cse_cli.core.devices import choose
    from registry.encoders.saved import open_encoder
    from registry.errors import MissingError

    encoder, length = open_encoder(model)
    compute = choose(device, precision)
    encoder.to(compute.device)
    seconds: list[float] = []
    source = "the seven sets"
    for _ in range(repeats):
        began = time.perf_counter()
        try:
            if sentences is not None:
                raise MissingError("not asked for")
            ours(encoder, length, compute)
        except MissingError:
            source = _generated_pairs(encoder, length, compute, sentences or SENTENCES)
        seconds.append(time.perf_counter() - began)
    return {"seconds": statistics.median(seconds), "all": seconds, "of": source}


def _generated_pairs(encoder: Any, length: int, compute: Any, count: int) -> str:
    """Encode as many sentences as the seven sets have, and correlate."""
    from scipy.stats import spearmanr

    from benchmarks.training.material import STS_LENGTHS, generated
    from cse_cli.evaluation.encoder import SentenceEncoder

    encode = SentenceEncoder(encoder, compute, None, length)
    vectors = encode(generated(count, STS_LENGTHS))
    cosines = (vectors[::2] * vectors[1::2]).sum(dim=1).tolist()
    spearmanr(cosines, list(range(len(cosines))))
    return f"{count:,} generated sentences"


SENTENCES = 26_138
"""As many as the seven test sets have, each counted once, but for an odd one."""


@contextmanager
def _state_in(folder: str) -> Iterator[None]:
    before = os.environ.get("CSE_HOME")
    os.environ["CSE_HOME"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["CSE_HOME"]
        else:
            os.environ["CSE_HOME"] = before
