"""Plans of seeds: the seeds that a command starts together, recorded before the first of them starts.

`plans.jsonl` in the state directory has a line for each plan of an experiment. It is append only, and `cse runs export`
takes the lines of the exported runs along.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel

from cse_cli.core.identity import Plan
from cse_cli.core.paths import home
from cse_cli.runs.record import About
from registry.paths import make_folder

FILE = "plans.jsonl"


class _Line(BaseModel):
    experiment: str
    plan: Plan


def plans_of(experiment: str) -> list[Plan]:
    """Return the recorded plans of an experiment, each with other seeds, in the order in which they were recorded."""
    file = home() / FILE
    with suppress(FileNotFoundError):
        found = file.stat()
        return _read(file, found.st_mtime_ns, found.st_size).get(experiment, [])
    return []


def plan_of_run(about: About) -> Plan | None:
    """Return the plan to which a run belongs: the last one with its seed that was made before it, or None."""
    known = [plan for plan in plans_of(about.experiment) if about.seed in plan.seeds and plan.made <= about.created]
    return max(known, key=lambda plan: plan.made, default=None)


def record_plan(experiment: str, plan: Plan) -> None:
    """Record a plan, unless one with the same seeds is recorded."""
    if any(known.seeds == plan.seeds for known in plans_of(experiment)):
        return
    make_folder(home())
    descriptor = os.open(home() / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:  # in one write, so that two processes do not mix their lines
        os.write(descriptor, _line(experiment, plan).encode())
    finally:
        os.close(descriptor)


def lines_of(experiments: set[str]) -> str:
    """Return the lines of some experiments, for an archive."""
    return "".join(_line(experiment, plan) for experiment in sorted(experiments) for plan in plans_of(experiment))


def record_lines(lines: str) -> None:
    """Record the plans of an archive."""
    for line in filter(None, lines.split("\n")):
        one = _Line.model_validate_json(line)
        record_plan(one.experiment, one.plan)


def _line(experiment: str, plan: Plan) -> str:
    return f"{_Line(experiment=experiment, plan=plan).model_dump_json()}\n"


@lru_cache(maxsize=1)
def _read(file: Path, _time: int, _size: int) -> dict[str, list[Plan]]:
    """Return experiment → plans. A damaged line is skipped: its runs then count as started without a plan."""
    found = defaultdict[str, list[Plan]](list)
    for line in file.read_text(encoding="utf-8", errors="replace").split("\n"):
        with suppress(ValueError):
            one = _Line.model_validate_json(line)
            if all(known.seeds != one.plan.seeds for known in found[one.experiment]):
                found[one.experiment].append(one.plan)
    return found
