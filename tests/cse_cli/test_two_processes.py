"""Two processes with half of a batch each compute the gradients of one with the whole batch, in every method."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from cse_cli.data import Batches, open_text
from cse_cli.method import Method
from cse_cli.recipe.load import load
from cse_cli.resolve import Experiment, resolve
from cse_cli.step import StepState
from tests.shrunken import small

BATCH = 16
STEPS = 3
METHODS = {
    "simcse_en": [],
    "ifcl_en": [],
    "mocose_en": ["views.query.augment.0.epsilon=0.001", "encoders.target.decay=0.5"],
    "focal_infonce_en": [],
    "conisi_s_en": [],
}
"""Recipe → what is changed so that the comparison can see the part: FGSM's step of 5e-9 changes no gradient."""


def experiment(recipe: str, changes: list[str], dropped: list[str]) -> tuple[Experiment, Method]:
    """Return the experiment in double precision, all dropout off."""
    made = resolve(load(recipe, changes, dropped).recipe, seed=5)
    method = made.method.double()
    for module in method.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return made, method.train()


def gradients(made: Experiment, method: Method, rank: int, world: int) -> list[dict[str, Tensor]]:
    """Return parameter → gradient of each of a few steps; after each, weights move a little and components act."""
    recipe = made.recipe
    text = open_text(recipe.data, made.columns)
    batches = Batches(text, made.plans, BATCH, recipe.data.max_length, 7, rank, world)
    module = method if world == 1 else nn.parallel.DistributedDataParallel(method, broadcast_buffers=False)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.05)
    generator = torch.Generator().manual_seed(3)
    found = []
    for index in range(STEPS):
        step = StepState(method, batches.batch(index), index, STEPS, generator)
        method.objective(module(step)).backward()
        found.append({k: p.grad.clone() for k, p in method.named_parameters() if p.grad is not None})
        optimizer.step()
        optimizer.zero_grad()
        for _, component in method.components():
            component.after_step(step)
    return found


def _worker(rank: int, port: int, folder: str, recipe: str, changes: list[str], dropped: list[str]) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.save(gradients(*experiment(recipe, changes, dropped), rank, 2), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", METHODS)
def test_gradients_agree(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "home"))
    changes, dropped = options(recipe, tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_worker, (port, str(tmp_path), recipe, changes, dropped), nprocs=2)
    alone = gradients(*experiment(recipe, changes, dropped), 0, 1)
    differences = []
    for rank in range(2):
        for theirs, ours in zip(torch.load(tmp_path / f"{rank}.pt"), alone, strict=True):
            assert theirs.keys() == ours.keys()
            differences.append(max(float((theirs[k] - ours[k]).abs().max()) for k in ours))
    largest = max(float(g.abs().max()) for step in alone for g in step.values())
    assert largest > 1e-3, "a comparison of zeros shows nothing"
    assert max(differences) <= 1e-5, json.dumps(differences)


def options(recipe: str, folder: Path) -> tuple[list[str], list[str]]:
    """Return the overrides and removals of a tiny version without dropout."""
    parts = small(folder)
    changes, dropped = parts.options(load(recipe).recipe)
    rates: dict[str, Any] = {name: part.params for name, part in load(recipe).recipe.encoders.items()}
    off = [f"encoders.{name}.dropout=0.0" for name, params in rates.items() if "model" in params]
    return [*changes, *off, f"train.batch_size={BATCH}", *METHODS[recipe]], dropped
