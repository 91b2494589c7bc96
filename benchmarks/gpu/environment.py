"""Description of the machine and list of missing packages.

    python -m benchmarks.gpu.environment [--missing] [--json FILE]

`--missing` prints only the names of the missing packages, for an installer.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
from pathlib import Path

from benchmarks.gpu.document import write

NEEDED = {
    "torch": "torch",
    "transformers": "transformers",
    "tokenizers": "tokenizers",
    "safetensors": "safetensors",
    "numpy": "numpy",
    "scipy": "scipy",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "tomlkit": "tomlkit",
    "tomli_w": "tomli-w",
    "tree_sitter": "tree-sitter",
    "tree_sitter_toml": "tree-sitter-toml",
    "filelock": "filelock",
    "platformdirs": "platformdirs",
    "psutil": "psutil",
    "huggingface_hub": "huggingface-hub",
    "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
    "sentence_transformers": "sentence-transformers",
    "accelerate": "accelerate",
    "datasets": "datasets",
}
"""Module → package that the parts need, fewer than the project."""


def missing() -> list[str]:
    """Return the packages that cannot be imported."""
    return [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]


def main() -> None:
    """Write the description of the machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.missing:
        print("\n".join(missing()))
        return
    from benchmarks.training.machine import describe

    machine, absent = describe(), missing()
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items() if value)
    lines = [
        f"{machine['date']}: {'; '.join(machine['gpus']) or 'no GPU'}; {machine['cores']} cores ({machine['cpu']}), "
        f"{machine['memory_gb']:.0f} GB, {machine['platform']}, Python {machine['python']}, {versions}; "
        f"commit {machine['commit']}; load {machine['load_at_start'][0]}.",
        f"Missing packages: {', '.join(absent) or 'none'}.",
    ]
    if shutil.which("nvidia-smi"):
        asked_of = "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.limit,memory.total"
        command = ["nvidia-smi", asked_of, "--format=csv"]
        lines += ["```", subprocess.run(command, capture_output=True, text=True).stdout.strip(), "```"]
    write(asked.json, {**machine, "missing": absent}, lines)


if __name__ == "__main__":
    main()
