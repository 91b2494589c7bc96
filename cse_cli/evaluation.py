"""Run evaluators over one state of an encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from cse_cli.data.batches import ViewPlan
from cse_cli.devices import Compute
from cse_cli.encoding import SentenceEncoder
from cse_cli.ranks import from_first
from cse_cli.recipe.schema import Evaluate
from cse_cli.results import Scores
from cse_cli.sharded import ShardedEncoder
from registry.distributed import world_size
from registry.errors import CseError
from registry.types import Encoder, Evaluator


def evaluate(
    encoder: Encoder,
    evaluators: Mapping[str, Evaluator],
    settings: Evaluate,
    compute: Compute,
    only: Iterable[str] = (),
    plans: Mapping[str, ViewPlan] | None = None,
    told: Callable[[str], None] | None = None,
) -> Scores:
    """Return the scores of `encoder` under the evaluators named in `only`, or all of them.

    All of them ask one `SentenceEncoder`, so that each distinct sentence is encoded once. Evaluation draws no random
    numbers, so training goes on as if it had not happened. `told` hears the name of each before it begins. Several
    processes call it together: all encode, the first one scores, and every one gets its scores.
    """
    wanted = {name: evaluators[name] for name in list(only) or evaluators}
    if world_size() == 1:
        encode = SentenceEncoder(encoder, compute, settings.batch_tokens, settings.max_length, plans)
        return _scores(encode, wanted, told)
    sharded = ShardedEncoder(encoder, compute, settings.batch_tokens, settings.max_length, plans)

    def lead() -> Scores:
        with sharded.leading():
            return _scores(sharded, wanted, told)

    return from_first(lead, meanwhile=sharded.follow)


def _scores(encode: SentenceEncoder, wanted: Mapping[str, Evaluator], told: Callable[[str], None] | None) -> Scores:
    encoder = encode.encoder
    if encoder.fits == "once":
        encoder.fit(encode, ())
        encode.forget()
    scores: Scores = {}
    for name, evaluator in wanted.items():
        if told is not None:
            told(name)
        if encoder.fits == "each":
            encode.forget()
            encoder.fit(encode, _own_sentences(name, evaluator))
            encode.forget()
        scores[name] = evaluator(encode)
    return scores


def _own_sentences(name: str, evaluator: Evaluator) -> Sequence[str]:
    texts = evaluator.texts()
    if not texts:
        raise CseError(
            f"evaluator '{name}' gives no sentences of its own that the encoder could be fitted to",
            "fit the encoder to a data set instead",
        )
    return texts


def score(scores: Scores, path: str) -> float:
    """Return the value of "evaluator.metric"."""
    evaluator, _, metric = path.rpartition(".")
    return scores[evaluator][metric]
