"""The training loop: batch → losses → backward → optimiser → components' hooks, with scores and checkpoints between.

One optimiser step: batch → losses → backward → clipped update → components' hooks.

The forward pass whose gradients are averaged over processes while they are still being computed.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from cse_cli.core.console import Observer
from cse_cli.core.devices import Compute
from cse_cli.core.distributed import from_all, from_first
from cse_cli.core.results import Scores
from cse_cli.data.batches import Batches, Feed
from cse_cli.data.stream import Stream
from cse_cli.evaluation.evaluate import evaluate, score
from cse_cli.recipe.schema import Train
from cse_cli.tracking import Tracker, stop_if_asked
from cse_cli.training import checkpoint
from cse_cli.training.build import Prepared
from cse_cli.training.checkpoint import Selection, demand_alike
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
    """Trains one experiment; its best state can then be restored from `selection`.

    Several processes train it together: each has its share of every batch, all hold the same weights, and the first
    one alone writes and tells.

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
        demand_alike(self.method, 0)
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
        """Train from wherever the checkpoint stands to the end, then restore the best state.

        Raises:
            RunFailedError: The loss is not a number.
        """
        try:
            self._run()
        finally:
            self.stepper.close()

    def _run(self) -> None:
        self.stepper.watch.clock.start()
        if not from_first((self.folder / checkpoint.FILE).exists):
            # Dropout must not depend on how weights were initialised.
            torch.manual_seed(checkpoint.stream(self.seed, rank()))
            if self.measures:
                self.tracker.metrics(self.measures, 0)
            self._evaluate()
            self.save()
        self.method.train()
        while self.progress.step < self.total:
            stop_if_asked()
            self._step()
            if self._due(self.settings.evaluate_every) or self._due(self.settings.checkpoint_every):
                self._demand_numbers()  # before anything is scored or written
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
        demand_alike(self.method, self.progress.step)
        each = from_all((checkpoint.random_state(), self.stepper.place))
        from_first(lambda: self._write([random for random, _ in each], [place for _, place in each]))
        self.saved = self.progress.step
        self.stepper.watch.clock.mark("other")

    def _write(self, randoms: list[dict[str, Any]], places: list[Any]) -> None:
        self.tracker.flush()
        checkpoint.write(
            self.folder / checkpoint.FILE,
            {
                "method": checkpoint.method_state(self.method),
                **self.stepper.state(),
                "random": randoms[0],
                "random_of_others": randoms[1:],
                "data": places,
                "progress": asdict(self.progress),
                "selection": {k: getattr(self.selection, k) for k in ("step", "score", "curve")},
                "alarm": asdict(self.alarm),
            },
        )
        self.selection.tidy()

    def restore(self) -> None:
        """Go back to the last checkpoint: bit for bit where as many processes go on as wrote it."""
        state = checkpoint.read(self.folder / checkpoint.FILE)
        checkpoint.load_method_state(self.method, state["method"])
        self.stepper.load_state(state)
        self.progress = Progress(**state["progress"])
        self.selection = Selection(self.folder, **state["selection"])
        self.alarm = CollapseAlarm(**state["alarm"])
        self.saved = self.progress.step
        self.stepper.load_places(self.progress.step, state.get("data", []))
        self._restore_random([state["random"], *state.get("random_of_others", [])])
        demand_alike(self.method, self.progress.step)

    def _restore_random(self, states: list[dict[str, Any]]) -> None:
        if rank() < len(states):
            checkpoint.set_random_state(states[rank()])
        else:
            torch.manual_seed(checkpoint.stream(self.seed, rank(), self.progress.step))
        if len(states) != world_size():
            self.observer.warned(
                f"the number of processes changes from {len(states)} to {world_size()}: batches stay as they are, "
                "but dropout differs from here on from what an unbroken run draws"
            )

    def _step(self) -> None:
        began, done = time.perf_counter(), self.progress.step
        logging = (done + 1) % LOG_EVERY == 0 or done == 0 or done + 1 == self.total
        # On a GPU, looking at the value waits for it.
        look = self._demand_a_number if self.compute.device.type == "cpu" or logging else None
        taken = self.stepper.take(done, look)
        if look is None:
            self.unseen.append(taken.loss)
        self.progress.step += 1
        self._count(began, stepping=True)
        if logging:
            self._report(taken)
            self.stepper.watch.clock.mark("other")

    def _report(self, taken: Taken) -> None:
        vectors = {name: taken.step.sentences(name) for name in taken.step.views}
        indicators, warning = self.alarm.check(next(iter(vectors.values())))
        own = {
            "train/loss": taken.loss.item(),
            **{f"loss/{label}": value.item() for label, value in taken.losses.items()},
            **{f"{place}/{k}": v for place, part in self.method.components() for k, v in part.report().items()},
        }
        values = {
            **_mean(from_all(own)),
            "train/learning_rate": taken.learning_rate,
            "train/gradient_norm": taken.norm.item(),
            **indicators,
            **agreement(vectors),
            **self.stepper.watch.lately(),
        }
        from_first(lambda: self._tell(values, warning))

    def _tell(self, values: Mapping[str, float], warning: str | None) -> None:
        rate = self.progress.step * self.settings.batch_size / self.progress.step_seconds
        self.tracker.metrics(values, self.progress.step)
        self.observer.stepped(self.progress.step, values["train/loss"], rate)
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
        self.stepper.watch.clock.mark("evaluation")

    def _offer(self, scores: Scores, select: str) -> None:
        name, at, value = select.rpartition(".")[0], self.progress.step, score(scores, select)
        if at == 0:
            self.selection.curve[0] = value
        best = at > 0 and self.selection.offer(at, value, self.experiment.scored)
        self.tracker.metrics({f"dev/{name}.{metric}": v for metric, v in scores[name].items()}, at)
        from_first(lambda: self.observer.evaluated(at, {select: value}, best))

    def _due(self, every: int) -> bool:
        return self.progress.step == self.total or (every > 0 and self.progress.step % every == 0)

    def _count(self, began: float, *, stepping: bool) -> None:
        took = time.perf_counter() - began
        self.progress.seconds += took
        self.progress.step_seconds += took if stepping else 0.0

    def _demand_numbers(self) -> None:
        """Look at the losses that nobody has looked at: on a GPU, those since the last record."""
        if not self.unseen:
            return
        seen, self.unseen = self.unseen, []
        finite = torch.isfinite(mean_devices(torch.stack(seen))).tolist()
        if not all(finite):
            at = self.progress.step - len(seen) + finite.index(False) + 1
            raise self._no_number(f"the loss is no number at step {at}")

    def _demand_a_number(self, loss: Tensor, step: StepState) -> None:
        self._demand_numbers()
        whole = mean_devices(loss)  # on all processes alike, so that all stop here
        if torch.isfinite(whole):
            return
        vectors = {name: step.sentences(name) for name in step.views}
        raise self._no_number(f"the loss is {whole.item()} at step {self.progress.step + 1}\n{describe_views(vectors)}")

    def _no_number(self, what: str) -> RunFailedError:
        return RunFailedError(
            f"{what}\n  last good checkpoint: step {self.saved}, {self.folder / checkpoint.FILE}",
            "lower train.learning_rate, raise the temperature, or use precision = 'fp32'",
        )


def _mean(each: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean over processes of what each one says of its share of the batch."""
    if len(each) == 1:
        return each[0]
    return {name: sum(of[name] for of in each if name in of) / sum(name in of for of in each) for name in each[0]}


def state_digest(state: dict[str, Any]) -> str:
    """Return a digest of weights: equal exactly when every bit of every tensor is."""
    import hashlib

    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(key.encode())
        digest.update(state[key].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


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


def _nobody(_: str) -> None:
    """Nobody listens."""


class Stepper:
    """Takes the steps of one training; what the next one depends on, beside the method, is its `state`.

    Args:
        method: On its device already.
        batches: Training batches of this process.
        settings: Optimiser, schedule, clipping.
        compute: Device and precision.
        seed: Of the stream that augmenters and queues draw from.
        total: Steps of the whole training.
        told: Hears what a person should know, such as that nothing could be compiled.
    """

    def __init__(
        self,
        method: Method,
        batches: Batches | Stream,
        settings: Train,
        compute: Compute,
        seed: int,
        total: int,
        told: Callable[[str], None] = _nobody,
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
        self.feed = Feed(batches.batch, total, compute.device, place=batches.state)
        self.place = batches.state()
        self.compiled = compile_blocks(method, settings, compute, (total, batches.max_length), told)

    def take(self, done: int, look: Callable[[Tensor, StepState], None] | None = None) -> Taken:
        """Take the step after `done` others; `look` sees the objective before anything is changed by it."""
        rate = learning_rate(self.settings, done, self.total)
        set_learning_rate(self.optimizer, rate)
        ready, clock = self.feed.take(done), self.watch.clock
        self.place = ready.place
        self.watch.count(ready.sizes)
        batch = {view: tokens.to(self.compute.device) for view, tokens in ready.batch.items()}
        clock.mark("data")
        if self.compiled is not None:
            self.compiled.begin_step()
        step = StepState(self.method, batch, done, self.total, self.generator)
        with self.compute.autocast():
            losses = self.forward(step)
        loss = self.method.objective(losses)
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

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "generator": self.generator.get_state(),
            "watch": self.watch.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put `state` back."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.generator.set_state(state["generator"])
        if "watch" in state:
            self.watch.load_state(state["watch"])

    def load_places(self, done: int, places: Sequence[Any]) -> None:
        """Go on after `done` steps where the data of all processes stood, by rank."""
        self.batches.load_state(done, places)
        self.place = self.batches.state()

    def close(self) -> None:
        """End what runs beside the steps."""
        self.feed.close()

    def _update(self) -> Tensor:
        self.scaler.unscale_(self.optimizer)
        weights = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(weights, self.settings.clip_norm or float("inf"))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm


Forward = Callable[[StepState], dict[str, Tensor]]


def parallel(method: Method) -> Forward:
    """Return what a training step calls instead of the method; on one process the method itself.

    Probes go on calling the bare method: their gradients are not the parameters'. Buffers are each component's own
    affair, and weights without a gradient, which differ by method, are looked for at every step.
    """
    if world_size() == 1:
        return method
    options: dict[str, Any] = {"find_unused_parameters": True, "gradient_as_bucket_view": True, _buffers_left(): False}
    return DistributedDataParallel(method, **options)


def _buffers_left() -> str:
    """Return the option that says not to copy buffers at every step, which newer torch versions call otherwise."""
    options = inspect.signature(DistributedDataParallel).parameters
    return "forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers"
