"""Several processes that run one thing together, as a launcher would start them."""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

PATIENCE = timedelta(seconds=120)
multiprocessing.set_forkserver_preload(["tests.support.preloaded"])


def on_ranks(worker: Callable[..., Any], *arguments: Any, world: int = 2) -> list[Any]:
    """Return what `worker(*arguments)` returns on each of `world` processes, by rank; none is left behind."""
    with TemporaryDirectory() as folder:
        given = (world, folder, dict(os.environ), worker, arguments)
        start_processes(_enter, given, nprocs=world, start_method="forkserver")  # type: ignore[no-untyped-call]
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(world)]


def _enter(
    rank: int,
    world: int,
    folder: str,
    environment: Mapping[str, str],
    worker: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    os.environ.clear()  # the server's is that of its own start
    os.environ.update(environment)
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"  # a file needs no free port to be guessed
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=PATIENCE)
    torch.save(worker(*arguments), Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def without_dropout(method: torch.nn.Module) -> None:
    """Switch dropout off, and let what is drawn at random depend on the column alone.

    Then it is the same however many processes share the rows.
    """
    for module in method.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    vars(torch).update(rand=_by_column, randint_like=_integers_by_column)


def _integers_by_column(like: torch.Tensor, high: int) -> torch.Tensor:
    return (_by_column(like.shape) * high).to(like.dtype)


def _by_column(*shape: Any, **_: Any) -> torch.Tensor:
    sizes = shape[0] if isinstance(shape[0], tuple) else shape
    columns = torch.frac(torch.arange(1, sizes[-1] + 1) * 0.6180339887)
    return columns.expand(sizes) if len(sizes) > 1 else torch.full(tuple(sizes), 0.5)
