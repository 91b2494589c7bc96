"""Weights & Biases as a mirror of records, offline unless `WANDB_MODE` is set. `wandb sync` uploads the files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import wandb

from cse_cli.mirrors.mirror import Mirror, Target, about_tags
from cse_cli.runs.details import settings_of
from cse_cli.runs.events import ENDS, Event

_MODE = "offline"
_PROJECT = "cse"
_STEP = "step"
"""Metric on the x axis. W&B's own step must not repeat or decrease."""


class WandbMirror(Mirror):
    """A run in Weights & Biases. Its files are in `mirrors/wandb/` in the directory of the run's record."""

    name = "wandb"

    @classmethod
    def connect(cls) -> Target:
        """Return the server, or "offline". `open` is the first request to a server."""
        mode = os.environ.get("WANDB_MODE") or _MODE
        return Target(mode if mode == _MODE else os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))

    def open(self, run_id: str, parent: str) -> str:  # noqa: ARG002 - the ID is that of the record
        """Create or continue the run with the ID of its record."""
        folder = self.about.path / "mirrors" / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            id=self.about.run_id,
            resume="allow",
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            group=self.about.group,
            name=self.about.name,
            notes=self.about.note,
            tags=[f"{key}={value}"[:64] for key, value in self.about.tags.items()],
            config=self._config(parent),
            dir=str(folder),
            mode=cast(Any, os.environ.get("WANDB_MODE") or _MODE),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True, symlink=False),
        )
        self._run.define_metric("*", step_metric=_STEP)
        return self.about.run_id

    def send(self, events: Sequence[Event]) -> None:
        """Send events to the process that W&B starts for each run."""
        for event in events:
            if event.kind in ("metrics", "system"):
                self._log(event)
            elif event.kind == "tags":
                self._configure(event.data["values"])
            elif event.kind == "dataset":
                self._configure({f"data.{event.data['context']}.{event.data['name']}": event.data["digest"]})
            elif event.kind == "file":
                self._save(event.data["name"])
            elif event.kind in (*ENDS, "lost"):
                self._end(event)

    def close(self) -> None:
        """Write all data of the run. A later `open` continues it."""
        self._run.finish()

    def _config(self, parent: str) -> dict[str, Any]:
        tags = {key: value for key, value in about_tags(self.about).items() if not key.startswith("mlflow.")}
        return settings_of(self.about.run_id) | tags | ({"parent": parent} if parent else {})

    def _configure(self, values: Mapping[str, str]) -> None:
        self._run.config.update(dict(values), allow_val_change=True)

    def _log(self, event: Event) -> None:
        step = event.data.get("step", int(event.time - self.about.created.timestamp()))
        values = {key: float(value) for key, value in event.data["values"].items()}
        self._run.log({**values, _STEP: step, "_timestamp": event.time})

    def _save(self, name: str) -> None:
        source = self.about.path / name
        files = [source] if source.is_file() else [file for file in source.rglob("*") if file.is_file()]
        for file in files:
            self._run.save(str(file), base_path=str(self.about.path), policy="now")

    def _end(self, event: Event) -> None:
        self._run.summary["state"] = event.kind.upper()
        if event.data.get("reason"):
            self._run.summary["reason"] = event.data["reason"]
        self._run.finish(exit_code=0 if event.kind in ("finished", "pruned") else 1)
