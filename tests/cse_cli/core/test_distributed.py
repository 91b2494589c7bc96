"""A run that several processes share is the run of one: same curve, same weights, one record."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from cse_cli.core.distributed import gather_objects, rank0_first, run_on_rank0
from cse_cli.core.results import Result
from cse_cli.jobs.engine import release
from cse_cli.jobs.job import Job
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.runs.events import Listener, Pruned
from cse_cli.runs.index import all_runs
from cse_cli.training import build, checkpoint
from cse_cli.training import run as running
from cse_cli.training import trainer as loop
from cse_cli.training.checkpoint import dropout_seed
from cse_cli.training.train_step import StepOutput, TrainStep
from registry.distributed import is_distributed, rank, single_process, world_size
from registry.errors import CseError, UnknownNameError
from registry.resources import catalog
from tests.support.chosen import distinct
from tests.support.fakes import all_here
from tests.support.processes import on_ranks, without_dropout
from tests.support.running import Heard
from tests.support.shrunken import Small, pairs

Asked = tuple[str, Sequence[str], Sequence[str]]
"""Recipe, what is changed and what is dropped."""


def job(asked: Asked, resume: str | None = None) -> Job:
    loaded = load(*asked)
    return Job(loaded, loaded.recipe.train.seed, resume=resume, again=resume is None)


def together(job: Job, listener: Listener | None = None) -> Result:
    """Do a run on all processes: the first one claims it."""
    claims: list[Any] = []
    run_id = run_on_rank0(lambda: claims.append(job.claim("cpu")) or claims[0].run_id)  # type: ignore[func-returns-value]
    try:
        return running.train(run_id, "cpu", (listener or Heard()) if claims else None)
    finally:
        for claim in claims:
            release(claim)


def few_pairs(patch: pytest.MonkeyPatch) -> None:
    all_here(patch)
    patch.setattr(catalog, "read_pairs", pairs)
    patch.setattr(catalog, "fingerprint", lambda name, split: f"{name}-{split}")


def exactly(asked: Mapping[str, Asked]) -> dict[str, tuple[Result, list[float], dict[str, torch.Tensor]]]:
    """Return of each run its result, the losses told and the last weights; nothing left to chance, double precision.

    Adam divides by a gradient's own size: where that is 0 but for rounding, single precision would compare rounding.
    """
    found = {}
    for name, one in asked.items():
        with pytest.MonkeyPatch.context() as patch:
            few_pairs(patch)
            for drawn in ("rand", "randint_like"):
                patch.setattr(torch, drawn, getattr(torch, drawn))
            patch.setattr(loop, "LOG_EVERY", 1)
            resolved = vars(build)["resolve"]

            def still(*arguments: Any, resolved: Callable[..., Any] = resolved) -> Any:
                made = resolved(*arguments)
                without_dropout(made.method.double())
                return made

            patch.setattr(build, "resolve", still)
            states: list[dict[str, torch.Tensor]] = []
            patch.setattr(checkpoint, "state_digest", lambda state, states=states: str(states.append(state)))
            heard = Heard()
            found[name] = together(job(one), heard), heard.losses, states[0] if states else {}
    return found


class Stop(KeyboardInterrupt):
    """Ends a run between two steps, as Ctrl-C does."""


def broken_and_resumed(asked: Asked, at: int, homes: Sequence[Path]) -> dict[str, Any]:
    """Return an unbroken run's result, that of one ended after `at` steps and resumed, and its id."""
    os.environ["CSE_HOME"] = str(homes[rank()])
    with pytest.MonkeyPatch.context() as patch:
        few_pairs(patch)
        whole = together(job(asked))
        run = end_after(asked, at)
        resumed = together(job(asked, run))
        ended = end_after(asked, at)
    return {"whole": whole, "resumed": resumed, "ended": ended}


def end_after(asked: Asked, at: int) -> str:
    """End a run after some steps and return its id."""
    with pytest.MonkeyPatch.context() as patch:
        take = TrainStep.take

        def stopping(self: TrainStep, done: int, *rest: Any) -> StepOutput:
            if done == at:
                raise Stop
            return take(self, done, *rest)

        patch.setattr(TrainStep, "take", stopping)
        with pytest.raises(Stop):
            together(job(asked))
    return all_runs()[0].run_id


def bored(kind: str, data: Mapping[str, Any]) -> None:
    """End the run at its first score after training began."""
    if kind == "evaluated" and data["step"] > 0:
        raise Pruned("not worth it")


def failures(asked: Asked, uneven: Asked, homes: Sequence[Path]) -> dict[str, Any]:
    """Return what this process hears of runs that cannot go on."""
    os.environ["CSE_HOME"] = str(homes[rank()])
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        few_pairs(patch)
        found["uneven"] = said(uneven)
        found["recorded"] = sorted(path.name for path in homes[rank()].glob("runs/*"))
        found["other weights"] = with_other_weights(asked)
        found["not a number"] = with_nan_on_the_second(asked)
        with pytest.raises(Pruned):
            together(job(asked), bored)
    return found


def said(asked: Asked) -> tuple[str, str]:
    try:
        together(job(asked))
    except CseError as error:
        return type(error).__name__, error.message
    return "", "nothing"


def with_other_weights(asked: Asked) -> tuple[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        resolved = vars(build)["resolve"]

        def changed(*arguments: Any) -> Any:
            made = resolved(*arguments)
            weights = dict(made.method.named_parameters())
            with torch.no_grad():
                weights[max(weights)].view(-1)[0] += 1e-3 * rank()
            return made

        patch.setattr(build, "resolve", changed)
        return said(asked)


def with_nan_on_the_second(asked: Asked) -> tuple[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        take = TrainStep.take

        def spoilt(self: TrainStep, done: int, *rest: Any) -> StepOutput:
            if done == 2 and rank() == 1:
                objective = self.method.objective
                patch.setattr(self.method, "objective", lambda *given: objective(*given) * float("nan"))
            return take(self, done, *rest)

        patch.setattr(TrainStep, "take", spoilt)
        return said(asked)


CHANGED = {
    "mocose_en": ["views.query.augment.0.epsilon=0.001", "encoders.target.decay=0.5"],
    "mini/arccse_en": ["views.positive.template='a {text}'"],
    "mini/denosent_en": ["losses.denoising.noise=0.0", "losses.denoising.dropout=0.0"],
    "mini/mocose_en": ["views.query.augment.0.epsilon=0.001", "encoders.target.decay=0.5"],
    "mini/scd_en": ["views.positive.dropout=0.0"],
    "mini/sg_opt_en": ["losses.self_guided.temperature=0.1"],
    "mini/vascl_en": ["losses.virtual_neighbors.epsilon=0.0"],
}
"""Recipe → what is changed so that the comparison can see the part: FGSM's step of 5e-9 moves nothing; SG-OPT's
temperature of 0.01 makes 1e-5 of what single precision leaves of a cosine; VaSCL's directions, DenoSent's noise and
SCD's second dropout are drawn by each process for its own rows, as dropout is; between views that are alike ArcCSE's
angle of 0 has no gradient."""
REENCODED = ["queue.name=reencoded", "queue.view=anchor", "queue.length=6", "queue.initial=2", "queue.chunk=3"]


def asked(recipe: str, parts: Small, *more: str) -> Asked:
    """Return a recipe made small, in batches of evaluation small enough that there are some to share."""
    changed, dropped = parts.options(load(recipe).recipe)
    settings = ["train.learning_rate=0.001", "evaluate.batch_tokens=32", *CHANGED.get(recipe, [])]
    return recipe, [*changed, *settings, *more], dropped


def test_one_process_asks_nobody() -> None:
    assert (rank(), world_size(), is_distributed()) == (0, 1, False)
    assert run_on_rank0(lambda: 3) == 3
    assert rank0_first(lambda: 4) == 4
    assert gather_objects("a") == ["a"]
    with pytest.raises(KeyError):
        run_on_rank0({}.popitem)


def test_each_process_has_its_own_dropout() -> None:
    assert dropout_seed(7, 0) == dropout_seed(7, 0, step=9) == 7
    assert len({dropout_seed(seed, one, step) for seed in (7, 8) for one in (1, 2) for step in (0, 5)}) == 8


def talk() -> dict[str, Any]:
    """Return what a process hears of the others."""
    order: list[int] = gather_objects(rank())
    found: dict[str, Any] = {"all": order, "first": run_on_rank0(lambda: (rank(), world_size(), is_distributed()))}
    found["after"] = rank0_first(rank)
    for name, error in (("known", UnknownNameError("no such thing", "look")), ("odd", UnpicklableError(lambda: 1))):
        try:
            run_on_rank0(partial(_raise, error))
        except Exception as caught:
            found[name] = (type(caught).__name__, str(caught))
    with single_process():
        found["alone"] = (rank(), world_size(), gather_objects("a"))
    return found


class UnpicklableError(Exception):
    pass


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.process
def test_the_first_process_decides() -> None:
    first, second, third = on_ranks(talk, world=3)
    for each in (first, second, third):
        assert each["all"] == [0, 1, 2]
        assert each["first"] == (0, 1, True)  # it works alone: nobody would answer a collective
        assert each["known"] == ("UnknownNameError", "no such thing\n  → look")
        assert each["alone"] == (0, 1, ["a"])
    assert (first["odd"][0], second["odd"][0]) == ("UnpicklableError", "RunFailedError")
    assert "UnpicklableError" in third["odd"][1]
    assert [each["after"] for each in (first, second, third)] == [0, 1, 2]


def compare(options: dict[str, Asked], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSE_HOME", str(folder / "shared"))
    first, second = on_ranks(exactly, options)
    monkeypatch.setenv("CSE_HOME", str(folder / "alone"))
    for name, (result, losses, state) in exactly(options).items():
        shared, heard, weights = first[name]
        assert second[name][0] == shared
        assert second[name][1] == [], "the first process alone tells"
        assert heard == pytest.approx(losses, abs=1e-6), name
        assert shared.curve == pytest.approx(result.curve, abs=1e-5)
        assert shared.selected_step == result.selected_step
        for evaluator, scores in result.scores.items():
            assert shared.scores[evaluator] == pytest.approx(scores, abs=1e-5, nan_ok=True)
        for key, value in state.items():
            torch.testing.assert_close(weights[key], value, rtol=0, atol=1e-5, msg=f"{name}: {key}")


@pytest.mark.process
def test_two_processes_train_what_one_does(parts: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    papers = ("simcse_en", "focal_infonce_en", "ifcl_en", "mocose_en", "conisi_s_en")
    options = {name: asked(name, parts) for name in papers}
    options["in chunks"] = asked("mini/diffcse_en", parts, "train.mini_batch_size=1")
    options["reencoded"] = asked("simcse_en", parts, *REENCODED)
    compare(options, tmp_path, monkeypatch)


@pytest.mark.process
@pytest.mark.exhaustive
def test_so_does_every_small_recipe_that_keeps_something(
    parts: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another queue, encoder or head: of what has no state, test_two_processes compares the gradients."""
    small = distinct((name for name in all_recipes() if name.startswith("mini/")), "encoder", "head", "queue")
    compare({name: asked(name, parts) for name in small}, tmp_path, monkeypatch)


@pytest.mark.process
def test_a_resumed_run_is_bit_for_bit_the_unbroken_one(
    parts: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    options = asked("mocose_en", parts, "train.steps=6", "train.checkpoint_every=2")
    first, second = on_ranks(broken_and_resumed, options, 3, [home, home])
    assert first == second
    assert first["resumed"].last_state == first["whole"].last_state
    assert first["resumed"].curve == first["whole"].curve

    monkeypatch.setenv("CSE_HOME", str(home))
    few_pairs(monkeypatch)
    heard = Heard()
    alone = together(job(options, first["ended"]), heard)
    assert any("the number of processes changed from 2 to 1" in text for text in heard.warnings)
    assert alone.steps == 6
    assert alone.last_state != first["whole"].last_state


@pytest.mark.process
def test_what_cannot_go_on_ends_on_every_process(parts: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = [tmp_path / "first", tmp_path / "second"]
    options = asked("simcse_en", parts)
    first, second = on_ranks(failures, options, asked("simcse_en", parts, "train.batch_size=5"), homes)
    assert first["uneven"] == second["uneven"]
    assert first["uneven"] == ("CseError", "train.batch_size 5 is not a multiple of the number of processes, 2")
    assert first["recorded"] == []
    assert first["other weights"] == second["other weights"]
    assert first["other weights"][0] == "RunFailedError"
    assert "process 1 no longer has the weights of process 0: 1 of " in first["other weights"][1]
    for each in (first, second):
        assert each["not a number"][0] == "RunFailedError"
        assert each["not a number"][1].startswith("the loss is nan at step 3: ")

    left = [path.relative_to(homes[1]).parts[0] for path in homes[1].rglob("*")]
    assert set(left) == {"cache"}, "the second process keeps tokens and writes nothing else"
    monkeypatch.setenv("CSE_HOME", str(homes[0]))
    # What is found before the first step leaves no record.
    assert sorted(run.state for run in all_runs()) == ["FAILED", "PRUNED"]
