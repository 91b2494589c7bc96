"""Time of the command line, the data, the checkpoints and the scores of a training."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.training.cse_steps import CseSteps
from benchmarks.training.material import Setting, available


def checkpoint(setting: Setting, repeats: int) -> dict[str, float]:
    """Return the seconds to write a checkpoint, and its size in MB."""
    from cse_cli.training.checkpoint import FILE

    one = CseSteps(setting)
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
    """Return the seconds from a recipe's `[data]` to the first batch, without and with the cache."""
    from benchmarks.start import start_in_a_new_process

    if available(text) != text:
        return {"missing": f"text {text}"}
    with tempfile.TemporaryDirectory() as home, _state_in(home):
        first, rows, memory = start_in_a_new_process(text, model)
        later = [start_in_a_new_process(text, model)[0] for _ in range(repeats)]
    return {"text": text, "rows": rows, "first": first, "later": statistics.median(later), "peak_mb": memory}


def suite(model: str, device: str, precision: str, repeats: int, sentences: int | None = None) -> dict[str, Any]:
    """Return the seconds to score the seven English STS test sets. Missing sets are replaced by generated pairs.

    Args:
        model: Directory of the model.
        device: Device of the model.
        precision: Precision of the model.
        repeats: Number of measurements, including the first.
        sentences: Number of generated sentences. None uses the test sets.
    """
    from benchmarks.encoding import with_cse
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
                raise MissingError("replaced by generated sentences")
            with_cse(encoder, length, compute)
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
"""Number of distinct sentences of the seven test sets, minus one to make it even."""


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
