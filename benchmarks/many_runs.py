"""Time of commands in a state directory with thousands of finished runs.

    python -m benchmarks.many_runs [--runs 3000] [--repeats 3] [--home DIRECTORY]

Records runs of all small recipes and of the cells of all small studies, one seed after the other, without training and
with random scores. Prints a Markdown table: the processor seconds of each command, those of the same command with one
run of each small recipe, and the difference, which is the cost of the other runs. Caches are warm.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path

from benchmarks.start import command
from cse_cli.core.formatting import to_toml
from cse_cli.core.identity import Identity, Plan
from cse_cli.core.results import PaperRow, Result, Scores, Speed, Versions
from cse_cli.recipe.cells import cell_tag, cells
from cse_cli.recipe.files import all_recipes, all_studies
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.study import load_study
from cse_cli.runs.lock import LOCK, FileLock
from cse_cli.runs.record import RECIPE, RESULT, About, RunRecord
from registry import EVALUATORS

STUDY = "studies/mini/cross_losses_queues_augmenters"
COMMANDS = (
    ["leaderboard"],
    ["leaderboard", "--community"],
    ["leaderboard", "--table", "ifcl/5"],
    ["runs", "ls"],
    ["runs", "ls", "--sort", "avg"],
    ["runs", "show", "{run}"],
    ["list"],
    ["compare", "mini/ifcl_en@0", "mini/simcse_en@0"],
    ["run", STUDY, "--dry-run"],
)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = range(25, 1001, 25)
"""Evaluated steps of a run. Each has two events."""
SEEDS = tuple(range(3))


@dataclass(frozen=True)
class Experiment:
    """An experiment that many runs share.

    Args:
        loaded: Recipe with its settings.
        study: Cell of a study, or "".
        toml: Resolved recipe as TOML.
    """

    loaded: LoadedRecipe
    study: str
    toml: str


def experiments() -> Iterator[Experiment]:
    """Yield the experiments of small recipes and small studies."""
    for name in all_recipes():
        if name.startswith("mini/"):
            yield _experiment(load(name), "")
    for name in all_studies():
        if name.startswith("studies/mini/"):
            study = load_study(name)
            for cell in cells(study):
                yield _experiment(cell.load(0), cell_tag(study, cell))


def _experiment(loaded: LoadedRecipe, study: str) -> Experiment:
    return Experiment(loaded, study, to_toml(loaded.recipe.resolved()))


def write_runs(home: Path, runs: int) -> None:
    """Record finished runs of every experiment, one seed after the other."""
    os.environ["CSE_HOME"] = str(home)
    asked, noise = list(experiments()), random.Random(0)
    every = ((of, seed) for seed in count() for of in asked)
    for number, (of, seed) in enumerate(islice(every, runs)):
        _write_run(of, seed, BEGAN + timedelta(minutes=number), noise)


def _write_run(of: Experiment, seed: int, started: datetime, noise: random.Random) -> None:
    recipe = of.loaded.recipe
    known = {
        "recipe": of.loaded.name,
        "source": str(of.loaded.path.absolute()),
        "seed": seed,
        "identity": Identity(settings=recipe.hash(), text="ab" * 32, weights={"encoders.online": "cd" * 32}),
        "plan": Plan(seeds=SEEDS, made=BEGAN) if seed in SEEDS else None,
    }
    name = f"{of.loaded.name} seed {seed}"
    about = About(
        **known, name=name, group=of.loaded.name, created=started, study=of.study, changes=of.loaded.changes,
        method=recipe.title, encoder="mini_en", data="wiki",
    )  # fmt: skip
    about.write()
    (about.path / RECIPE).write_text(of.toml, encoding="utf-8")
    lock = FileLock(about.path / LOCK)
    lock.acquire()
    record = RunRecord(about.run_id, lock)
    record.started(0, STEPS.stop, "cpu")
    curve = {step: noise.gauss(60, 2) for step in STEPS}
    for step, score in curve.items():
        record.metrics({"train/loss": 1 / step, "train/learning_rate": 1e-4}, step)
        record.evaluated(step, {recipe.evaluate.metric_for_best_model or "dev": score}, best=False)
    result = Result(
        **known,
        title=recipe.title,
        started=started,
        language=recipe.language,
        paper=None if recipe.paper is None else PaperRow(**recipe.paper.model_dump()),
        model="mini_en",
        scores=_scores(of, noise),
        untrained=_scores(of, noise),
        curve=curve,
        selected_step=STEPS[-1],
        metric_for_best_model=recipe.evaluate.metric_for_best_model,
        steps=STEPS.stop,
        fingerprints={f"{name}/test": "ef" * 32 for name in recipe.evaluators},
        versions=Versions(cse="0.1.0", python="3.11.7", torch="2.13.0", transformers="5.23.0"),
        device="cpu",
        precision="fp32",
        seconds=60.0,
        speed=Speed(seconds={"data": 1.0, "forward": 20.0, "backward": 30.0}, peak_memory=10**9),
        run_id=about.run_id,
        finished=started + timedelta(minutes=1),
    )
    record.file(RESULT, result.to_json())
    record.end("finished")


def _scores(of: Experiment, noise: random.Random) -> Scores:
    evaluators = of.loaded.recipe.evaluators.items()
    return {name: {metric: noise.gauss(60, 1) for metric in EVALUATORS[of.name].cls.metrics} for name, of in evaluators}


def main() -> None:
    """Measure the commands and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--home", type=Path, help="Directory in which the state directories are kept and reused.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = asked.home or Path(folder)
        few, many = place / "few", place / "many"
        if not many.exists():
            write_runs(few, sum(name.startswith("mini/") for name in all_recipes()))
            write_runs(many, asked.runs)
        measure(few, many, asked.repeats)


def measure(few: Path, many: Path, repeats: int) -> None:
    """Print the processor seconds of every command in both state directories."""
    counts = [len(list((home / "runs").iterdir())) for home in (many, few)]
    print(f"| command | {counts[0]} runs, s | {counts[1]} runs, s | difference, s |\n|---|---|---|---|")
    for arguments in COMMANDS:
        seconds = []
        for home in (many, few):
            os.environ["CSE_HOME"] = str(home)
            run = next((home / "runs").iterdir()).name
            seconds.append(command([each.format(run=run) for each in arguments], repeats)[1])
        difference = f"{seconds[0] - seconds[1]:.1f}"
        print(f"| `cse {' '.join(arguments)}` | {seconds[0]:.1f} | {seconds[1]:.1f} | {difference} |", flush=True)


if __name__ == "__main__":
    main()
