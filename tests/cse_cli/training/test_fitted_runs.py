"""Training while a fitted encoder is scored: the training is the same, and the state selected is the one saved."""

import pytest

from cse_cli.core.devices import choose
from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.jobs.job import Job
from cse_cli.recipe.load import load
from registry import EVALUATORS
from registry.encoders.saved import open_encoder
from tests.support.errors import refuses
from tests.support.running import execute
from tests.support.shrunken import recipe

FITTED = {
    "whitening": ["fit_on=target", "k=6"],
    "flow": ["fit_on=tatoeba_open", "limit=40", "levels=2", "batch_size=8"],
}


def execute_with(path, *changes):
    loaded = load(str(path), list(changes))
    return execute(Job(loaded, loaded.recipe.train.seed))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("few_pairs")
@pytest.mark.parametrize("method", FITTED)
def test_training_is_undisturbed_and_the_selected_state_is_saved(method, parts, home, tmp_path):
    path = recipe(tmp_path, parts, steps=6, evaluate_every=1, learning_rate=0.02)
    plain = execute_with(path)
    values = [f"encoders.after.{value}" for value in ("of=online", f"name={method}", *FITTED[method])]
    result = execute_with(path, *values, "evaluate.encoder=after")
    assert result.last_state == plain.last_state
    assert result.curve != plain.curve
    assert result.selected_step == max((s for s in result.curve if s), key=lambda s: (result.curve[s], -s))
    assert result.selected_step != 6
    assert result.scores["dev"]["spearman"] == result.curve[result.selected_step]
    assert result.model == plain.model != ""
    assert ("tatoeba_open/train" in result.fingerprints) == (method == "flow")
    encoder, length = open_encoder(str(home / "runs" / str(result.run_id) / "model"))
    again = EVALUATORS["sts"].build({"dataset": "stsb_open", "split": "dev"})
    assert again(SentenceEncoder(encoder, choose("cpu"), 4096, length)) == result.scores["dev"]


@pytest.mark.slow
@pytest.mark.usefixtures("few_pairs")
def test_a_view_of_a_fitted_encoder_is_an_error(parts, home, tmp_path):
    path = recipe(tmp_path, parts)
    values = ["encoders.after.of=online", "encoders.after.name=whitening", "encoders.after.fit_on=target"]
    with refuses("encoders.no_views", "'whitening'"):
        execute_with(path, *values, "views.positive.encoder=after")
