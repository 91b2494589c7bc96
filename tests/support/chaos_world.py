"""A state directory on a small disk of its own, what is asked for in it (runs, a study, a search), what came of it."""

from __future__ import annotations

import os
import random
import resource
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_cli.runs.events import read_history
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import MODEL
from cse_cli.tuning.study import load_study, settled
from registry.resources.models import sha256_of
from tests.cse_cli.recipe.tiny_study import grid
from tests.support.forked import Forked
from tests.support.shrunken import recipe, small

SEEDS = (11, 12, 13)
"""Of the runs; the study's and the search's are others, so that recipe and seed say which of all results is meant."""
DISK = 64_000_000
CURVES = ("train/loss", "dev/spearman")


@dataclass
class Question:
    """A command that is started again and again until it has done everything.

    Args:
        kind: "run", "study" or "search".
        arguments: Arguments of `cse`.
    """

    kind: str
    arguments: tuple[str, ...]
    is_done: bool = False

    def start(self, *more: str) -> Forked:
        """Start the command, which resumes what was interrupted."""
        folder = Path(os.environ["CSE_HOME"]).parent
        return Forked(["cse_cli", *self.arguments, "--device", "cpu", "--json", *more], folder)


def questions(folder: Path) -> list[Question]:
    """Write what is asked for below `folder`: three runs, a study of four runs, a search of four trials."""
    parts = small(folder)
    # Two sentences a batch: the vectors of a random model are so alike that more would count as collapsed.
    settings = {"steps": 100, "evaluate_every": 20, "checkpoint_every": 5, "batch_size": 2, "collapse_cosine": 1.0}
    alone = [recipe(folder, parts, name=f"alone-{seed}", **settings, seed=seed) for seed in SEEDS]
    searched = recipe(folder, parts, **settings)
    study = folder / grid(folder, "[0.1, 0.2]", seeds="2")
    search = ("tune", str(searched), "--range", "learning_rate=1e-4..1e-2:log", "--sampler", "grid", "--trials", "4")
    return [
        *(Question("run", ("run", str(file))) for file in alone),
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
    for trial in settled(load_study(None, "search").get_trials()):
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
