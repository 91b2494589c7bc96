"""One run of one recipe with one seed: build, claim, train, score and record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace

import torch

from cse_cli.core.devices import choose, missing_memory
from cse_cli.core.distributed import explain_lost_rank, rank0_first, run_on_rank0
from cse_cli.core.events import Downloading, Observer, Preparing, Pruned, RunInfo, Scoring, Started, Stopped, Warned
from cse_cli.core.formatting import differences
from cse_cli.core.garbage import usual_collection
from cse_cli.core.identity import Identity
from cse_cli.core.part_errors import part_errors
from cse_cli.core.paths import home
from cse_cli.core.results import Result
from cse_cli.core.threads import limit_torch_threads, torch_threads_restored
from cse_cli.data.batches import Batches
from cse_cli.data.identity import identify
from cse_cli.data.requirements import fetch
from cse_cli.data.sources import Text, open_text
from cse_cli.evaluation.evaluate import evaluate
from cse_cli.inspection.alarms import alarms_before_run
from cse_cli.mirrors import configured, follow
from cse_cli.recipe.requirements import merged_requirements
from cse_cli.recipe.schema import PROSE, Recipe
from cse_cli.runs.claim import Busy, BusyError, Claimed, Done, claim, claim_run
from cse_cli.runs.log import RunLog
from cse_cli.runs.record import ENVIRONMENT, About, RunRecord, read_about, read_recipe
from cse_cli.runs.signals import Terminated, ending
from cse_cli.runs.system import sampled
from cse_cli.training import checkpoint
from cse_cli.training.build import Job, Prepared, making, resolve
from cse_cli.training.disk_space import explain_full_disk
from cse_cli.training.health import loss_not_finite
from cse_cli.training.recording import about_run, make_result, record_inputs, record_outcome
from cse_cli.training.train_step import TrainStep
from cse_cli.training.trainer import Trainer
from registry.distributed import rank, world_size
from registry.encoders.saved import own_pooling
from registry.errors import CseError, RunFailedError
from registry.resources import hub
from registry.resources.models import locate

SCORING = "scoring the selected state"
"""Progress line of a run after its last step."""


@part_errors()
def prepare(job: Job, observer: Observer) -> Prepared:
    """Build and read everything that a job needs, before a run exists.

    Raises:
        CseError: If a model or data set is missing, parts do not fit, or CSE_MIRRORS names an unknown mirror.
        PartError: If a component that is not part of the package cannot be built.
    """
    configured()
    recipe = job.loaded.recipe
    limit_torch_threads()
    compute = choose(job.device, recipe.train.precision)
    hub.forget()
    hub.pin(read_about(job.resume).commits if job.resume is not None else {})
    rank0_first(lambda: fetch(merged_requirements([recipe]), lambda *file: observer.observe(Downloading(*file))))
    observer.observe(Preparing("building the method"))
    experiment = resolve(recipe, job.seed)
    if compute.warning:
        observer.observe(Warned(compute.warning))
    for name, part in recipe.encoders.items():
        given, model = part.params.get("pooling"), part.params.get("model")
        own = own_pooling(locate(model)) if given and model else None
        if own is not None and own != given:
            setting = f"encoders.{name}.pooling"
            observer.observe(
                Warned(f"{setting} is '{given}', but '{model}' was made for '{own}': set {setting} = '{own}'")
            )
    if recipe.train.steps == 0:
        return Prepared(job, compute, experiment, None, None, 0)

    place = rank(), world_size()  # `rank0_first` calls `read` as in a single process

    def read() -> tuple[Text, Batches]:
        text = open_text(recipe.data, experiment.columns, making(job, observer))
        vocabularies = {plan.column: plan.vocabulary for plan in experiment.plans.values()}
        alarms = alarms_before_run(
            text, recipe, vocabularies, lambda *count: observer.observe(Preparing("inspecting the text", *count))
        )
        batches = Batches(
            text, experiment.plans, recipe.train.batch_size, recipe.data.max_length, job.seed, *place,
            lambda *count: observer.observe(Preparing("tokenizing", *count)), bool(recipe.data.unique_in_batch),
        )  # fmt: skip
        length = 0 if recipe.queue is None else recipe.queue.params.get("length", 0)
        if length > text.rows:
            alarms.append(
                f"queue.length is {length:,}, but the text has {text.rows:,} rows: the queue contains sentences of the "
                "batch, and some of them several times. Set a smaller queue.length"
            )
        for notice in (*text.notices, *alarms, *batches.notices):
            observer.observe(Warned(notice))
        return text, batches

    text, batches = rank0_first(read)
    steps = recipe.train.steps or recipe.train.epochs * batches.steps_per_epoch
    return Prepared(job, compute, experiment, text, batches, steps)


@part_errors()
def try_step(prepared: Prepared) -> dict[str, float]:
    """Take the first step of a training, and return label → loss. Without training, return nothing.

    Raises:
        PartError: If a component that is not part of the package fails or returns something else than its hook says.
        RunFailedError: If a loss is not finite.
    """
    if prepared.batches is None:
        return {}
    one, settings = prepared.experiment, prepared.job.loaded.recipe.train
    method = one.method.to(prepared.compute.device).train()
    with closing(
        TrainStep(method, prepared.batches, settings, prepared.compute, prepared.job.seed, prepared.steps)
    ) as stepper:
        taken = stepper.take(0)
    losses = {label: loss.item() for label, loss in taken.losses.items()}
    if not torch.isfinite(taken.loss):
        raise loss_not_finite(taken.loss.item(), 1, losses, {})
    return losses


def execute(job: Job, observer: Observer) -> Result:
    """Run a job and record it, or return the result of the same run if it is finished.

    If a process group is initialized, every process of it calls this with the same job: they train together, only the
    first one writes and reports, and all return its result.

    Raises:
        BusyError: If another process does the run.
        CseError: If it could not start, or failed later; the record then says FAILED.
        DiskError: If the disk is full.
        Pruned: If the observer ended it; the record then says PRUNED.
        StopRequested: If `cse runs stop` ended it; the record then says STOPPED.
    """
    log = RunLog(observer, speaks=rank() == 0)
    prepared = prepare(job, log)
    text = None if prepared.text is None else prepared.text.fingerprint
    identity = run_on_rank0(lambda: identify(job.loaded.recipe, text))
    record = _claim(prepared, identity)
    if isinstance(record, Result):
        return record
    sampling = sampled(record) if rank() == 0 else nullcontext()
    with (
        _mirrored(record), log, _messages(record, log), ending(record), sampling, torch_threads_restored(),
        explain_full_disk(record.run_id), explain_lost_rank(), part_errors(),
    ):  # fmt: skip
        # A run that is resumed keeps its precision, also on another device.
        prepared = replace(prepared, compute=choose(job.device, record.about.precision))
        trainer = _trainer(prepared, record, log)
        if trainer is not None:
            with usual_collection():
                trainer.run()
            trainer.finish()
        log.observe(Preparing(SCORING))
        one, settings = prepared.experiment, job.loaded.recipe.evaluate
        scores = evaluate(
            one.scored, one.evaluators, settings, prepared.compute, plans=one.plans,
            show=lambda _, share: log.observe(Scoring(SCORING, share)), columns=prepared.own_columns(log),
        )  # fmt: skip

        def finish() -> Result:
            result = make_result(prepared, trainer, scores, record.about)
            record_outcome(record, prepared, result, log)
            return result

        return run_on_rank0(finish)


def _claim(prepared: Prepared, identity: Identity) -> RunRecord | Result:
    """Return the record of the run, which this process now holds, or the result if the run is finished.

    Raises:
        BusyError: If another process does the run.
        Pruned: If the run was pruned.
        CseError: If the run to resume belongs to another experiment.
    """
    job, own = prepared.job, list[RunRecord]()

    def take() -> About | Result:
        about, resolved = about_run(job, identity, prepared.compute.precision), job.loaded.recipe.resolved()
        claimed = claim(about, resolved, again=job.again) if job.resume is None else claim_run(job.resume)
        if isinstance(claimed, Busy):
            raise BusyError(claimed.run)
        if isinstance(claimed, Done):
            if claimed.run.result is None:
                raise Pruned(claimed.run.reason)
            return claimed.run.result
        _begin(claimed, prepared, identity)
        own.append(claimed.record)
        return claimed.record.about

    taken = run_on_rank0(take)
    if isinstance(taken, Result):
        return taken
    return own[0] if own else RunRecord(taken, None)


def _begin(claimed: Claimed, prepared: Prepared, identity: Identity) -> None:
    """Check that a resumed run is the same experiment, and record the inputs of a run that has not recorded them.

    Raises:
        CseError: If the experiment changed. The run's lock is released.
    """
    record = claimed.record
    try:
        if claimed.resumed:
            _check_same(record.about, prepared.job, identity)
        if not (record.path / ENVIRONMENT).exists():
            record_inputs(record, prepared)
    except BaseException:
        record.close()
        raise


def _check_same(about: About, job: Job, identity: Identity) -> None:
    """Refuse to resume a run with another experiment.

    Raises:
        CseError: It names each difference.
    """
    changed = changed_settings(about, job.loaded.recipe)
    if about.identity is not None:
        changed += [str(one) for one in about.identity.differences(identity) if one.part != "settings" or not changed]
    if changed:
        raise experiment_changed(about, changed)


def changed_settings(about: About, recipe: Recipe) -> list[str]:
    """Return each setting of a recipe that differs from a recorded run, with both values."""
    both = read_recipe(about.run_id), recipe.resolved()
    ran, now = ({key: value for key, value in resolved.items() if key not in PROSE} for resolved in both)
    return list(differences(ran, now))


def experiment_changed(about: About, changed: Sequence[str]) -> CseError:
    """Return the error that a run cannot be resumed with these changes."""
    return CseError(
        f"cannot resume run {about.short} because the experiment changed:\n  " + "\n  ".join(changed),
        "restore the experiment, or start a new run without --resume",
        code="training.experiment_changed",
    )


def _trainer(prepared: Prepared, record: RunRecord, observer: Observer) -> Trainer | None:
    """Return the trainer at its last checkpoint, or None for a recipe without training."""
    job = prepared.job
    if prepared.batches is None:
        record.started(device=prepared.compute.describe())
        prepared.experiment.method.to(prepared.compute.device)
        return None
    trainer = Trainer(prepared, record.path, record, observer)
    if run_on_rank0(lambda: bool(checkpoint.saved(record.path))):
        trainer.restore()
    device = prepared.compute.describe()
    record.started(trainer.progress.step, prepared.steps, device)
    run = RunInfo(
        recipe=job.loaded.name,
        title=job.loaded.recipe.title,
        seed=job.seed,
        device=device,
        precision=prepared.compute.precision,
        run_id=record.run_id,
        home=str(home()),
        steps=prepared.steps,
        done=trainer.progress.step,
        sentences=prepared.sentences,
        hint=prepared.compute.hint if job.loaded.recipe.train.precision == "auto" else "",
    )
    observer.observe(Started(run))
    return trainer


@contextmanager
def _mirrored(record: RunRecord) -> Iterator[None]:
    """Send the run to its mirrors, from the first process.

    If several processes fail, the first one does not wait for the mirrors: the others end before it, and the message
    would be theirs.
    """
    if rank() > 0:
        yield
        return
    follower = follow(record.about)
    try:
        yield
    except BaseException:
        (follower.close if world_size() == 1 else follower.leave)()
        raise
    follower.close()


@contextmanager
def _messages(record: RunRecord, observer: Observer) -> Iterator[None]:
    """Report how to resume after an interruption, and turn a lack of memory into a message."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        observer.observe(Stopped(record.run_id))
        raise
    except (RuntimeError, MemoryError) as error:
        if (reason := missing_memory(error)) is None:
            raise
        raise RunFailedError(
            f"run {record.about.short}: {reason}",
            "lower train.batch_size or data.max_length, or train in bf16",
            code="training.out_of_memory",
        ) from error
