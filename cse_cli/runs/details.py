"""Everything that is recorded of one run, for `cse runs show` and reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cse_cli.runs.events import History, read_history
from cse_cli.runs.index import RecordedRun, read_run
from cse_cli.runs.record import MODEL, read_recipe
from registry.errors import CseError

_PROSE = ("description", "tune")


@dataclass(frozen=True)
class RunDetails:
    """Everything that is recorded of one run.

    Args:
        run: The run as lists show it.
        history: What its events say.
        settings: Dotted key → value of every setting of the resolved recipe.
        files: Paths of its files, relative to its directory, without those of mirrors.
        mirrors: Name of a tracker → address and ID of the run there.
    """

    run: RecordedRun
    history: History
    settings: dict[str, str]
    files: list[str]
    mirrors: dict[str, dict[str, str]]

    @property
    def model(self) -> str:
        """Directory of the selected model, which transformers load. Empty if there is none."""
        folder = self.run.about.path / MODEL
        return str(folder) if folder.is_dir() else ""

    @property
    def metrics(self) -> dict[str, float]:
        """Value of each metric at its last step."""
        return {name: points[max(points)] for name, points in sorted(self.history.metrics.items())}

    @property
    def curves(self) -> dict[str, list[tuple[int, float]]]:
        """Step and value of each metric that has several points, in the order of the steps."""
        found = sorted(self.history.metrics.items())
        return {name: sorted(points.items()) for name, points in found if len(points) > 1}


def details(run_id: str) -> RunDetails:
    """Return everything about a run, by its whole ID.

    Raises:
        CseError: If its `run.toml` cannot be read.
    """
    run = read_run(run_id)
    folder = run.about.path
    settings: dict[str, str] = {}
    with suppress(CseError):  # the record of a search has no recipe
        settings = dict(leaves({key: value for key, value in read_recipe(run_id).items() if key not in _PROSE}))
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    files = sorted(str(path) for path in paths if path.parts[0] != "mirrors")
    return RunDetails(run, read_history(folder), settings, files, _mirrors(run))


def leaves(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted key and text of every value of nested tables."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _mirrors(run: RecordedRun) -> dict[str, dict[str, str]]:
    found = {}
    for file in sorted(run.about.path.glob("mirrors/*.json")):
        with suppress(OSError, ValueError, AttributeError):  # a damaged file is written again by the mirror
            state = json.loads(file.read_text(encoding="utf-8"))
            found[file.stem] = {name: str(state.get(name, "")) for name in ("uri", "id")}
    return found
