"""The environment of a run: versions, hardware, settings, git commit; enough to tell later why two runs differ."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from functools import lru_cache
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from cse_cli import __version__

_NAMED = ("torch", "transformers", "datasets", "mlflow", "numpy", "tokenizers", "optuna")
_SETTINGS = re.compile(r"CSE_\w+|OMP_NUM_THREADS|CUDA_VISIBLE_DEVICES|HF_HUB_OFFLINE|HF_HOME|MLFLOW_\w+|CUBLAS_\w+")
# Read by MLflow as a secret, or a URI that may carry one.
_SECRET = re.compile(r"TOKEN|PASSWORD|SECRET|_KEY")
DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""Settings of MLflow in this process where the environment does not set them."""
_GIT_SECONDS = 5


def environment(recipe: Path | None = None) -> dict[str, Any]:
    """Return versions, hardware, settings and every installed package, JSON-ready.

    Args:
        recipe: File whose repository's commit is "git"; the working directory where there is none.
    """
    packages = _packages()
    return {
        "schema_version": 1,
        "cse": __version__,
        "python": platform.python_version(),
        **{name: packages.get(name) for name in _NAMED},
        "git": git_commit(recipe or Path.cwd()),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "cuda": cuda_devices(),
        "settings": settings(),
        "packages": [f"{name}=={version}" for name, version in packages.items()],
    }


def cuda_devices() -> list[str]:
    """Return name and memory of each CUDA device torch sees."""
    import torch

    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [f"{device.name}, {device.total_memory / 2**30:.0f} GB" for device in found]


def name_clash() -> str | None:
    """Return which other package called `registry` hides ours, or None; the name is a common one."""
    ours = Path(__file__).resolve().parents[2] / "registry" / "__init__.py"
    found = find_spec("registry")
    origin = Path(found.origin).resolve() if found and found.origin else None
    if origin == ours:
        return None
    return f"the package 'registry' is {origin or 'not found'}, not {ours}: uninstall or move the other one"


def settings() -> dict[str, str]:
    """Return the environment variables that change what a run does; passwords are left out."""
    found = {k: v for k, v in sorted(os.environ.items()) if _SETTINGS.fullmatch(k) and not _SECRET.search(k)}
    return {name: without_password(value) for name, value in found.items() if DEFAULTS.get(name) != value}


def without_password(address: str) -> str:
    """Return the address without its password: it goes into messages and reports."""
    return re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:***@", address)


def git_commit(path: Path) -> str | None:
    """Return the commit of the repository a file or folder belongs to, with "+" when something there is uncommitted.

    Returns:
        None outside a repository, before its first commit, for a file it ignores, or where git is not installed.
    """
    path = path.absolute()
    folder = path if path.is_dir() else path.parent
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or _git(folder, "check-ignore", "--quiet", str(path)) is not None:
        return None
    unknown = path.is_file() and _git(folder, "ls-files", "--error-unmatch", str(path)) is None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+" if changed or unknown else commit


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, or None where it fails."""
    # Optional locks would write the index of the user's repository.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@lru_cache(maxsize=1)
def _packages() -> dict[str, str]:
    """Return name → version of everything installed, without importing any of it."""
    found = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
    return dict(sorted(found.items()))
