"""Training loop: steps, and between them metrics, dev scores and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cse_cli.core.distributed import gather_objects, run_on_rank0
from cse_cli.core.results import EarlyStop, Scores
from cse_cli.core.threads import resume_torch_threads
from cse_cli.evaluation.evaluate import evaluate, score
from cse_cli.runs.record import RunRecord
from cse_cli.runs.signals import stop_if_asked
from cse_cli.training import checkpoint
from cse_cli.training.build import Prepared
from cse_cli.training.checkpoint import Selection, check_replicas_equal
from cse_cli.training.health import CollapseAlarm, agreement, describe_view, loss_not_finite, traceable_distance
from cse_cli.training.method import StepState
from cse_cli.training.train_step import StepOutput, TrainStep
from registry.distributed import mean_devices, rank, world_size
from registry.errors import RunFailedError
from registry.resources.models import not_finite

LOG_EVERY = 10
"""Number of steps between logged metrics."""
OLDEST_CHECKPOINT = 300.0
"""Seconds after which a checkpoint is replaced at the next logged step, so that a stop loses little of slow steps."""


@dataclass
class Progress:
    """Progress of a training, as in a checkpoint.

    `seconds` is the wall time of steps and evaluations.
    """

    step: int = 0
    untrained: Scores = field(default_factory=dict)
    seconds: float = 0.0
    step_seconds: float = 0.0


class Trainer:
    """Training of one experiment.

    Several processes can train together. Each has its share of every batch, all have the same weights, and only rank 0
    writes and reports.
    """

    def __init__(self, prepared: Prepared, folder: Path, record: RunRecord) -> None:
        if prepared.batches is None:
            raise ValueError("a recipe without training has nothing to train")
        self.experiment = prepared.experiment
        self.settings = prepared.experiment.recipe.train
        self.total = prepared.steps
        self.seed = prepared.seed
        self.compute = compute = prepared.compute
        self.folder = folder
        self.record = record
        self.own_columns = prepared.own_columns
        self.method = self.experiment.method.to(compute.device)
        check_replicas_equal(self.method, 0)
        self.stepper = TrainStep(
            self.method, prepared.batches, self.settings, compute, self.seed, self.total, self._warn
        )
        self.progress = Progress()
        self.selection = Selection(folder)
        self.alarm = CollapseAlarm(self.settings.collapse_cosine)
        self.saved = 0
        self.saved_at = time.monotonic()
        self.unseen: list[StepOutput] = []
        self.last_state: str | None = None

    def run(self) -> None:
        """Train from the current step to the last one, or until `train.patience` is exhausted."""
        try:
            self.stepper.watch.start()
            if not run_on_rank0(lambda: bool(checkpoint.saved(self.folder))):
                # Dropout must not depend on the initialization of weights.
                torch.manual_seed(checkpoint.dropout_seed(self.seed, rank()))
                if self.measures:
                    self.record.metrics(self.measures, 0)
                self._evaluate()
                self.save()
            self.method.train()
            while self.progress.step < self.total and self.early_stop is None:
                stop_if_asked()
                began, done = time.perf_counter(), self.progress.step
                logging = (done + 1) % LOG_EVERY == 0 or done == 0 or done + 1 == self.total
                # Reading the loss would make a GPU wait.
                look = self._check_loss if self.compute.device.type == "cpu" or logging else None
                taken = self.stepper.take(done, look)
                if look is None:
                    self.unseen.append(taken)
                self.progress.step += 1
                took = time.perf_counter() - began
                self.progress.seconds += took
                self.progress.step_seconds += took
                if logging:
                    self._record(taken)
                self._evaluate_and_save()
            if (end := self.early_stop) is not None:
                self.record.event("halted", reason=end.text)
        finally:
            self.stepper.close()

    @property
    def early_stop(self) -> EarlyStop | None:
        """Early end of the training, or None. It follows from the curve in the checkpoint, equal on every process."""
        patience, metric = self.settings.patience, self.experiment.recipe.evaluate.metric_for_best_model
        waited = self.selection.evaluations_since_best
        if patience is None or metric is None or waited < patience or self.progress.step == self.total:
            return None
        return EarlyStop(step=self.progress.step, best_step=self.selection.step, evaluations=waited, metric=metric)

    def finish(self) -> None:
        """Record the digest of the last weights, then restore the best state."""
        self.last_state = run_on_rank0(lambda: checkpoint.state_digest(checkpoint.method_state(self.method)))
        self.selection.restore(self.experiment.scored)
        if (weights := not_finite(self.experiment.scored)) is not None:
            raise RunFailedError(
                f"the weights '{weights}' of the selected state contain NaN or infinity",
                "lower train.learning_rate, or use precision = 'fp32'",
                code="training.weights_not_finite",
            )

    @property
    def measures(self) -> dict[str, float]:
        """Metrics of the method that are known before its first step."""
        queue = self.method.queue
        if queue is None:
            return {}
        encoder = self.method.encoder(self.method.views[queue.view].encoder)
        distance = traceable_distance(encoder, queue, self.settings.batch_size)
        return {} if distance is None else {"queue/traceable_distance": distance}

    # --- checkpoints ---

    def save(self) -> None:
        """Write a checkpoint. Metrics up to this step are recorded first."""
        check_replicas_equal(self.method, self.progress.step)
        randoms = gather_objects(checkpoint.random_state())
        run_on_rank0(lambda: self._write(randoms))
        self.saved, self.saved_at = self.progress.step, time.monotonic()
        self.stepper.watch.mark("other")

    def _write(self, randoms: list[dict[str, Any]]) -> None:
        self.record.sync()
        checkpoint.write(
            self.folder / checkpoint.FILE,
            {
                "run": self.folder.name,
                "method": checkpoint.method_state(self.method),
                **self.stepper.state(),
                "threads": torch.get_num_threads(),
                "random": randoms[0],
                "random_of_others": randoms[1:],
                "progress": asdict(self.progress),
                "selection": {k: getattr(self.selection, k) for k in ("step", "score", "curve")},
                "alarm": asdict(self.alarm),
            },
            keep=self.folder / checkpoint.PREVIOUS,
        )
        self.selection.delete_others()
        self.record.checkpoint(self.progress.step)

    def restore(self) -> None:
        """Restore the last checkpoint. The training continues bit-identically with the same number of processes."""
        file = run_on_rank0(lambda: checkpoint.choose(self.folder, self.method, self._warn))
        state = checkpoint.load(file)
        checkpoint.load_method_state(self.method, state["method"])
        self.progress = Progress(**state["progress"])
        self.selection = Selection(self.folder, **state["selection"], before=state["selection"]["step"])
        self.alarm = CollapseAlarm(**state["alarm"])
        self.saved = self.progress.step
        self.stepper.load_state(state)
        states = [state["random"], *state["random_of_others"]]
        if rank() < len(states):
            checkpoint.set_random_state(states[rank()])
        else:
            torch.manual_seed(checkpoint.dropout_seed(self.seed, rank(), self.progress.step))
        if len(states) != world_size():
            self._warn(
                f"the number of processes changed from {len(states)} to {world_size()}. Batches stay the same, but "
                "dropout now differs from that of an uninterrupted run"
            )
        recorded = state["threads"]
        if self.compute.device.type == "cpu" and (now := resume_torch_threads(recorded)) != recorded:
            self._warn(
                f"the number of threads changed from {recorded} to {now}. The last digits of weights can differ from "
                "those of an uninterrupted run"
            )
        check_replicas_equal(self.method, self.progress.step)

    # --- between the steps ---

    def _evaluate_and_save(self) -> None:
        evaluates = self._is_due(self.settings.evaluate_every)
        saves = self._is_due(self.settings.checkpoint_every or self.settings.evaluate_every)
        if not saves and not self.settings.checkpoint_every and self.progress.step % LOG_EVERY == 0:
            saves = run_on_rank0(lambda: time.monotonic() - self.saved_at > OLDEST_CHECKPOINT)  # equal on all processes
        if evaluates or saves:
            self._check_unseen_losses()
        if evaluates:
            self._evaluate()
        if saves or self.early_stop is not None:
            self.save()

    def _is_due(self, every: int) -> bool:
        return self.progress.step == self.total or (every > 0 and self.progress.step % every == 0)

    def _record(self, taken: StepOutput) -> None:
        """Log the losses, health metrics and recent throughput of a step."""
        vectors = {name: taken.step.sentences(name) for name in taken.step.views}
        indicators, warning = self.alarm.check(next(iter(vectors.values())))
        own = {
            "train/loss": taken.loss.item(),
            **{f"loss/{label}": value.item() for label, value in taken.losses.items()},
            **{f"{place}/{k}": v for place, part in self.method.components() for k, v in part.report().items()},
        }
        each = gather_objects(own)
        if len(each) > 1:  # the mean over the processes that report a metric
            own = {key: sum(of[key] for of in each if key in of) / sum(key in of for of in each) for key in each[0]}
        values = {
            **own,
            "train/learning_rate": taken.learning_rate,
            "train/gradient_norm": taken.norm.item(),
            **indicators,
            **agreement(vectors),
            **self.stepper.watch.recent(),
        }
        run_on_rank0(lambda: self._report(values, warning))
        self.stepper.watch.mark("other")

    def _report(self, values: Mapping[str, float], warning: str | None) -> None:
        rate = self.progress.step * self.settings.batch_size / self.progress.step_seconds
        self.record.metrics({**values, "speed/sentences_per_second": rate}, self.progress.step)
        for _, component in self.method.components():
            for notice in component.notices():
                self._warn(notice)
        if warning is not None:
            self.record.metrics({"health/collapse_alarm": 1.0}, self.progress.step)
            if self.record.is_trial:  # collapsed embeddings do not recover
                raise RunFailedError(f"step {self.progress.step}: {warning.partition(';')[0]}", code="tune.collapsed")
            self._warn(f"step {self.progress.step}: {warning}")
        self.record.stop_if_requested()

    def _evaluate(self) -> None:
        """Score the dev evaluator that selects, also for the untrained state."""
        settings, at, one = self.experiment.recipe.evaluate, self.progress.step, self.experiment
        everything, metric = at == 0 and settings.eval_on_start, settings.metric_for_best_model
        if metric is None and not everything:
            return
        began = time.perf_counter()
        only = [] if everything or metric is None else [metric.rpartition(".")[0]]
        scores = evaluate(
            one.scored if everything else one.selecting, one.evaluators, settings, self.compute, only, one.specs,
            show=lambda name, share: self.record.progress(f"scoring {name}", share, 1),
            columns=self.own_columns,
        )  # fmt: skip
        if at == 0:
            self.progress.untrained = scores
        if metric is not None:
            value, (name, _, selecting) = score(scores, metric), metric.rpartition(".")
            self.selection.curve[at] = value
            best = (at > 0 or settings.select_untrained is True) and self.selection.offer(at, value, one.scored)
            shown = {selecting, *one.evaluators[name].shown_metrics()}
            # Without the name of the evaluator, so that all recipes log the same curve.
            self.record.metrics({f"dev/{key}": v for key, v in scores[name].items() if key in shown}, at)
            run_on_rank0(lambda: self.record.evaluated(at, {metric: value}, best))
        self.progress.seconds += time.perf_counter() - began
        self.stepper.watch.mark("evaluation")

    def _warn(self, text: str) -> None:
        self.record.event("warning", text=text)

    # --- losses that are NaN or infinite ---

    def _check_unseen_losses(self) -> None:
        """Check the losses that were not read yet: on a GPU, those since the last logged metrics."""
        if not self.unseen:
            return
        unseen, self.unseen = self.unseen, []
        values = mean_devices(torch.stack([taken.loss for taken in unseen])).tolist()
        wrong = next((place for place, value in enumerate(values) if not math.isfinite(value)), None)
        if wrong is not None:
            at = self.progress.step - len(unseen) + wrong + 1
            raise self._failure(values[wrong], at, unseen[wrong].losses)

    def _check_loss(self, loss: Tensor, losses: Mapping[str, Tensor], step: StepState) -> None:
        self._check_unseen_losses()
        whole = mean_devices(loss)  # equal on all processes, so that all stop
        if not torch.isfinite(whole):
            views = [describe_view(name, step.sentences(name)) for name in step.views]
            raise self._failure(whole.item(), self.progress.step + 1, losses, views)

    def _failure(self, total: float, at: int, losses: Mapping[str, Tensor], views: Sequence[str] = ()) -> Exception:
        """Return the error for an objective that is not finite at a step, with each of its losses."""
        values = {label: mean_devices(loss.detach()).item() for label, loss in losses.items()}
        saved = f"  last good checkpoint: step {self.saved}, {self.folder / checkpoint.FILE}"
        return loss_not_finite(total, at, values, [*views, saved])
