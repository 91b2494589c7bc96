"""Environment of a run: versions, hardware, settings and git commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess  # nosec B404
from functools import lru_cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import psutil

from cse_cli._version import __version__
from cse_cli.core.threads import KERNELS, WAITING, is_portable

_NAMED = ("torch", "transformers", "datasets", "mlflow-skinny", "numpy", "tokenizers", "optuna")
_SETTINGS = re.compile(
    r"CSE_\w+|OMP_NUM_THREADS|OMP_WAIT_POLICY|GOMP_SPINCOUNT|KMP_BLOCKTIME|CUDA_VISIBLE_DEVICES"
    r"|HF_HUB_OFFLINE|HF_HOME|MLFLOW_\w+|CUBLAS_\w+|ONEDNN_\w+|ATEN_\w+|MKL_\w+"
)
_SECRET = re.compile(r"TOKEN|PASSWORD|SECRET|_KEY")
# SQLAlchemy accepts a password with spaces.
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
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",  # a pool would keep a database file open that was replaced
}
"""Default settings of MLflow in this process."""
_NAME, _VERSION = (re.compile(rf"^{field}: *(\S+) *$", re.MULTILINE) for field in ("Name", "Version"))
_PACKAGE = Path(__file__).resolve().parents[1]
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def environment(recipe: Path | None = None) -> dict[str, Any]:
    """Return versions, hardware, settings, installed packages, and the commit of the recipe's (or this) directory."""
    import torch

    packages = _packages()
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "schema_version": 1,
        "cse": __version__,
        "python": platform.python_version(),
        **{name: packages.get(name) for name in _NAMED},
        "git": git_commit(recipe or Path.cwd()),
        "platform": platform.platform(),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "cuda": [f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GB" for gpu in gpus],
        "settings": settings(),
        "packages": [f"{name}=={version}" for name, version in packages.items()],
    }


def processor() -> str:
    """Return the processor's name, and the instructions that torch uses: other ones round differently."""
    import torch

    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:  # not Linux
        found = None
    name = platform.processor() or platform.machine() if found is None else found[1]
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}{', portable' if is_portable() else ''}"


def settings() -> dict[str, str]:
    """Return the environment variables that affect a run, without passwords."""
    found = {k: v for k, v in sorted(os.environ.items()) if _SETTINGS.fullmatch(k) and not _SECRET.search(k)}
    usual = DEFAULTS | WAITING | KERNELS
    return {name: without_password(value) for name, value in found.items() if usual.get(name) != value}


def without_password(text: str) -> str:
    """Return a text with the passwords and tokens of its addresses replaced by "***".

    A password ends at the last "@" of the address. (SQLAlchemy ends it at the first one, urllib at the last one before
    "/".)
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
    """Return the commit of the repository that contains a path, or None without a repository, a commit or git.

    `git rev-parse` only reads files. It does not run the programs that an untrusted `.git/config` can name.
    """
    directory = path.absolute() if path.is_dir() else path.absolute().parent
    command = ["git", "-C", str(directory), "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    commit = done.stdout.strip()
    return commit if _COMMIT.fullmatch(commit) else None


def differing_versions() -> dict[str, dict[str, str]]:
    """Return package → its version "here" and the one of the published "figures" (`constraints.txt`), if they differ.

    Builds of one version, such as 2.13.0+cpu, are equal. Packages that are not installed do not count.
    """
    bundled = _PACKAGE / "_constraints.txt"
    file = bundled if bundled.is_file() else _PACKAGE.parent / "constraints.txt"
    lines = file.read_text(encoding="utf-8").lower().replace("_", "-").split("\n")
    figures = dict(line.split("==") for line in lines if "==" in line)
    here = {name.replace("_", "-"): version.partition("+")[0] for name, version in _packages().items()}
    return {
        name: {"here": here[name], "figures": version}
        for name, version in figures.items()
        if here.get(name, version) != version
    }


@lru_cache(maxsize=1)
def _packages() -> dict[str, str]:
    """Return name → version of all installed packages, from the first lines of their metadata: a parser takes 0.2 s."""
    texts = (one.read_text("METADATA") or one.read_text("PKG-INFO") or "" for one in distributions())
    found = ((_NAME.search(text), _VERSION.search(text)) for text in texts)
    return dict(sorted({name[1].lower(): version[1] for name, version in found if name and version}.items()))
