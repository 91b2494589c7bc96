"""Record each step of `cse run`, and compare the steps with those that another program recorded.

    python -m benchmarks.trajectory run OUT RECIPE [options of cse run] [--float64]
    python -m benchmarks.trajectory compare OUT OTHER [PREFIX=OTHER_PREFIX …]

`run` writes OUT.jsonl, with the loss, the gradient's norm, the learning rate and digests of the tokens of each step.
It writes the weights before the first and after the last step to OUT.start.pt and OUT.end.pt. Another program that
starts with these weights writes the same, apart from the start. `compare` prints the largest relative differences over
the steps. With the prefixes of names of weights in both, it also prints the distance of the last weights from each
other, divided by the distance that the training moved them. docs/fidelity.md names what the other program needs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cse_cli.__main__ import main as cse
from cse_cli.training import trainer
from cse_cli.training.method import Method
from cse_cli.training.train_step import Look, StepOutput, TrainStep
from registry.tokens import Tokens

NUMBERS = ("loss", "norm", "rate")


def run(out: str, options: Sequence[str]) -> None:
    """Run `cse run` with these options and record each step."""

    class Recorder(TrainStep):
        def __init__(self, method: Method, *others: Any) -> None:
            super().__init__(method.double() if "--float64" in options else method, *others)
            save(method, f"{out}.start.pt")

        def take(self, done: int, look: Look | None = None) -> StepOutput:
            taken = super().take(done, look)
            numbers = (taken.loss.item(), taken.norm.item(), taken.learning_rate)
            tokens = [digest(one) for one in taken.step.batch.values()]
            record.write(json.dumps(dict(zip(NUMBERS, numbers, strict=True)) | {"tokens": tokens}) + "\n")
            if done + 1 == self.total:
                save(self.method, f"{out}.end.pt")
            return taken

    trainer.TrainStep = Recorder  # type: ignore[misc]
    sys.argv = ["cse", "run", *(option for option in options if option != "--float64")]
    with Path(f"{out}.jsonl").open("w", encoding="utf-8") as record:
        cse()


def save(method: Method, path: str) -> None:
    """Save the weights in a format that PyTorch 1.7 can read, too."""
    weights = {name: value for name, value in method.state_dict().items() if isinstance(value, torch.Tensor)}
    torch.save(weights, path, _use_new_zipfile_serialization=False)


def digest(tokens: Tokens) -> str:
    """Return the MD5 of the token ids without padding, as lists in JSON."""
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(tokens.ids, tokens.mask, strict=True)]
    return hashlib.md5(json.dumps(rows).encode(), usedforsecurity=False).hexdigest()


def compare(here: str, there: str, prefixes: Sequence[str]) -> dict[str, float]:
    """Return the largest relative differences of two records, and that of the last weights with these prefixes."""
    records = (Path(f"{name}.jsonl").read_text(encoding="utf-8").splitlines() for name in (here, there))
    steps = [(json.loads(a), json.loads(b)) for a, b in zip(*records, strict=True)]
    same = sum(a["tokens"][: len(b["tokens"])] == b["tokens"] for a, b in steps)
    found = {"steps": len(steps), "steps with equal tokens": same}
    found |= {number: max(abs(a[number] - b[number]) / abs(b[number]) for a, b in steps) for number in NUMBERS}
    if prefixes:
        start, end, wanted = (torch.load(file) for file in (f"{here}.start.pt", f"{here}.end.pt", f"{there}.end.pt"))
        apart = moved = 0.0
        for own, other in (prefix.split("=") for prefix in prefixes):
            for name in (name for name in end if name.startswith(own)):
                weights = wanted[other + name.removeprefix(own)].double()
                apart += (end[name].double() - weights).square().sum().item()
                moved += (start[name].double() - weights).square().sum().item()
        found["weights"] = (apart / moved) ** 0.5
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", out, *options]:
            run(out, options)
        case ["compare", here, there, *prefixes]:
            print(*(f"{name} {number:.2g}" for name, number in compare(here, there, prefixes).items()), sep=", ")
        case _:
            sys.exit(__doc__)
