"""Run evaluators over one state of an encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cse_cli.devices import Compute
from cse_cli.encoding import SentenceEncoder
from cse_cli.recipe.schema import Evaluate
from cse_cli.results import Scores
from registry.types import Encoder, Evaluator


def evaluate(
    encoder: Encoder,
    evaluators: Mapping[str, Evaluator],
    settings: Evaluate,
    compute: Compute,
    only: Iterable[str] = (),
) -> Scores:
    """Return the scores of `encoder` under the evaluators named in `only`, or all of them.

    Evaluation draws no random numbers, so training goes on as if it had not happened.
    """
    wanted = list(only) or list(evaluators)
    encode = SentenceEncoder(encoder, compute, settings.batch_size, settings.max_length)
    return {name: evaluators[name](encode) for name in wanted}


def score(scores: Scores, path: str) -> float:
    """Return the value of "evaluator.metric"."""
    evaluator, _, metric = path.rpartition(".")
    return scores[evaluator][metric]
