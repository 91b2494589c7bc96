"""One run in this process, from its claim to its end."""

from collections.abc import Mapping
from typing import Any

from cse_cli.jobs.engine import release
from cse_cli.jobs.job import Job
from cse_cli.runs.claim import Claimed
from cse_cli.runs.events import Listener


class Heard:
    """What a run says: the warnings, and every event with its kind."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, Any]]] = []

    def __call__(self, kind: str, data: Mapping[str, Any]) -> None:
        self.events.append((kind, data))

    @property
    def warnings(self) -> list[str]:
        return [data["text"] for kind, data in self.events if kind == "warning"]

    @property
    def losses(self) -> list[float]:
        logged = [data["values"] for kind, data in self.events if kind == "metrics"]
        return [values["train/loss"] for values in logged if "train/loss" in values]


def execute(job: Job, listener: Listener | None = None, device: str = "cpu") -> Any:
    """Do a run and return its result, or that of the same run if it is finished."""
    from cse_cli.training.run import train

    claim = job.claim(device)
    if not isinstance(claim, Claimed):
        return claim.result
    try:
        return train(claim.run_id, device, listener or Heard())
    finally:
        release(claim)
