"""Training goes on after a kill as if nothing had happened, keeps the best state, and stops at a loss that is NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cse_cli.core.devices import choose
from cse_cli.core.threads import torch_threads_restored
from cse_cli.data.batches import Batches, ViewSpec
from cse_cli.data.columns import Making
from cse_cli.data.sources import open_text
from cse_cli.recipe.schema import Data, EncoderPart, Evaluate, LossPart, Part, Recipe, Train, View
from cse_cli.runs.record import RunRecord
from cse_cli.training import checkpoint
from cse_cli.training.build import Experiment, Prepared
from cse_cli.training.checkpoint import method_state, state_digest
from cse_cli.training.method import BoundView, Method, Term
from cse_cli.training.train_step import StepOutput
from cse_cli.training.trainer import LOG_EVERY, Trainer
from registry import LOSSES, QUEUES
from registry.distributed import rank, world_size
from registry.errors import RunFailedError
from registry.types import Encode, Evaluator
from tests.support.fakes import FakeEncoder, WordVocabulary
from tests.support.processes import on_ranks
from tests.support.running import Heard


class Recorded(RunRecord):
    """Keeps what it is told, as (step, name) → value."""

    def __init__(self) -> None:
        self.heard = Heard()
        super().__init__("test", None, self.heard)
        self.points: dict[tuple[int, str], float] = {}

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            assert (step, name) not in self.points
            self.points[step, name] = value


class Spread(Evaluator):
    """A score that any change of the weights changes."""

    metric = "spread"
    metrics = ("spread",)

    def __call__(self, encode: Encode) -> dict[str, float]:
        return {"spread": float(encode(["a b", "c d e", "f"]).std())}


class Peak(Evaluator):
    """Best at the second state asked about after the untrained one."""

    metric = "peak"
    metrics = ("peak",)

    def __init__(self) -> None:
        self.values = iter([9.0, 1.0, 3.0, 2.0, 3.0, 0.0])
        self.seen: list[Tensor] = []

    def __call__(self, encode: Encode) -> dict[str, float]:
        self.seen.append(encode(["a b c"]))
        return {"peak": next(self.values)}


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "home"))
    file = tmp_path / "text.txt"
    file.write_text(
        "".join(f"{a} {b} {c}\n" for a in "abcdef" for b in "ghij" for c in ("k", "lm no")), encoding="utf-8"
    )
    return str(file)


def prepared(text: str, evaluator: Evaluator | None = None, *, untrained: bool = False, **train: object) -> Prepared:
    selecting = "dev.spread" if evaluator is None else f"dev.{evaluator.metric}"
    recipe = Recipe(
        schema=1,
        title="fake",
        data=Data(file=text, max_length=16),
        encoders={"online": EncoderPart(name="fake")},
        views={"anchor": View(), "positive": View()},
        losses={"info_nce": LossPart(name="info_nce")},
        train=Train(**{"steps": 20, "batch_size": 8, "evaluate_every": 5, "learning_rate": 1e-2, **train}),
        evaluate=Evaluate(metric_for_best_model=selecting, select_untrained=untrained or None),
        evaluators={"dev": Part(name="fake")},
    )
    torch.manual_seed(0)
    encoder = FakeEncoder(dropout=0.3)
    entry = LOSSES["info_nce"]
    queue = QUEUES["hippocampus"].build({"view": "anchor", "length": 20, "forgetting_rate": 0.1})
    queue.bind(encoder)
    bound = {"anchor": BoundView("online", []), "positive": BoundView("online", [])}
    term = Term(entry, 1.0, {"anchor": "anchor", "positive": "positive"}, queue=True)
    method = Method({"online": encoder}, bound, queue, {"info_nce": entry.build({})}, {"info_nce": term})
    specs = {name: ViewSpec("text", WordVocabulary()) for name in bound}
    experiment = Experiment(recipe, method, specs, {"dev": evaluator or Spread()})
    opened = open_text(recipe.data, {"text"})
    batches = Batches(opened, specs, 8, 16, seed=3)
    return Prepared(choose("cpu"), experiment, 3, opened, batches, recipe.train.steps or 0, Making())


def trainer(folder: Path, job: Prepared, record: Recorded | None = None) -> Trainer:
    folder.mkdir(exist_ok=True)
    return Trainer(job, folder, record or Recorded())


class Killed(BaseException):
    pass


def kill() -> None:
    raise Killed


def before_step(running: Trainer, at: int, act: Callable[[], None]) -> None:
    """Have the trainer do something once, after `at` steps."""
    take = running.stepper.take

    def taken(done: int, *rest: Any) -> StepOutput:
        if done == at:
            act()
        return take(done, *rest)

    running.stepper.take = taken  # type: ignore[method-assign]


def kill_at(running: Trainer, step: int) -> None:
    before_step(running, step, kill)
    with pytest.raises(Killed):
        running.run()


def weights(running: Trainer) -> str:
    return state_digest(method_state(running.method))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "changes", "kept"), [(-1.0, {}, 10), (300.0, {}, 0), (-1.0, {"checkpoint_every": 7}, 7)]
)
def test_an_old_checkpoint_is_replaced_at_a_logged_step(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, changes: dict[str, int], kept: int
) -> None:
    whole = trainer(tmp_path / "whole", prepared(text, evaluate_every=0))
    whole.run()
    monkeypatch.setattr("cse_cli.training.trainer.OLDEST_CHECKPOINT", seconds)
    broken = trainer(tmp_path / "broken", prepared(text, evaluate_every=0, **changes))
    kill_at(broken, 13)
    again = trainer(tmp_path / "broken", prepared(text, evaluate_every=0, **changes))
    again.restore()
    assert again.progress.step == kept
    again.run()
    assert weights(again) == weights(whole)


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 6, 13, 19])
def test_a_killed_run_resumes_bit_identically(text: str, tmp_path: Path, at: int) -> None:
    whole, log = trainer(tmp_path / "whole", prepared(text)), Recorded()
    whole.record = log
    whole.run()

    broken = trainer(tmp_path / "broken", prepared(text, checkpoint_every=3))
    kill_at(broken, at)
    torch.manual_seed(99)
    again_log = Recorded()
    again = trainer(tmp_path / "broken", prepared(text, checkpoint_every=3), again_log)
    again.restore()
    assert again.progress.step == at // 3 * 3
    again.run()

    assert weights(again) == weights(whole)
    assert again.selection.curve == whole.selection.curve
    assert (again.selection.step, again.selection.score) == (whole.selection.step, whole.selection.score)
    for (when, name), value in again_log.points.items():
        assert name.startswith("speed/") or log.points[when, name] == value


@pytest.mark.slow
def test_a_run_in_bf16_resumes_bit_identically(text: str, tmp_path: Path) -> None:
    def half() -> Prepared:
        return replace(prepared(text, checkpoint_every=3), compute=choose("cpu", "bf16"))

    whole = trainer(tmp_path / "whole", half())
    whole.run()
    broken = trainer(tmp_path / "broken", half())
    kill_at(broken, 7)
    again = trainer(tmp_path / "broken", half())
    again.restore()
    again.run()
    assert weights(again) == weights(whole)
    full = trainer(tmp_path / "full", prepared(text))
    full.run()
    assert weights(full) != weights(whole), "bf16 is in use"


@pytest.mark.parametrize("set_by_user", [False, True])
def test_a_resumed_run_has_the_threads_of_its_start(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_by_user: bool
) -> None:
    monkeypatch.setattr("cse_cli.core.threads.schedulable_cores", lambda: 4)
    if not set_by_user:
        monkeypatch.delenv("OMP_NUM_THREADS")
    with torch_threads_restored():
        torch.set_num_threads(2)
        trainer(tmp_path / "run", prepared(text)).save()
        torch.set_num_threads(1)
        log = Recorded()
        trainer(tmp_path / "run", prepared(text), log).restore()
        assert torch.get_num_threads() == (1 if set_by_user else 2)
    assert ["from 2 to 1" in warning for warning in log.heard.warnings] == [True] * set_by_user


def trained(folder: str, text: str, stop: int | None) -> str:
    """Train 10 steps on one of several processes, in two parts if asked; return the digest of the weights."""

    def ready() -> Prepared:
        job = prepared(text, steps=10, checkpoint_every=3, evaluate_every=0)
        assert job.batches is not None
        return replace(job, batches=replace(job.batches, rank=rank(), world=world_size()))

    running = trainer(Path(folder), ready())
    if stop is not None:
        kill_at(running, stop)
        running = trainer(Path(folder), ready())
        running.restore()
    running.run()
    return weights(running)


@pytest.mark.process
def test_two_processes_resume_bit_identically(text: str, tmp_path: Path) -> None:
    whole = on_ranks(trained, str(tmp_path / "whole"), text, None)
    broken = on_ranks(trained, str(tmp_path / "broken"), text, 5)
    assert whole == broken
    assert whole[0] == whole[1]


def test_the_digest_sees_a_single_bit() -> None:
    weights = {"a": torch.ones(3), "b": torch.zeros(2, dtype=torch.int64)}
    changed = {**weights, "a": torch.tensor([1.0, 1.0, torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))])}
    assert state_digest(weights) == state_digest(dict(reversed(weights.items())))
    assert state_digest(weights) != state_digest(changed)


@pytest.mark.slow
def test_the_best_state_is_kept_and_the_earlier_in_a_tie(text: str, tmp_path: Path) -> None:
    peak = Peak()
    running = trainer(tmp_path / "run", prepared(text, peak))
    running.run()
    assert running.selection.curve == {0: 9.0, 5: 1.0, 10: 3.0, 15: 2.0, 20: 3.0}
    assert (running.selection.step, running.selection.score) == (10, 3.0)
    running.selection.restore(running.experiment.scored)
    peak(lambda _: running.experiment.scored.encode_for_eval(WordVocabulary().pad([[1, 2, 3]])))
    untrained, fifth, tenth = peak.seen[:3]
    encode_now = running.experiment.scored.encode_for_eval(WordVocabulary().pad(WordVocabulary().ids(["a b c"], 16)))
    torch.testing.assert_close(encode_now, tenth, rtol=0, atol=0)
    assert not torch.equal(untrained, tenth)
    assert not torch.equal(fifth, tenth)
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        "best-10.pt",
        "checkpoint-previous.pt",
        "checkpoint.pt",
    ]


@pytest.mark.slow
def test_the_untrained_state_is_selected_on_request(text: str, tmp_path: Path) -> None:
    running = trainer(tmp_path / "run", prepared(text, Peak(), untrained=True))
    before = {name: weight.clone() for name, weight in running.experiment.scored.state_dict().items()}
    running.run()
    assert (running.selection.step, running.selection.score) == (0, 9.0)
    running.selection.restore(running.experiment.scored)
    torch.testing.assert_close(dict(running.experiment.scored.state_dict()), before, rtol=0, atol=0)


@pytest.mark.slow
def test_evaluation_between_steps_changes_no_weight(text: str, tmp_path: Path) -> None:
    often = trainer(tmp_path / "often", prepared(text, evaluate_every=1))
    never = trainer(tmp_path / "never", prepared(text, evaluate_every=0))
    often.run()
    never.run()
    assert weights(often) == weights(never)
    assert len(often.selection.curve) == 21
    assert list(never.selection.curve) == [0, 20]


def test_a_nan_loss_stops_with_step_and_checkpoint(text: str, tmp_path: Path) -> None:
    running = trainer(tmp_path / "run", prepared(text))

    def poison() -> None:
        with torch.no_grad():
            running.experiment.scored.linear.weight.fill_(float("nan"))  # type: ignore[union-attr, operator]

    before_step(running, 7, poison)
    with pytest.raises(RunFailedError, match="the loss is nan at step 8") as caught:
        running.run()
    assert "view anchor: 0% finite" in caught.value.message
    assert "last good checkpoint: step 5" in caught.value.message
    assert caught.value.exit_code == 1


def test_weights_that_the_last_step_made_nan_are_not_saved(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No loss reads them. The score of an encoder with NaN embeddings would be 0 or that of other sentences."""
    running = trainer(tmp_path / "run", prepared(text, steps=3, evaluate_every=0))
    running.run()
    running.finish()
    monkeypatch.setattr(running.selection, "restore", lambda _: None)  # as without a metric
    with torch.no_grad():
        running.experiment.scored.linear.weight[0, 0] = float("nan")  # type: ignore[union-attr, operator, index]
    with pytest.raises(RunFailedError, match=r"'linear\.weight' of the selected state contain NaN") as caught:
        running.finish()
    assert caught.value.code == "training.weights_not_finite"


@pytest.mark.slow
def test_collapse_is_announced_once(text: str, tmp_path: Path) -> None:
    log = Recorded()
    job = prepared(text, collapse_cosine=0.01, steps=60)
    trainer(tmp_path / "run", job, log).run()
    assert len(log.heard.warnings) == 1
    assert "mean cosine between different sentences" in log.heard.warnings[0]
    assert sum(name == "health/collapse_alarm" for _, name in log.points) == 1


@pytest.mark.slow
def test_the_traceable_distance_is_recorded_once(text: str, tmp_path: Path) -> None:
    """A queue of 20 behind an encoder without momentum, 8 sentences a step."""
    log = Recorded()
    first = trainer(tmp_path / "run", prepared(text), log)
    first.run()
    assert first.measures == {"queue/traceable_distance": 2.5}
    assert [(step, value) for (step, name), value in log.points.items() if name in first.measures] == [(0, 2.5)]
    again = trainer(tmp_path / "run", prepared(text, steps=25), Recorded())
    again.restore()
    again.run()
    assert not any(name in first.measures for _, name in again.record.points)  # type: ignore[attr-defined]
    assert again.measures == first.measures


# Losses that are looked at late, as on a GPU.


def as_on_a_gpu(one: Trainer, bad: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the trainer believe that looking waits, and give it a loss that is NaN; return steps looked at."""
    looked: list[int] = []
    take: Callable[..., StepOutput] = one.stepper.take

    def taken(done: int, look: Any = None) -> StepOutput:
        one.compute = SimpleNamespace(device=SimpleNamespace(type="cuda"))  # type: ignore[assignment]
        if look is not None:
            looked.append(done + 1)
        found = take(done, look)
        return replace(found, loss=torch.tensor(torch.nan)) if done + 1 == bad else found

    monkeypatch.setattr(one.stepper, "take", taken)
    return looked


def test_nothing_is_written_after_a_loss_that_is_no_number(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trainer(tmp_path / "run", prepared(text, evaluate_every=0, checkpoint_every=5))
    looked = as_on_a_gpu(one, bad=3, monkeypatch=monkeypatch)
    with pytest.raises(RunFailedError, match="the loss is nan at step 3") as caught:
        one.run()
    assert looked == [1]
    assert one.progress.step == 5
    assert "last good checkpoint: step 0" in str(caught.value)
    assert checkpoint.load(tmp_path / "run" / checkpoint.FILE)["progress"]["step"] == 0


def test_a_record_looks_at_all_losses_since_the_last(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trainer(tmp_path / "run", prepared(text, evaluate_every=0))
    looked = as_on_a_gpu(one, bad=7, monkeypatch=monkeypatch)
    with pytest.raises(RunFailedError, match="at step 7"):
        one.run()
    assert looked == [1, LOG_EVERY]
    assert one.progress.step == LOG_EVERY - 1
