"""How long commands take where a laboratory has recorded much: a state directory of thousands of finished runs.

    python -m benchmarks.many_runs [--runs 3000] [--repeats 3]

Trains `quickstart` for a few steps, and records copies of that run as all small recipes and the cells of all small
studies, a seed after the other, with scores that differ. Prints a Markdown table: processor seconds of each command,
those of the same command with one run of each small recipe, and the difference, which is what the other runs cost.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from uuid import uuid4

from benchmarks.start import command
from cse_cli.core.results import Result
from cse_cli.recipe.cells import cell_tag, cells
from cse_cli.recipe.files import all_recipes, all_studies
from cse_cli.recipe.load import load
from cse_cli.recipe.study import load_study
from cse_cli.tracking import tags

STUDY = "studies/mini/cross_losses_queues_augmenters"
COMMANDS = (
    ["leaderboard"],
    ["leaderboard", "--field"],
    ["leaderboard", "--table", "ifcl/5"],
    ["runs", "ls"],
    ["runs", "ls", "--sort", "avg"],
    ["runs", "show", "{run}"],
    ["list"],
    ["compare", "mini/ifcl_en@0", "mini/simcse_en@0"],
    ["run", STUDY, "--dry-run"],
)
OF_A_RUN = ("params", "tags", "metrics", "latest_metrics")


def experiments() -> Iterator[tuple[str, str, str | None]]:
    """Yield name, hash and study's cell of what small recipes and small studies ask for."""
    for name in all_recipes():
        if name.startswith("mini/"):
            yield name, load(name).recipe.hash(), None
    for name in all_studies():
        if name.startswith("studies/mini/"):
            study = load_study(name)
            for cell in cells(study):
                yield study.recipe or name, cell.hash, cell_tag(study, cell)


def copies(result: Result) -> Iterator[tuple[Result, str | None]]:
    """Yield a result as of every experiment, one seed after the other, without end; and the study's cell."""
    asked, noise = list(experiments()), random.Random(0)
    for number, seed in enumerate(seed for seed in count() for _ in asked):
        recipe, digest, cell = asked[number % len(asked)]
        scores = {
            evaluator: {metric: value + noise.gauss(0, 0.5) for metric, value in values.items()}
            for evaluator, values in result.scores.items()
        }
        paper = load(recipe).recipe.paper
        known = {
            "recipe": recipe,
            "recipe_hash": digest,
            "seed": seed,
            "scores": scores,
            "run_id": uuid4().hex,
            "paper": None if paper is None else paper.model_dump(),
            "finished": result.finished + timedelta(minutes=number),
        }
        yield Result.model_validate({**result.model_dump(), **known}), cell


def fill(home: Path, runs: int) -> str:
    """Copy the one run of a state directory until there are `runs`; return the id of the last one."""
    connection = sqlite3.connect(home / "mlflow.db")
    first = connection.execute("SELECT run_uuid FROM runs WHERE status = 'FINISHED'").fetchone()[0]
    folder, artifacts = home / "runs" / first, home / "artifacts" / first / "artifacts"
    result = Result.model_validate_json((artifacts / "result.json").read_text())
    for one, cell in islice(copies(result), runs - 1):
        assert one.run_id is not None
        copy_rows(connection, first, one, cell)
        shutil.copytree(artifacts, home / "artifacts" / one.run_id / "artifacts", copy_function=os.link)
        shutil.copytree(folder, home / "runs" / one.run_id, copy_function=os.link)
        own = home / "artifacts" / one.run_id / "artifacts" / "result.json"
        own.unlink()
        own.write_text(one.model_dump_json())
    connection.commit()
    connection.close()
    return str(one.run_id)


def copy_rows(connection: sqlite3.Connection, first: str, of: Result, cell: str | None) -> None:
    """Copy what the database has of a run, as another one."""
    for table in ("runs", *OF_A_RUN):
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        taken = ", ".join("?" if name == "run_uuid" else name for name in names)
        of_run = f"SELECT {taken} FROM {table} WHERE run_uuid = ?"
        connection.execute(f"INSERT INTO {table} ({', '.join(names)}) {of_run}", (of.run_id, first))
    milliseconds = int(of.finished.timestamp() * 1000)
    connection.execute(
        "UPDATE runs SET name = ?, start_time = ?, end_time = ?, artifact_uri = replace(artifact_uri, ?, ?) "
        "WHERE run_uuid = ?",
        (f"{of.recipe} seed {of.seed}", milliseconds - 60_000, milliseconds, first, of.run_id, of.run_id),
    )
    about = {tags.RECIPE: of.recipe, tags.RECIPE_HASH: of.recipe_hash, tags.SEED: str(of.seed)}
    if cell is not None:
        about[tags.STUDY] = cell
    for key, value in about.items():
        connection.execute(
            "INSERT OR REPLACE INTO tags (key, value, run_uuid) VALUES (?, ?, ?)", (key, value, of.run_id)
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--home", type=Path, help="keep the state directories there, and use them again")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = asked.home or Path(folder)
        few, many = place / "few", place / "many"
        if not many.exists():
            os.environ["CSE_HOME"] = str(few)
            training = ["run", "quickstart", "--set", "train.steps=20"]
            subprocess.run([sys.executable, "-m", "cse_cli", *training], check=True, capture_output=True)
            shutil.copytree(few, many)
            fill(few, 1 + sum(name.startswith("mini/") for name in all_recipes()))
            fill(many, asked.runs)
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
