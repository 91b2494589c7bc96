"""Run or resume the seeds of a reproduction, with the machinery of `cse run`."""

from __future__ import annotations

import shlex
from dataclasses import replace

from cse_cli.core.console import Screen
from cse_cli.core.formatting import counted
from cse_cli.core.results import Result
from cse_cli.jobs.launch import run_all
from cse_cli.jobs.placement import choose_placement
from cse_cli.jobs.request import RunRequest
from cse_cli.reproduce.document import Reproduction, make_reproduction
from cse_cli.reproduce.target import Target, find_target
from registry.errors import CseError

SEEDS = 3
"""Default number of seeds."""


def run_seeds(what: str, request: RunRequest) -> tuple[Reproduction, int]:
    """Return the reproduction of a row or recipe over the requested seeds, and the exit code.

    The verdict is about the finished seeds. The exit code is that of the first seed that failed, else 0.

    Raises:
        CseError: If no row or recipe has this name, or no seed could be run.
    """
    target = find_target(what, [str(one) for one in request.overrides], request.unset)
    recipe = str(target.loaded.path) if what.endswith(".toml") else target.loaded.name
    seeds = request.seeds or str(SEEDS if target.trained else 1)
    request = replace(request, recipes=[recipe], seeds=seeds)
    jobs = request.jobs()
    Screen(quiet=request.quiet).advise([_announcement(target, len(jobs))])
    ends = run_all(jobs, choose_placement(jobs, request), request)
    results = [end for end in ends if isinstance(end, Result)]
    errors = [end for end in ends if isinstance(end, CseError)]
    if not results:
        raise errors[0]
    options = [*request.settings(), "--seeds", seeds]
    return make_reproduction(target, results, options), errors[0].exit_code if errors else 0


def _announcement(target: Target, runs: int) -> str:
    reference = target.reference
    value = f"{reference.judged} {reference.claim.value:.{reference.claim.digits}f}"
    return f"reproducing {reference.name}: {value}, by {counted(runs, 'run')} of {shlex.quote(target.loaded.name)}"
