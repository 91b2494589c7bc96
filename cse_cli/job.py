"""What is to be run, before and after its parts are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cse_cli.data.batches import Batches
from cse_cli.data.sources import Text
from cse_cli.data.stream import Stream, StreamedText
from cse_cli.devices import Compute
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.resolve import Experiment
from cse_cli.run_folder import RunFolder


@dataclass(frozen=True)
class Below:
    """Where a run stands that is part of another.

    Args:
        parent: The run it belongs to; None where that is not recorded.
        name: Its own name.
        tags: What else says so.
    """

    parent: str | None
    name: str
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """What is to be run.

    Args:
        loaded: The recipe and where it came from.
        seed: Of initialisation, dropout and order.
        device: As `cse_cli.devices.choose` takes it.
        resume: The run to take up again.
        study: The cell of a study that it belongs to, as its tag says.
        below: The run that it is part of.
        lean: Whether only scores and curves are kept: no model, no figures, no numbers of single pairs.
    """

    loaded: LoadedRecipe
    seed: int
    device: str = "auto"
    resume: RunFolder | None = None
    study: str | None = None
    below: Below | None = None
    lean: bool = False

    @property
    def name(self) -> str:
        """What a list of runs shows."""
        return self.below.name if self.below else f"{self.loaded.name} seed {self.seed}"


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
    text: Text | StreamedText | None
    batches: Batches | Stream | None
    steps: int

    @property
    def sentences(self) -> int:
        """Rows of the training text; of a stream, whose length is not known, those that the steps take."""
        if self.text is None or self.batches is None:
            return 0
        return self.steps * self.batches.batch_size if self.text.rows is None else self.text.rows
