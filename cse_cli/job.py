"""What is to be run, before and after its parts are built."""

from __future__ import annotations

from dataclasses import dataclass

from cse_cli.data import Batches, Text
from cse_cli.devices import Compute
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.resolve import Experiment
from cse_cli.run_folder import RunFolder


@dataclass(frozen=True)
class Job:
    """What is to be run.

    Args:
        loaded: The recipe and where it came from.
        seed: Of initialisation, dropout and order.
        device: As `cse_cli.devices.choose` takes it.
        resume: The run to take up again.
    """

    loaded: LoadedRecipe
    seed: int
    device: str = "auto"
    resume: RunFolder | None = None


@dataclass(frozen=True)
class Prepared:
    """A job with everything built and read, before anything is recorded.

    Args:
        text: None for recipes without training, as are the batches.
        steps: Of the whole training.
    """

    job: Job
    compute: Compute
    experiment: Experiment
    text: Text | None
    batches: Batches | None
    steps: int
