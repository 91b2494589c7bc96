"""Where runs computed, with what, and on which data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cse_cli.report.parts import Code, Facts, Part, Section, Words, plain_table
from cse_cli.report.words import alike, counted, day, duration
from cse_cli.results import Result
from registry.catalogue.pairs import ROWS

DIGEST = 16
"""Characters of a fingerprint that are shown; result.json has all."""
_PLACE = re.compile(r"[/\\]|://")
"""In what names a folder or a server: that is nobody else's business."""


def environment(results: Sequence[Result], noted: Mapping[str, Any]) -> Section:
    """Return device, versions, commit and time.

    Args:
        results: Of several runs, what they do not have in common is listed.
        noted: What one run noted of its surroundings; empty where that cannot be read.
    """
    versions = [result.versions for result in results]
    rates = [result.sentences_per_second for result in results if result.sentences_per_second]
    pairs = {
        "device": alike(result.device for result in results),
        "CUDA devices": alike(noted.get("cuda", ())),
        "precision": alike(result.precision for result in results),
        "machine": _machine(noted),
        "commit of the recipe": alike(map(_commit, versions)),
        "cse": alike(one.cse for one in versions),
        "Python": alike(one.python for one in versions),
        "torch": alike(one.torch for one in versions),
        "transformers": alike(one.transformers for one in versions),
        "settings": ", ".join(f"{name}={value}" for name, value in settings(noted).items()),
        "finished": _when(results),
        "training time": _time(results),
        "throughput": f"{sum(rates) / len(rates):,.0f} sentences a second while training" if rates else "",
    }
    facts = Facts(tuple((name, value) for name, value in pairs.items() if value))
    packages = noted.get("packages") or ()
    folded = Code("\n".join(packages), "text", f"{counted(len(packages), 'installed package')}")
    return Section("Environment", (facts, folded) if packages else (facts,))


def settings(noted: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that change what a run does; those that name a place are left out."""
    found: Mapping[str, str] = noted.get("settings") or {}
    return {name: value for name, value in found.items() if value and not _PLACE.search(value)}


def places(noted: Mapping[str, Any]) -> list[str]:
    """Return the variables that name where data and models lie."""
    found: Mapping[str, str] = noted.get("settings") or {}
    return [name for name in ("CSE_DATA", "CSE_MODELS") if found.get(name)]


def data(results: Sequence[Result]) -> Section:
    """Return the fingerprint of every data set; runs that read other data under one name are told."""
    known = dict.fromkeys(name for result in results for name in result.fingerprints)
    rows = [(name, alike(r.fingerprints.get(name, "")[:DIGEST] for r in results)) for name in known]
    if not rows:
        return Section("Data", ())
    parts: list[Part] = [plain_table("Fingerprints of the data", ("fingerprint",), rows)]
    parts.append(Words("Equal fingerprints mean the same sentences, pairs and scores, in the same order."))
    if any(_contradict(result.fingerprints.get(name, "") for result in results) for name in known):
        parts.append(Words("Several fingerprints in one line: the runs did not all read the same data."))
    return Section("Data", tuple(parts))


def _contradict(digests: Iterable[str]) -> bool:
    """Tell whether data differ: digests of files, which earlier versions recorded, say nothing of those of rows."""
    kinds = Counter(digest.startswith(ROWS) for digest in set(digests) - {""})
    return any(several > 1 for several in kinds.values())


def _machine(noted: Mapping[str, Any]) -> str:
    parts = [str(noted.get("platform") or "")]
    if cpus := noted.get("cpus"):
        parts.append(counted(int(cpus), "CPU core"))
    if memory := noted.get("memory_gb"):
        parts.append(f"{memory} GB memory")
    return ", ".join(part for part in parts if part)


def _commit(versions: Any) -> str:
    commit = versions.git or ""
    return f"{commit[:-1]} with uncommitted changes" if commit.endswith("+") else commit


def _when(results: Sequence[Result]) -> str:
    first, last = (end(result.finished for result in results) for end in (min, max))
    return day(first) if first == last else f"{day(first)} to {day(last)}"


def _time(results: Sequence[Result]) -> str:
    seconds = [result.seconds for result in results]
    if len(seconds) == 1:
        return duration(seconds[0])
    return f"{duration(sum(seconds) / len(seconds))} a run, {duration(sum(seconds))} for {counted(len(seconds), 'run')}"
