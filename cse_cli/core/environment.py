"""The environment of a run: versions, hardware, settings, git commit; enough to tell later why two runs differ."""

from __future__ import annotations

import os
import platform
import re
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
# SQLAlchemy takes a password with blanks in it.
_ADDRESS = re.compile(r"([a-z][\w+.-]*://)((?<!http://)(?<!https://)[^\s:/?#@]*:[^@\n]*@\S*|\S*)", re.IGNORECASE)
_SECRET_OPTION = re.compile(
    r"([?&;]\w*(?:password|passwd|pwd|phrase|secret|token|key|odbc_connect)=)[^&;\s]+", re.IGNORECASE
)
DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""Settings of MLflow in this process where the environment does not set them."""
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LONGEST_LINE = 4096


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


def without_password(text: str) -> str:
    """Return an address, or a text with addresses in it, as it may be shown and kept: without passwords and tokens.

    Programs do not agree where a password ends (SQLAlchemy: at the first "@", urllib: at the last one before "/"), so
    it is taken to end at the last "@" of the address.
    """
    return _SECRET_OPTION.sub(r"\1***", _ADDRESS.sub(_without_user, text))


def _without_user(address: re.Match[str]) -> str:
    scheme, rest = address.groups()
    before, at, host = rest.rpartition("@")
    user, colon, secret = before.partition(":")
    web = scheme.lower() in ("http://", "https://")
    if not at or re.search(r"[/?#]", user) or (web and re.match(r"\d*[/?#]", secret)):
        return address[0]  # no "@", or one after the server's name and port
    if web and not secret:
        return f"{scheme}***@{host}"
    return f"{scheme}{user}:***@{host}" if colon else address[0]


def git_commit(path: Path) -> str | None:
    """Return the commit that the repository around a file or folder is at, whatever is changed there since.

    Read from the repository's files: git itself would run the programs that a stranger's `.git/config` names.

    Returns:
        None outside a repository, before its first commit, or where refs are kept in a form of their own.
    """
    path = path.absolute()
    for folder in (path, *path.parents):
        if (folder / ".git").exists():
            return _head(folder / ".git")
    return None


def _head(entry: Path) -> str | None:
    """Return the commit of a repository, given its `.git`: a folder, or the file of a worktree that names one."""
    try:
        folder = entry if entry.is_dir() else entry.parent / _line(entry).removeprefix("gitdir: ")
        common = folder / _line(folder / "commondir") if (folder / "commondir").is_file() else folder
        commit = _line(folder / "HEAD")
        if commit.startswith("ref: "):
            name = commit.removeprefix("ref: ")
            places = (place for place in (folder / name, common / name) if place.is_file())
            commit = _line(found) if (found := next(places, None)) else _packed(common, name)
    except (OSError, ValueError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _line(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return lines.readline(_LONGEST_LINE).strip()


def _packed(common: Path, name: str) -> str:
    with (common / "packed-refs").open(encoding="utf-8") as lines:
        return next((line.split()[0] for line in lines if line.split()[1:] == [name]), "")


@lru_cache(maxsize=1)
def _packages() -> dict[str, str]:
    """Return name → version of everything installed, without importing any of it."""
    found = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
    return dict(sorted(found.items()))
