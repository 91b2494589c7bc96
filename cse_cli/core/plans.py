"""Plan of seeds: whether the number of seeds was fixed before the first run. The test of a group of runs needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cse_cli.core.identity import Mode
from cse_cli.core.results import Result

ASSUMED = "assumed plan, given at analysis time, not recorded"


@dataclass(frozen=True)
class SeedPlan:
    """Mode of the test for a group of runs, with the planned seeds in ascending order and those that are finished."""

    mode: Mode
    planned: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """Name of the mode in a sentence."""
        if self.mode == "incomplete":
            progress = f"{len(self.finished)} of {len(self.planned)} planned seeds are finished"
            return f"{progress}; the test waits for the others"
        return {"planned": "planned", "assumed": ASSUMED}.get(self.mode, "anytime test")

    @property
    def option(self) -> str:
        """Value of `--seeds` that means all planned seeds."""
        count = len(self.planned)
        return str(count) if self.planned == tuple(range(count)) else ",".join(map(str, self.planned))

    def paired_with(self, other: SeedPlan) -> SeedPlan:
        """Return the plan of a comparison of two methods.

        It is planned only if both methods are planned with the same seeds. It is incomplete if either one is.
        """
        waiting = [plan for plan in (self, other) if plan.mode == "incomplete"]
        if waiting:
            return min(waiting, key=lambda plan: len(plan.finished) / len(plan.planned))
        return self if self.mode == other.mode and self.planned == other.planned else SeedPlan("anytime")


def plan_of(runs: Sequence[Result]) -> SeedPlan:
    """Return the plan that is recorded for the runs of one method, at most one run for each seed.

    The runs are planned if all carry a plan of the same seeds, every plan was made before the first run started, and
    their seeds are exactly the planned seeds. (Processes that do the runs together make a plan each.) They are
    incomplete if planned seeds are missing. A seed that is not planned makes the number of seeds free.
    """
    plans = [run.plan for run in runs if run.plan is not None]
    seeds = tuple(sorted(run.seed for run in runs))
    if not runs or len(plans) < len(runs) or len({plan.seeds for plan in plans}) > 1:
        return SeedPlan("anytime")
    planned = plans[0].seeds
    if max(plan.made for plan in plans) > min(run.started for run in runs) or set(seeds) - {*planned}:
        return SeedPlan("anytime")
    return SeedPlan("planned" if seeds == planned else "incomplete", planned, seeds)
