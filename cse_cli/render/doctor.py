"""The doctor's report: Markdown to paste into an issue, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cse_cli.doctor import Check

_VERSIONS = ("cse", "python", "torch", "transformers", "tokenizers", "datasets", "mlflow", "optuna", "numpy")


def print_report(environment: Mapping[str, Any], checks: Sequence[Check]) -> None:
    """Print the report as Markdown: its lines stay readable without rendering."""
    cuda = "; ".join(environment["cuda"]) or "none"
    machine = f"{environment['platform']}, {environment['cpus']} CPUs, {environment['memory_gb']} GB"
    lines = [
        "## cse doctor",
        "",
        f"- versions: {', '.join(f'{name} {environment[name] or None}' for name in _VERSIONS)}",
        f"- machine: {machine}, CUDA: {cuda}",
        f"- working directory's commit: {environment['git'] or 'none'}",
        f"- settings: {', '.join(f'{k}={v}' for k, v in environment['settings'].items()) or 'none'}",
        "",
        *(f"- {_word(check)} {check.about}: {_one_line(check.says)}" for check in checks),
        "",
        _verdict(checks),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def write_report_json(environment: Mapping[str, Any], checks: Sequence[Check]) -> None:
    """Write the same as one JSON document, with every installed package."""
    document = {"schema_version": 1, "environment": environment, "checks": [asdict(check) for check in checks]}
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _word(check: Check) -> str:
    return {"ok": "ok,", "note": "note,", "problem": "**problem**,"}[check.state]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _verdict(checks: Sequence[Check]) -> str:
    problems = [check.about for check in checks if check.state == "problem"]
    return f"problems: {', '.join(problems)}" if problems else "no problem found"
