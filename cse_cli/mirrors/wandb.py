"""Weights & Biases as a mirror of records, offline unless `WANDB_MODE` is set. `wandb sync` uploads the files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import wandb

from cse_cli.mirrors.mirror import Mirror, about_tags
from cse_cli.runs.details import settings_of
from cse_cli.runs.events import ENDS, Event


class WandbMirror(Mirror):
    """A run in Weights & Biases. Its files are in `mirrors/wandb/` in the directory of the run's record."""

    name = "wandb"

    @classmethod
    def connect(cls) -> str:
        """Return the server, or "offline". `open` is the first request to a server."""
        offline = os.environ.get("WANDB_MODE", "offline") == "offline"
        return "offline" if offline else os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")

    def open(self, parent: str) -> str:
        """Create the run with the ID of its record. It replaces what W&B has of the run."""
        folder = self.about.path / "mirrors" / "wandb"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tags = {key: value for key, value in about_tags(self.about).items() if not key.startswith("mlflow.")}
        self._run = wandb.init(
            id=self.about.run_id,
            project=os.environ.get("WANDB_PROJECT", "cse"),
            group=self.about.group,
            name=self.about.name,
            notes=self.about.note,
            tags=[f"{key}={value}"[:64] for key, value in self.about.tags.items()],
            config=settings_of(self.about.run_id) | tags | ({"parent": parent} if parent else {}),
            dir=str(folder),
            mode=cast(Any, os.environ.get("WANDB_MODE", "offline")),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True, symlink=False),
        )
        self._run.define_metric("*", step_metric="step")  # W&B's own step must not repeat or decrease
        self._failed = False
        return self.about.run_id

    def send(self, events: Sequence[Event]) -> None:
        """Send events to the process that W&B starts for each run."""
        for event in events:
            data = event.data
            if event.kind in ("metrics", "system"):
                step = data.get("step", int(event.time - self.about.created.timestamp()))
                values = {key: float(value) for key, value in data["values"].items()}
                self._run.log({**values, "step": step, "_timestamp": event.time})
            elif event.kind == "tags":
                self._run.config.update(data["values"], allow_val_change=True)
            elif event.kind == "dataset":
                digest = {f"data.{data['context']}.{data['name']}": data["digest"]}
                self._run.config.update(digest, allow_val_change=True)
            elif event.kind == "file":
                source = self.about.path / data["name"]
                for file in filter(Path.is_file, (source, *source.rglob("*"))):
                    self._run.save(str(file), base_path=str(self.about.path), policy="now")
            elif event.kind in (*ENDS, "lost"):
                self._run.summary.update({"state": event.kind.upper(), "reason": data.get("reason", "")})
                self._failed = event.kind not in ("finished", "pruned")

    def close(self) -> None:
        """Write all data of the run."""
        self._run.finish(exit_code=int(self._failed))
