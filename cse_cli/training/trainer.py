"""The training loop: steps, and between them records, scores of the dev set and checkpoints.

A step: batch → losses → backward → clipped update → components' hooks.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from cse_cli.core.console import Observer
from cse_cli.core.devices import Compute
from cse_cli.core.distributed import gather_objects, run_on_rank0
from cse_cli.core.results import Scores
from cse_cli.data.batches import BatchSource, Feed
from cse_cli.evaluation.evaluate import evaluate, score
from cse_cli.recipe.schema import Train
from cse_cli.runs.record import RunRecord
from cse_cli.runs.signals import stop_if_asked
from cse_cli.training import checkpoint
from cse_cli.training.build import Prepared
from cse_cli.training.checkpoint import Selection, check_replicas_equal
from cse_cli.training.health import CollapseAlarm, agreement, describe_views, traceable_distance
from cse_cli.training.method import Method
from cse_cli.training.optimizer import compile_blocks, learning_rate, make_optimizer, set_learning_rate
from cse_cli.training.step import StepState
from cse_cli.training.timing import Stopwatch
from registry.distributed import mean_devices, rank, world_size
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
    """Trains one experiment.

    Several processes train it together: each has its share of every batch, all hold the same weights, and the first
    one alone writes and reports.

    Args:
        prepared: What to train; moved to its device.
        folder: Where checkpoints and states are kept.
        record: Record of the run.
        observer: Receives the progress.

    Raises:
        ValueError: The job has no training.
    """

    def __init__(self, prepared: Prepared, folder: Path, record: RunRecord, observer: Observer) -> None:
        if prepared.batches is None:
            raise ValueError("a recipe without training has nothing to train")
        self.experiment = prepared.experiment
        self.settings = prepared.experiment.recipe.train
        self.total = prepared.steps
        self.seed = prepared.job.seed
        self.compute = compute = prepared.compute
        self.folder = folder
        self.record = record
        self.observer = observer
        self.method = self.experiment.method.to(compute.device)
        check_replicas_equal(self.method, 0)
        self.stepper = Stepper(
            self.method, prepared.batches, self.settings, compute, self.seed, self.total, observer.warned
        )
        self.progress = Progress()
        self.selection = Selection(folder)
        self.alarm = CollapseAlarm(self.settings.collapse_cosine)
        self.saved = 0
        self.unseen: list[Tensor] = []
        self.last_state: str | None = None

    def run(self) -> None:
        """Train from wherever the checkpoint stands to the end.

        Raises:
            RunFailedError: The loss is NaN or infinite.
        """
        try:
            self.stepper.watch.clock.start()
            if not run_on_rank0(lambda: bool(checkpoint.saved(self.folder))):
                self._begin()
            self.method.train()
            while self.progress.step < self.total:
                stop_if_asked()
                began, done = time.perf_counter(), self.progress.step
                logging = (done + 1) % LOG_EVERY == 0 or done == 0 or done + 1 == self.total
                # On a GPU, looking at the loss waits for it.
                look = self._check_loss if self.compute.device.type == "cpu" or logging else None
                taken = self.stepper.take(done, look)
                if look is None:
                    self.unseen.append(taken.loss)
                self.progress.step += 1
                self._count_time(began, stepping=True)
                if logging:
                    self._record(taken)
                self._evaluate_and_save()
        finally:
            self.stepper.close()

    def finish(self) -> None:
        """Note what the last weights are, then put the best state back."""
        self.last_state = run_on_rank0(lambda: state_digest(checkpoint.method_state(self.method)))
        self.selection.restore(self.experiment.scored)

    @property
    def measures(self) -> dict[str, float]:
        """What is known of the method before its first step."""
        queue = self.method.queue
        if queue is None:
            return {}
        encoder = self.method.encoder(self.method.views[queue.view].encoder)
        distance = traceable_distance(encoder, queue, self.settings.batch_size)
        return {} if distance is None else {"queue/traceable_distance": distance}

    # --- checkpoints ---

    def save(self) -> None:
        """Write a checkpoint of everything the next step depends on; metrics up to it are recorded first."""
        check_replicas_equal(self.method, self.progress.step)
        each = gather_objects((checkpoint.random_state(), self.stepper.data_state))
        run_on_rank0(lambda: self._write([random for random, _ in each], [data for _, data in each]))
        self.saved = self.progress.step
        self.stepper.watch.clock.mark("other")

    def _write(self, randoms: list[dict[str, Any]], data: list[Any]) -> None:
        self.record.sync()
        checkpoint.write(
            self.folder / checkpoint.FILE,
            {
                "run": self.folder.name,
                "method": checkpoint.method_state(self.method),
                **self.stepper.state(),
                "random": randoms[0],
                "random_of_others": randoms[1:],
                "data": data,
                "progress": asdict(self.progress),
                "selection": {k: getattr(self.selection, k) for k in ("step", "score", "curve")},
                "alarm": asdict(self.alarm),
            },
            keep=self.folder / checkpoint.PREVIOUS,
        )
        self.selection.delete_others()
        self.record.checkpoint(self.progress.step)

    def restore(self) -> None:
        """Go back to the last checkpoint: bit for bit where as many processes go on as wrote it.

        Raises:
            CseError: There is none that can be used.
        """
        file = run_on_rank0(lambda: checkpoint.choose(self.folder, self.method, self.observer.warned))
        state = checkpoint.load(file)
        checkpoint.load_method_state(self.method, state["method"])
        self.progress = Progress(**state["progress"])
        self.selection = Selection(self.folder, **state["selection"], before=state["selection"]["step"])
        self.alarm = CollapseAlarm(**state["alarm"])
        self.saved = self.progress.step
        self.stepper.load_state(state, self.progress.step)
        self._restore_random([state["random"], *state.get("random_of_others", [])])
        check_replicas_equal(self.method, self.progress.step)

    def _restore_random(self, states: list[dict[str, Any]]) -> None:
        if rank() < len(states):
            checkpoint.set_random_state(states[rank()])
        else:
            torch.manual_seed(checkpoint.dropout_seed(self.seed, rank(), self.progress.step))
        if len(states) != world_size():
            self.observer.warned(
                f"the number of processes changes from {len(states)} to {world_size()}: batches stay as they are, "
                "but dropout differs from here on from what an unbroken run draws"
            )

    # --- between the steps ---

    def _begin(self) -> None:
        # Dropout must not depend on how weights were initialised.
        torch.manual_seed(checkpoint.dropout_seed(self.seed, rank()))
        if self.measures:
            self.record.metrics(self.measures, 0)
        self._evaluate()
        self.save()

    def _evaluate_and_save(self) -> None:
        if self._is_due(self.settings.evaluate_every) or self._is_due(self.settings.checkpoint_every):
            self._check_unseen_losses()  # before anything is scored or written
        if self._is_due(self.settings.evaluate_every):
            self._evaluate()
        if self._is_due(self.settings.checkpoint_every or self.settings.evaluate_every):
            self.save()

    def _is_due(self, every: int) -> bool:
        return self.progress.step == self.total or (every > 0 and self.progress.step % every == 0)

    def _count_time(self, began: float, *, stepping: bool) -> None:
        took = time.perf_counter() - began
        self.progress.seconds += took
        self.progress.step_seconds += took if stepping else 0.0

    def _record(self, taken: Taken) -> None:
        """Record a step's losses, its health and the speed of late."""
        vectors = {name: taken.step.sentences(name) for name in taken.step.views}
        indicators, warning = self.alarm.check(next(iter(vectors.values())))
        own = {
            "train/loss": taken.loss.item(),
            **{f"loss/{label}": value.item() for label, value in taken.losses.items()},
            **{f"{place}/{k}": v for place, part in self.method.components() for k, v in part.report().items()},
        }
        values = {
            **_mean_of_processes(gather_objects(own)),
            "train/learning_rate": taken.learning_rate,
            "train/gradient_norm": taken.norm.item(),
            **indicators,
            **agreement(vectors),
            **self.stepper.watch.recent(),
        }
        run_on_rank0(lambda: self._report(values, warning))
        self.stepper.watch.clock.mark("other")

    def _report(self, values: Mapping[str, float], warning: str | None) -> None:
        rate = self.progress.step * self.settings.batch_size / self.progress.step_seconds
        self.record.metrics(values, self.progress.step)
        self.observer.stepped(self.progress.step, values["train/loss"], rate)
        for _, component in self.method.components():
            for notice in component.notices():
                self.observer.warned(notice)
        if warning is not None:
            self.record.metrics({"health/collapse_alarm": 1.0}, self.progress.step)
            self.observer.collapsed(f"step {self.progress.step}: {warning}")

    def _evaluate(self) -> None:
        """Score the dev evaluator that selects; the untrained state is scored but never selected."""
        settings, at, one = self.experiment.recipe.evaluate, self.progress.step, self.experiment
        everything = at == 0 and settings.untrained
        if settings.select is None and not everything:
            return
        began = time.perf_counter()
        only = [] if everything or settings.select is None else [settings.select.rpartition(".")[0]]
        scores = evaluate(
            one.scored, one.evaluators, settings, self.compute, only, one.plans,
            show=lambda name, share: self.observer.scoring(f"scoring {name}", share),
        )  # fmt: skip
        if at == 0:
            self.progress.untrained = scores
        if settings.select is not None:
            self._select(scores, settings.select)
        self._count_time(began, stepping=False)
        self.stepper.watch.clock.mark("evaluation")

    def _select(self, scores: Scores, select: str) -> None:
        at, value = self.progress.step, score(scores, select)
        name, _, selecting = select.rpartition(".")
        if at == 0:
            self.selection.curve[0] = value
        best = at > 0 and self.selection.offer(at, value, self.experiment.scored)
        shown = {selecting, *self.experiment.evaluators[name].shown_metrics()}
        # Without the evaluator's name: one curve, whatever the recipe calls its dev set.
        self.record.metrics({f"dev/{metric}": v for metric, v in scores[name].items() if metric in shown}, at)
        self.record.evaluated(at, {select: value}, best)
        run_on_rank0(lambda: self.observer.evaluated(at, {select: value}, best))

    # --- losses that are NaN or infinite ---

    def _check_unseen_losses(self) -> None:
        """Look at the losses of steps that were not looked at: on a GPU, those since the last record."""
        if not self.unseen:
            return
        losses, self.unseen = self.unseen, []
        values = mean_devices(torch.stack(losses)).tolist()
        wrong = next((place for place, value in enumerate(values) if not math.isfinite(value)), None)
        if wrong is not None:
            at = self.progress.step - len(losses) + wrong + 1
            raise self._failure(f"the loss is {values[wrong]} at step {at}")

    def _check_loss(self, loss: Tensor, step: StepState) -> None:
        self._check_unseen_losses()
        whole = mean_devices(loss)  # the same on all processes, so that all stop here
        if torch.isfinite(whole):
            return
        vectors = {name: step.sentences(name) for name in step.views}
        raise self._failure(f"the loss is {whole.item()} at step {self.progress.step + 1}\n{describe_views(vectors)}")

    def _failure(self, what: str) -> RunFailedError:
        return RunFailedError(
            f"{what}\n  last good checkpoint: step {self.saved}, {self.folder / checkpoint.FILE}",
            "lower train.learning_rate, raise the temperature, or use precision = 'fp32'",
        )


def _mean_of_processes(each: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean over processes of what each one reports of its share of the batch."""
    if len(each) == 1:
        return each[0]
    return {name: sum(of[name] for of in each if name in of) / sum(name in of for of in each) for name in each[0]}


def state_digest(state: dict[str, Any]) -> str:
    """Return a digest of weights: equal exactly when every bit of every tensor is."""
    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(key.encode())
        digest.update(state[key].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


# --- one step ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """A step that was taken; its numbers are still on the device.

    Args:
        step: Its views and what they became.
        loss: The objective.
        losses: Label → loss, unweighted.
        norm: Length of the gradient before clipping.
        learning_rate: Of the update.
    """

    step: StepState
    loss: Tensor
    losses: Mapping[str, Tensor]
    norm: Tensor
    learning_rate: float


class Stepper:
    """Takes the steps of one training; what the next one depends on, beside the method, is its `state`.

    Args:
        method: On its device already.
        batches: Training batches of this process.
        settings: Optimiser, schedule, clipping.
        compute: Device and precision.
        seed: Of the stream that augmenters and queues draw from.
        total: Steps of the whole training.
        warn: Called with what a person should know, such as that nothing could be compiled.
    """

    def __init__(
        self,
        method: Method,
        batches: BatchSource[Any],
        settings: Train,
        compute: Compute,
        seed: int,
        total: int,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.method = method
        self.batches = batches
        self.settings = settings
        self.compute = compute
        self.total = total
        self.optimizer = make_optimizer(method, settings)
        self.scaler = torch.amp.GradScaler(compute.device.type, enabled=compute.precision == "fp16")
        self.generator = torch.Generator().manual_seed(seed)
        self.forward = parallel(method)
        self.watch = Stopwatch(method, compute)
        self.feed = Feed(batches.batch, total, compute.device, state=batches.state)
        self.data_state = batches.state()
        self.compiled = compile_blocks(method, settings, compute, (total, batches.max_length), warn)

    def take(self, done: int, look: Callable[[Tensor, StepState], None] | None = None) -> Taken:
        """Take the step after `done` others; `look` sees the objective before anything is changed by it."""
        rate = learning_rate(self.settings, done, self.total)
        set_learning_rate(self.optimizer, rate)
        ready, clock = self.feed.take(done), self.watch.clock
        self.data_state = ready.state
        self.watch.count(ready.sizes)
        batch = {view: tokens.to(self.compute.device) for view, tokens in ready.batch.items()}
        clock.mark("data")
        if self.compiled is not None:
            self.compiled.begin_step()
        step = StepState(self.method, batch, done, self.total, self.generator)
        with self.compute.autocast():
            losses = self.forward(step)
        loss = self.method.objective(losses, step)
        if look is not None:
            look(loss, step)
        clock.mark("forward")
        torch.autograd.backward(self.scaler.scale(loss))
        clock.mark("backward")
        norm = self._update()
        for _, component in self.method.components():
            component.after_step(step)
        clock.mark("optimiser")
        return Taken(step, loss.detach(), {k: v.detach() for k, v in losses.items()}, norm, rate)

    def _update(self) -> Tensor:
        self.scaler.unscale_(self.optimizer)
        weights = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(weights, self.settings.clip_norm or float("inf"))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it, beside `data_state`, which is each process's own."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "generator": self.generator.get_state(),
            "watch": self.watch.state(),
        }

    def load_state(self, state: Mapping[str, Any], done: int = 0) -> None:
        """Go on after `done` steps from `state`; its "data" is the `data_state` of each process, by rank."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.generator.set_state(state["generator"])
        if "watch" in state:
            self.watch.load_state(state["watch"])
        self.batches.load_state(done, state.get("data", []))
        self.data_state = self.batches.state()

    def close(self) -> None:
        """End the thread that makes batches."""
        self.feed.close()


def parallel(method: Method) -> Callable[[StepState], dict[str, Tensor]]:
    """Return what a training step calls instead of the method; on one process the method itself.

    On several, gradients are averaged over them while they are still being computed. Probes go on calling the bare
    method: their gradients are not the parameters'. Buffers are left to each component, and weights without a gradient,
    which differ by method, are looked for at every step.
    """
    if world_size() == 1:
        return method
    known = inspect.signature(DistributedDataParallel).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # newer torch, older
    options: dict[str, Any] = {"find_unused_parameters": True, "gradient_as_bucket_view": True, buffers: False}
    return DistributedDataParallel(method, **options)
