"""The training loop: batch → losses → backward → optimiser → components' hooks, with scores and checkpoints between."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cse_cli.evaluation import evaluate, score
from cse_cli.job import Prepared
from cse_cli.observer import Observer
from cse_cli.results import Scores
from cse_cli.step import StepState
from cse_cli.tracking import Tracker, stop_if_asked
from cse_cli.training import checkpoint
from cse_cli.training.health import CollapseAlarm, agreement, describe_views, traceable_distance
from cse_cli.training.selection import Selection
from cse_cli.training.stepper import Stepper, Taken
from registry.errors import RunFailedError

LOG_EVERY = 10
"""Steps between logged metrics."""


@dataclass
class Progress:
    """How far a training has come: what a checkpoint keeps beside tensors.

    Args:
        seconds: Wall time of steps and evaluations.
        step_seconds: Wall time of steps alone.
    """

    step: int = 0
    untrained: Scores = field(default_factory=dict)
    seconds: float = 0.0
    step_seconds: float = 0.0


class Trainer:
    """Trains one experiment; its best state can then be restored from `selection`.

    Args:
        prepared: What to train; moved to its device.
        folder: Where checkpoints and states are kept.
        tracker: Receives metrics.
        observer: Hears of progress.

    Raises:
        ValueError: The job has no training.
    """

    def __init__(self, prepared: Prepared, folder: Path, tracker: Tracker, observer: Observer) -> None:
        if prepared.batches is None:
            raise ValueError("a recipe without training has nothing to train")
        self.experiment = prepared.experiment
        self.settings = prepared.experiment.recipe.train
        self.total = prepared.steps
        self.seed = prepared.job.seed
        self.compute = compute = prepared.compute
        self.folder = folder
        self.tracker = tracker
        self.observer = observer
        self.method = self.experiment.method.to(compute.device)
        self.stepper = Stepper(self.method, prepared.batches, self.settings, compute, self.seed, self.total)
        self.progress = Progress()
        self.selection = Selection(folder)
        self.alarm = CollapseAlarm(self.settings.collapse_cosine)
        self.last_state: str | None = None

    def run(self) -> None:
        """Train from wherever the checkpoint stands to the end, then restore the best state.

        Raises:
            RunFailedError: The loss is not a number.
        """
        if not (self.folder / checkpoint.FILE).exists():
            # Dropout must not depend on how weights were initialised.
            torch.manual_seed(self.seed)
            if self.measures:
                self.tracker.metrics(self.measures, 0)
            self._evaluate()
            self.save()
        self.method.train()
        while self.progress.step < self.total:
            stop_if_asked()
            self._step()
            if self._due(self.settings.evaluate_every):
                self._evaluate()
            if self._due(self.settings.checkpoint_every or self.settings.evaluate_every):
                self.save()

    @property
    def measures(self) -> dict[str, float]:
        """What is known of the method before its first step."""
        queue = self.method.queue
        if queue is None:
            return {}
        encoder = self.method.encoder(self.method.views[queue.view].encoder)
        distance = traceable_distance(encoder, queue, self.settings.batch_size)
        return {} if distance is None else {"queue/traceable_distance": distance}

    def save(self) -> None:
        """Write a checkpoint of everything the next step depends on; metrics up to it are recorded first."""
        self.tracker.flush()
        checkpoint.write(
            self.folder / checkpoint.FILE,
            {
                "method": checkpoint.method_state(self.method),
                **self.stepper.state(),
                "random": checkpoint.random_state(),
                "progress": asdict(self.progress),
                "selection": {k: getattr(self.selection, k) for k in ("step", "score", "curve")},
                "alarm": asdict(self.alarm),
            },
        )
        self.selection.tidy()

    def restore(self) -> None:
        """Go back to the last checkpoint, bit for bit."""
        state = checkpoint.read(self.folder / checkpoint.FILE)
        checkpoint.load_method_state(self.method, state["method"])
        self.stepper.load_state(state)
        self.progress = Progress(**state["progress"])
        self.selection = Selection(self.folder, **state["selection"])
        self.alarm = CollapseAlarm(**state["alarm"])
        checkpoint.set_random_state(state["random"])

    def _step(self) -> None:
        began, done = time.perf_counter(), self.progress.step
        logging = (done + 1) % LOG_EVERY == 0 or done == 0 or done + 1 == self.total
        # On a GPU, looking at the value waits for it.
        look = self._demand_a_number if self.compute.device.type == "cpu" or logging else None
        taken = self.stepper.take(done, look)
        self.progress.step += 1
        self._count(began, stepping=True)
        if logging:
            self._report(taken)

    def _report(self, taken: Taken) -> None:
        step, loss = taken.step, taken.loss.item()
        indicators, warning = self.alarm.check(next(iter(step.views.values())).sentence)
        rate = self.progress.step * self.settings.batch_size / self.progress.step_seconds
        self.tracker.metrics(
            {
                "train/loss": loss,
                **{f"loss/{label}": value.item() for label, value in taken.losses.items()},
                "train/learning_rate": taken.learning_rate,
                "train/gradient_norm": taken.norm.item(),
                **indicators,
                **agreement(step.views),
                **{f"{place}/{k}": v for place, part in self.method.components() for k, v in part.report().items()},
            },
            self.progress.step,
        )
        self.observer.stepped(self.progress.step, loss, rate)
        for _, component in self.method.components():
            for notice in component.notices():
                self.observer.warned(notice)
        if warning is not None:
            self.tracker.metrics({"health/collapse_alarm": 1.0}, self.progress.step)
            self.observer.collapsed(f"step {self.progress.step}: {warning}")

    def _evaluate(self) -> None:
        """Score the dev evaluator that selects; the untrained state is scored but never selected."""
        settings, at = self.experiment.recipe.evaluate, self.progress.step
        everything = at == 0 and settings.untrained
        if settings.select is None and not everything:
            return
        began = time.perf_counter()
        wanted = [] if everything or settings.select is None else [settings.select.rpartition(".")[0]]
        one = self.experiment
        scores = evaluate(one.scored, one.evaluators, settings, self.compute, wanted, one.plans)
        if at == 0:
            self.progress.untrained = scores
        if settings.select is not None:
            self._offer(scores, settings.select)
        self._count(began, stepping=False)

    def _offer(self, scores: Scores, select: str) -> None:
        name, at, value = select.rpartition(".")[0], self.progress.step, score(scores, select)
        if at == 0:
            self.selection.curve[0] = value
        best = at > 0 and self.selection.offer(at, value, self.experiment.scored)
        self.tracker.metrics({f"dev/{name}.{metric}": v for metric, v in scores[name].items()}, at)
        self.observer.evaluated(at, {select: value}, best)

    def _due(self, every: int) -> bool:
        return self.progress.step == self.total or (every > 0 and self.progress.step % every == 0)

    def _count(self, began: float, *, stepping: bool) -> None:
        took = time.perf_counter() - began
        self.progress.seconds += took
        self.progress.step_seconds += took if stepping else 0.0

    def _demand_a_number(self, loss: Tensor, step: StepState) -> None:
        if torch.isfinite(loss):
            return
        last = checkpoint.read(self.folder / checkpoint.FILE)["progress"]["step"]
        raise RunFailedError(
            f"the loss is {loss.item()} at step {self.progress.step + 1}\n{describe_views(step.views)}\n"
            f"  last good checkpoint: step {last}, {self.folder / checkpoint.FILE}",
            "lower train.learning_rate, raise the temperature, or use precision = 'fp32'",
        )


def state_digest(state: dict[str, Any]) -> str:
    """Return a digest of weights: equal exactly when every bit of every tensor is."""
    import hashlib

    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(key.encode())
        digest.update(state[key].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
