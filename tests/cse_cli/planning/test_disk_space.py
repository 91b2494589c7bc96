"""The disk space of a plan is what a run writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from cse_cli.core.events import SilentObserver
from cse_cli.planning import disk_space
from cse_cli.recipe.load import load
from cse_cli.training import checkpoint
from cse_cli.training.build import Job
from cse_cli.training.run import execute, prepare
from tests.support.shrunken import recipe

pytestmark = pytest.mark.usefixtures("few_pairs", "undrawn")


@pytest.fixture
def file(tmp_path, parts):
    return recipe(tmp_path, parts, steps=6, evaluate_every=2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", ["adamw", "rmsprop", "sgd"])
def test_estimate_is_what_a_run_writes(file, home, optimizer, monkeypatch):
    sizes = {}

    def written(path, content, keep=None):
        own = {key: content[key] for key in ("method", "optimizer")} if keep else content
        sizes[path.name[:4]] = sum(
            each.nbytes for each in tensors(own) if each.ndim
        )  # Adam's counts of steps have none
        write(path, content, keep)

    write = checkpoint.write
    monkeypatch.setattr(checkpoint, "write", written)
    job = Job(load(str(file), [f"train.optimizer={optimizer}"]), 3, "cpu")
    needed = disk_space.needed(prepare(job, SilentObserver()))
    execute(job, SilentObserver())
    assert sizes == {"chec": needed.checkpoint, "best": needed.state}
    copies = {"adamw": 3, "rmsprop": 2, "sgd": 1}[optimizer]
    assert needed.checkpoint == copies * needed.state


def tensors(content: object) -> Iterator[torch.Tensor]:
    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, dict | list):
        for each in content.values() if isinstance(content, dict) else content:
            yield from tensors(each)
