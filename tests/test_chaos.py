"""Chaos: runs, studies and searches that are killed, find the disk full, their files damaged and their server gone.

All at random moments, by a seed that is printed. At the end everything comes to its end undisturbed, and what is there
is counted: of every run and trial exactly one result, to the last bit that of commands nobody has disturbed.

    CSE_CHAOS_SECONDS=600 CSE_CHAOS_SEED=7 pytest -n 0 -s -m process tests/test_chaos.py
"""

from __future__ import annotations

import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cse_cli.runs.events import read_history
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import MODEL
from cse_cli.tuning.study import load_study, settled
from registry.resources.models import sha256_of
from tests.cse_cli.mirrors.test_server import server
from tests.cse_cli.recipe.tiny_study import grid
from tests.support.forked import Forked
from tests.support.ports import unused_port
from tests.support.programs import below, ended, with_mercy
from tests.support.shrunken import recipe, small

SEEDS = (11, 12, 13)
"""Of the runs; the study's and the search's are others, so that recipe and seed say which of all results is meant."""
DISK = 64_000_000
CURVES = ("train/loss", "dev/spearman")


@dataclass
class Question:
    """A command that is started again and again until it has done everything."""

    kind: str  # "run", "group", "study" or "search"
    arguments: tuple[str, ...]  # of `cse`
    is_done: bool = False

    def start(self, *more: str) -> Forked:
        """Start the command, which resumes what was interrupted."""
        folder = Path(os.environ["CSE_HOME"]).parent
        return Forked(["cse_cli", *self.arguments, "--device", "cpu", "--json", *more], folder)


def questions(folder: Path) -> list[Question]:
    """Write what is asked for below `folder`: three runs, one of two processes, a study of four, a search of four."""
    parts = small(folder)
    # Two sentences a batch: the vectors of a random model are so alike that more would count as collapsed.
    settings = {"steps": 100, "evaluate_every": 20, "checkpoint_every": 5, "batch_size": 2, "collapse_cosine": 1.0}
    alone = [recipe(folder, parts, name=f"alone-{seed}", **settings, seed=seed) for seed in SEEDS]
    searched = recipe(folder, parts, **settings)
    study = folder / grid(folder, "[0.1, 0.2]", seeds="2")
    search = ("tune", str(searched), "--range", "learning_rate=1e-4..1e-2:log", "--sampler", "grid", "--trials", "4")
    return [
        *(Question("run", ("run", str(file))) for file in alone),
        Question("group", ("run", str(recipe(folder, parts, name="group", **settings, seed=14)), "--processes", "2")),
        Question("study", ("run", str(study))),
        Question("search", (*search, "--pruner", "none", "--name", "search")),
    ]


def found() -> dict[Any, list[Any]]:
    """Return what there is of each thing asked for: of every run and every trial, by what makes them different."""
    everything = defaultdict(list)
    for run in all_runs():
        if (one := run.result) is not None:
            scores = one.last_state, one.scores, one.curve, one.selected_step
            metrics = read_history(run.about.path).metrics
            curves = [sorted(metrics[key].items()) for key in CURVES]
            files = sorted(file for file in (run.about.path / MODEL).rglob("*") if file.is_file())
            model = [(file.name, sha256_of(file)) for file in files if file.name != "README.md"]
            everything[one.recipe_hash, one.seed].append((scores, curves, model))
    for trial in settled(load_study("search").get_trials()):
        everything[tuple(trial.params.items())].append((trial.state.name, trial.value))
    return everything


@dataclass
class Disk:
    """Where the state directory lies: a file system in memory where this user may mount one.

    Elsewhere a full disk is a limit of the system on the size of files, set on the processes at work.
    """

    folder: Path
    is_mounted: bool

    def fill(self, chance: random.Random, processes: list[int]) -> None:
        """Leave room for a few pages or none."""
        room = chance.choice([0, 4096, 50_000, 400_000])
        if self.is_mounted:
            with self._ballast.open("wb", buffering=0) as file:
                with suppress(OSError):
                    while True:
                        file.write(bytes(1 << 16))
                file.truncate(max(file.tell() - room, 0))
            return
        for pid in processes:  # a page at least: torch's shared memory, which a full disk leaves alone, is a file too
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(room, 4096), resource.RLIM_INFINITY))

    def empty(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """Make one at `folder`, for as long as the block lasts."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "chaos", str(folder)]
    is_mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield Disk(folder, is_mounted)
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def damage(chance: random.Random, home: Path) -> Path | None:
    """Flip a bit of a checkpoint or a best state, or cut a file of a cache; return which, or None if there is none."""
    places = ("runs/*/*.pt", "cache/*/*", "cache/*/*/*")
    files = sorted(file for place in places for file in home.glob(place) if file.is_file() and file.stat().st_size)
    if not files:
        return None
    file = chance.choice(files)
    content, times = bytearray(file.read_bytes()), file.stat()
    place = chance.randrange(len(content))
    if file.suffix == ".pt":
        content[place] ^= 1 << chance.randrange(8)
    file.write_bytes(content if file.suffix == ".pt" else content[:place])
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # nobody has written it
    return file


SECONDS = float(os.environ.get("CSE_CHAOS_SECONDS", "30"))
SEED = int(os.environ.get("CSE_CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
DISTURBED = {0, 4, 130, 143, *(-number for number in SIGNALS)}
"""Exit codes of commands that were disturbed; a study, some of whose runs found the disk full, also ends with 1."""
LOG = logging.getLogger("chaos")
"""pytest shows it when the test fails; with `--log-cli-level=info` as it happens."""

pytestmark = [pytest.mark.process, pytest.mark.exhaustive, pytest.mark.timeout(SECONDS + 900)]


@dataclass
class World:
    """One state directory with everything that is asked for in it."""

    asked: Sequence[Question]
    disk: Disk
    chance: random.Random  # draws what happens, and when
    counts: Counter[str]  # of what has happened, in all worlds
    port: int | None = None  # of the tracking server; None for a database in the state directory
    seconds: float = 0.0  # that a run takes, among the others; measured by `finish` where it is not given
    faults: list[str] = field(default_factory=list)
    _at_work: list[Forked] = field(default_factory=list)
    _server: ExitStack = field(default_factory=ExitStack)
    _is_up: bool = False

    @property
    def open(self) -> list[Question]:
        """What has not come to its end."""
        return [question for question in self.asked if not question.is_done]

    def disturb(self) -> None:
        """Start one of each kind, end each at a random moment, and damage a file when all have ended."""
        several = self.chance.random() < 0.1
        more = ("--workers", "2") if several else ()
        first = {question.kind: question for question in reversed(self.open)}
        at_work = [(one, self._start(one, *(() if kind in ("run", "group") else more))) for kind, one in first.items()]
        acts = [*(self._end(process, one.kind) for one, process in at_work), *self._accidents(at_work)]
        began, longest = time.monotonic(), self.seconds * (2 if several else 0.3)  # workers import for ten seconds
        moments = sorted(self.chance.uniform(0.0, longest) for _ in acts)
        for moment, act in zip(moments, self.chance.sample(acts, len(acts)), strict=True):
            while time.monotonic() < began + moment and any(process.poll() is None for _, process in at_work):
                time.sleep(0.05)
            act()
        for question, process in at_work:
            self._hear(question, process, DISTURBED | ({1} if question.kind == "study" else set()))
        self.disk.empty()
        self.start_server()
        if self.chance.random() < 0.5 and (file := damage(self.chance, self.disk.folder)) is not None:
            self._note("damaged caches" if "cache" in file.parts else "damaged checkpoints")

    def finish(self) -> None:
        """Let everything come to its end."""
        while self.open and len(self.faults) < 9:
            started = [(question, self._start(question)) for question in self.open]
            began = time.monotonic()
            for question, process in started:
                self._hear(question, process, {0})
                self.seconds = self.seconds or time.monotonic() - began
        code, _, said = ended(Forked(["cse_cli", "runs", "sync"], self.disk.folder))
        if code:
            self.faults.append(f"cse runs sync ended with {code}:\n{said}")
        self.faults += behind()

    def _note(self, what: str) -> None:
        self.counts[what] += 1
        LOG.info(what)

    def _start(self, question: Question, *more: str) -> Forked:
        self._note(f"starts of {question.kind}")
        self._at_work.append(process := question.start(*more))
        return process

    def _hear(self, question: Question, process: Forked, codes: set[int]) -> None:
        code, _, said = ended(process)
        self._at_work.remove(process)
        question.is_done = code == 0
        LOG.info("%s ended with %s", question.kind, code)
        is_early = code == 1 and not said  # `multiprocessing` ends a fork so that is interrupted before it is `cse`
        if "Traceback" in said or not (code in codes or is_early):
            self.faults.append(f"{question.kind} ended with {code}:\n{said}")
            LOG.error(self.faults[-1])

    def _end(self, process: Forked, kind: str) -> Callable[[], None]:
        number, children_too = self.chance.choice(SIGNALS), self.chance.random() < 0.5

        def end() -> None:
            children = below(process) if children_too else []
            if children:
                with_mercy(self.chance.choice(children).kill)
                self._note("SIGKILL of a worker")
            if process.poll() is None:
                process.send_signal(number)
                self._note(f"{number.name} of a {kind}")

        return end

    def _accidents(self, at_work: Sequence[tuple[Question, Forked]]) -> Iterator[Callable[[], None]]:
        if self.chance.random() < 0.25:
            yield lambda: self._fill([process.pid for _, process in at_work if process.poll() is None])
        if self.port is not None and self.chance.random() < 0.3:
            yield from (self._stop_server, self.start_server)

    def _fill(self, processes: list[int]) -> None:
        self.disk.fill(self.chance, processes)
        self._note("full disks")

    def start_server(self) -> None:
        """Start the tracking server, where there is to be one and it is away."""
        if self.port is not None and not self._is_up:
            self._server.enter_context(server(self.disk.folder.parent, self.port))
            self._is_up = True

    def _stop_server(self) -> None:
        if self._is_up:
            self._server.close()
            self._is_up = False
            self._note("server stops")

    def close(self) -> None:
        """End the server, and what a failed test has left at work."""
        self._server.close()
        for process in self._at_work:
            process.kill()


def behind() -> Iterator[str]:
    """Yield what the tracking store lacks: runs, ends and points that are in the records."""
    from mlflow import MlflowClient

    from cse_cli.mirrors.mlflow import uri

    client = MlflowClient(tracking_uri=uri())
    there = {
        run.data.tags["cse.run_id"]: run
        for experiment in client.search_experiments()
        for run in client.search_runs([experiment.experiment_id])
        if "cse.run_id" in run.data.tags
    }
    for run in all_runs():
        if run.run_id not in there:
            yield f"run {run.run_id} is not in the tracking store"
            continue
        mirrored = there[run.run_id]
        if mirrored.info.status == "RUNNING":
            yield f"run {run.run_id} ({run.state}) is RUNNING in the tracking store"
        for name in CURVES:
            sent = sorted((point.step, point.value) for point in client.get_metric_history(mirrored.info.run_id, name))
            if sent != sorted(read_history(run.about.path).metrics.get(name, {}).items()):
                yield f"{name} of run {run.run_id} differs in the tracking store"


def compared(here: Mapping[Any, list[Any]], expected: Mapping[Any, list[Any]]) -> dict[str, list[Any]]:
    """Return which results are lost, double or wrong."""
    return {
        "lost": [key for key in expected if key not in here],
        "double": [key for key, all_of in here.items() if len(all_of) > 1],
        "wrong": [key for key, all_of in here.items() if any([one] != expected.get(key) for one in all_of)],
    }


def test_nothing_is_lost_double_or_wrong(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    LOG.addHandler(logging.FileHandler(tmp_path / "chaos.log"))  # kept if the test fails
    LOG.setLevel(logging.INFO)
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.5")  # signals are to fall into such records too
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    chance, counts = random.Random(SEED), Counter[str]()
    monkeypatch.setenv("CSE_MIRRORS", "mlflow")
    asked = questions(tmp_path)
    whole = World(deepcopy(asked), Disk(home, is_mounted=False), chance, Counter())
    whole.finish()
    expected = found()
    assert (whole.faults, len(expected)) == ([], 16), whole.faults

    until, totals, faults = time.monotonic() + SECONDS, Counter[str](), list[str]()
    for number in count():
        if number and time.monotonic() > until:
            break
        folder = tmp_path / f"world-{number}"
        folder.mkdir()
        with small_disk(folder / "home") as disk:
            monkeypatch.setenv("CSE_HOME", str(disk.folder))
            port = unused_port() if (SEED + number) % 2 else None
            if port is None:
                monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
            else:
                monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
            world = World(deepcopy(asked), disk, chance, counts, port, whole.seconds)
            try:
                world.start_server()
                while world.open and time.monotonic() < until:
                    world.disturb()
                world.finish()
                wrong = compared(found(), expected)
            finally:
                world.close()
            totals.update({kind: len(keys) for kind, keys in wrong.items()})
            if world.faults or any(wrong.values()):
                shutil.copytree(disk.folder, folder / "home-kept")  # the disk goes
                faults += [f"{folder}: {wrong}", *world.faults]
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    with capsys.disabled():
        sys.stdout.write(f"\nCSE_CHAOS_SEED={SEED}: {number} state directories, {told}; {dict(totals)}\n")
    assert faults == [], "\n".join(faults)
