"""Seconds of an evaluation, from evaluations of a part of its pairs.

The encoding is proportional to the number of sentences, which is known from an evaluator that is stopped at its first
request. The rest (correlations, classifiers) is measured at two sizes and extended by the power of its growth.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from cse_cli.core.devices import Compute
from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.training.build import Experiment
from registry.errors import CseError
from registry.prompts import Side
from registry.types import Evaluator

SIZES = (32, 128, 512)
"""Pairs or rows of the evaluations that are measured, as far as time permits."""
MOST_POWER = 2.0
"""Largest power of the growth: all pairs of sentences."""
MOST_SENTENCES = 8
"""Sentences per row in one request. An evaluator that requests more ignores the limit, and is not measured."""
GROWTH = 4
"""Factor between two `SIZES`."""


class _Requested(BaseException):
    """First request of an evaluator. Not an `Exception`, so that evaluators do not handle it."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__()
        self.sentences = sentences


class _FirstRequest:
    """An `Encode` that ends the evaluation at its first request."""

    def __call__(self, sentences: Sequence[str], side: Side | None = None, prompts: Sequence[str] = ()) -> Tensor:  # noqa: ARG002
        """Raise the request."""
        raise _Requested(sentences)

    def encode_view(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:  # noqa: ARG002
        """Raise the request."""
        raise _Requested(next(iter(columns.values())))


class _IgnoresLimitError(CseError):
    """An evaluator requested more sentences than its limit permits."""


class _Timed(SentenceEncoder):
    """Encoder that measures its time. `sentences` is the size of the first request, and `most` that of any."""

    seconds = 0.0
    sentences = 0
    most = math.inf

    def __call__(self, sentences: Sequence[str], side: Side | None = None, prompts: Sequence[str] = ()) -> Tensor:
        """Return embeddings."""
        return self._measured(sentences, lambda: super(_Timed, self).__call__(sentences, side, prompts))

    def encode_view(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:
        """Return embeddings of sentences changed by a view's augmenters."""
        sentences = next(iter(columns.values()))
        return self._measured(sentences, lambda: super(_Timed, self).encode_view(view, columns, training))

    def _measured(self, sentences: Sequence[str], encode: Callable[[], Tensor]) -> Tensor:
        if len(sentences) > self.most:
            raise _IgnoresLimitError("too many sentences")
        self.sentences = self.sentences or len(set(sentences))
        began = time.perf_counter()
        found = encode()
        self.seconds += time.perf_counter() - began
        return found


@dataclass(frozen=True)
class Part:
    """Measured evaluation of a part of the data.

    Args:
        sentences: Distinct sentences of the first request.
        encoding: Seconds of encoding.
        rest: Seconds of everything else except reading the data.
        texts: Sentences that the encoder was fitted to.
        fitting: Seconds of the fit.
    """

    sentences: int
    encoding: float
    rest: float
    texts: int = 0
    fitting: float = 0.0


@dataclass(frozen=True)
class ScoringTimes:
    """Times of evaluations.

    Args:
        each: Evaluator → seconds of an evaluation of only this evaluator.
        together: Seconds of an evaluation of all evaluators, which share embeddings.
        unmeasured: Parts that are not included.
    """

    each: Mapping[str, float]
    together: float
    unmeasured: tuple[str, ...]


def measure_scoring(experiment: Experiment, compute: Compute, seconds: float) -> ScoringTimes:
    """Return the times of evaluations of an experiment, whose method is on its device.

    `seconds` limits the measurement of all evaluators together, but each scores at least the smallest of `SIZES`.
    """
    settings, scored = experiment.recipe.evaluate, experiment.scored
    encoder = scored.foundation if scored.fits == "once" else scored

    def timed() -> _Timed:
        return _Timed(encoder, compute, settings.batch_tokens, settings.max_length, experiment.plans, settings.view)

    each: dict[str, float] = {}
    unmeasured = [f"fit of encoder {settings.encoder}"] if scored.fits == "once" else []
    together, known = 0.0, set[str]()
    for name, evaluator in experiment.evaluators.items():
        _first_request(evaluator)  # opens files, and imports libraries
        began = time.perf_counter()
        sentences = set(_first_request(evaluator))
        reading = time.perf_counter() - began
        parts = _parts(evaluator, timed, seconds / len(experiment.evaluators), reading)
        if not parts:
            unmeasured.append(f"evaluator {name}")
            each[name] = 0.0
            continue
        texts = len(evaluator.texts()) if scored.fits == "each" else 0
        new = sentences if scored.fits == "each" else sentences - known
        each[name] = whole(parts, len(sentences), texts) + reading
        together += each[name] - parts[-1].encoding * (len(sentences) - len(new)) / parts[-1].sentences
        known |= sentences
    return ScoringTimes(each, together, tuple(unmeasured))


def whole(parts: Sequence[Part], sentences: int, texts: int = 0) -> float:
    """Return the seconds of an evaluation of `sentences` distinct sentences, from evaluations of parts of them.

    encoding · n / n₂ + rest · (n / n₂)ᵖ, with p = log(rest₂ / rest₁) / log(n₂ / n₁) of the two largest parts, between 0
    and 2, or 1 for a single part. A fit is proportional to its `texts`.
    """
    last, power = parts[-1], 1.0
    share = sentences / last.sentences
    if len(parts) > 1 and min(parts[-2].rest, last.rest) > 0 and last.sentences > parts[-2].sentences:
        power = math.log(last.rest / parts[-2].rest) / math.log(last.sentences / parts[-2].sentences)
    fitting = last.fitting * texts / last.texts if last.texts else 0.0
    return last.encoding * share + last.rest * math.pow(share, min(max(power, 0.0), MOST_POWER)) + fitting


def _first_request(evaluator: Evaluator) -> Sequence[str]:
    """Return the sentences of the evaluator's first request."""
    try:
        evaluator(_FirstRequest())
    except _Requested as request:
        return request.sentences
    return ()


def _parts(evaluator: Evaluator, timed: Callable[[], _Timed], seconds: float, reading: float) -> list[Part]:
    """Return evaluations of growing parts of the data, until the next one would take longer than `seconds`.

    The smallest part is evaluated twice. The first time, libraries are imported.
    """
    limit, spent = evaluator.limit, 0.0
    found: list[Part] = []
    try:
        for size in SIZES:
            evaluator.limit = min(size, limit or size)
            try:
                if not found:
                    _part(evaluator, timed(), reading)
                began = time.perf_counter()
                found.append(_part(evaluator, timed(), reading))
            except _IgnoresLimitError:
                return []
            except CseError:  # too few rows for this evaluator
                continue
            took = time.perf_counter() - began
            spent += took
            if spent + GROWTH * took > seconds or evaluator.limit == limit:
                break
    finally:
        evaluator.limit = limit
    return [part for part in found if part.sentences]


def _part(evaluator: Evaluator, encode: _Timed, reading: float) -> Part:
    texts: Sequence[str] = ()
    fitting = 0.0
    if encode.encoder.fits == "each":
        texts, at = evaluator.texts(), time.perf_counter()
        encode.encoder.fit(encode, texts)
        fitting = time.perf_counter() - at
        encode.forget()
        encode.seconds, encode.sentences = 0.0, 0
    encode.most = MOST_SENTENCES * (evaluator.limit or 0)
    began = time.perf_counter()
    evaluator(encode)
    rest = time.perf_counter() - began - encode.seconds - reading
    return Part(encode.sentences, encode.seconds, max(0.0, rest), len(texts), fitting)
