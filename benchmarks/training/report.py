"""Markdown page of the measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def markdown(found: dict[str, Any]) -> str:
    """Return the page of a result document."""
    parts = [_machine(found["machine"], found["load_at_end"]), _agreement(found.get("agreement"))]
    parts += [_peers(one) for one in found.get("peers", [])]
    parts += [_shares(found.get("shares"))]
    parts += [_methods(found.get(part)) for part in ("methods", "variants")]
    parts += [_memory(found.get("memory")), _others(found.get("others"))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _machine(machine: dict[str, Any], load: list[float]) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items() if value)
    gpus = "".join(f"{gpu}; " for gpu in machine["gpus"])
    return (
        f"{machine['date']}: {gpus}{machine['cores']} cores ({machine['cpu']}), {machine['threads']} threads used, "
        f"{machine['memory_gb']:.0f} GB, {machine['platform']}, Python {machine['python']}, {versions}; "
        f"commit {machine['commit']}.\nLoad {machine['load_at_start'][0]} at the start, {load[0]} at the end, "
        f"of {machine['cores']} cores, niceness {machine['niceness']}.\n\n`{machine['command']}`"
    )


def _agreement(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    verdict = "the same" if found["holds"] else f"**NOT the same** (limit {found['limit']:.0e})"
    steps = len(next(iter(found["losses"].values())))
    head = f"Losses without dropout, fp32, {steps} steps from the same weights: {verdict}.\n\n"
    rows = [("implementation", "first loss", "last loss", "difference, first step", "largest difference")]
    for name, losses in found["losses"].items():
        differences = found["differences"].get(name)
        shown = (f"{differences[0]:.1e}", f"{max(differences):.1e}") if differences else ("", "")
        rows.append((name, f"{losses[0]:.7f}", f"{losses[-1]:.7f}", *shown))
    return head + _table(rows)


def _peers(found: dict[str, Any]) -> str:
    tokens = found["tokens"]
    head = (
        f"{found['title']}: {tokens['real']:.0f} tokens per step, {tokens['padding']:.1%} padding in a padded batch. "
        f"{found['rounds']} alternating rounds of {found['steps']} steps after {found['warm']} warm-up steps.\n\n"
    )
    rows = [
        (
            "implementation",
            "s per step",
            "rounds",
            "cpu s",
            "sentences/s",
            "tokens/s",
            "GFLOP per step",
            "GFLOP per cpu s",
            "speedup of cse",
        )
    ]
    own = found["ways"][0]
    for way in found["ways"]:
        seconds = way["wall_median"]
        rows.append(
            (
                way["name"],
                _seconds(seconds),
                _spread(way["wall"]),
                _seconds(way["cpu_median"]),
                f"{found['batch'] / seconds:,.0f}",
                f"{tokens['real'] / seconds:,.0f}",
                _work(way),
                _rate(way, found["limit"]),
                "" if way is own else f"{seconds / own['wall_median']:.2f} (cpu {_cpu_ratio(way, own)})",
            )
        )
    return head + _table(rows)


def _rate(way: dict[str, Any], limit: float | None) -> str:
    if way["gigaflop"] is None:
        return ""
    rate = way["gigaflop"] / way["cpu_median"]
    return f"{rate:.0f}" + ("" if limit is None else f" ({rate / limit:.0%} of {limit:.0f})")


def _shares(found: Sequence[dict[str, Any]] | None) -> str:
    if not found:
        return ""
    kinds = list(found[0]["shares"])
    rows = [("cse, processor time by kind of operation", *kinds)]
    rows += [(one["title"], *(f"{one['shares'][kind]:.0%}" for kind in kinds)) for one in found]
    return _table(rows)


def _work(way: dict[str, Any]) -> str:
    work = way["gigaflop"]
    return "" if work is None else f"{work:.3g}" if work < 100 else f"{work:,.0f}"


def _cpu_ratio(way: dict[str, Any], base: dict[str, Any]) -> str:
    return f"{way['cpu_median'] / base['cpu_median']:.2f}"


def _methods(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    first = found["ways"][0]
    rows = [("recipe or setting", "s per step", "rounds", "cpu s", "ratio to first", "ratio (cpu)", "GFLOP per step")]
    for way in found["ways"]:
        rows.append(
            (
                way["name"],
                _seconds(way["wall_median"]),
                _spread(way["wall"]),
                _seconds(way["cpu_median"]),
                f"{way['wall_median'] / first['wall_median']:.2f}",
                _cpu_ratio(way, first),
                _work(way),
            )
        )
    return f"{found['title']}.\n\n" + _table(rows)


def _memory(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    rows = [("implementation", "peak of the process, MB", "peak before the first step, MB", "peak on the device, MB")]
    for name, one in found.items():
        if "failed" in one:
            rows.append((name, one["failed"], "", ""))
            continue
        device = f"{one['device']:,.0f}" if "device" in one else ""
        rows.append((name, f"{one['process']:,.0f}", f"{one['before']:,.0f}", device))
    return "Memory, each implementation in a separate process.\n\n" + _table(rows)


def _others(found: dict[str, Any] | None) -> str:
    if not found:
        return ""
    return _table([("other measurements", "s"), *_lines(found)])


def _lines(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, one in found.items():
        if "failed" in one or "missing" in one:
            yield name, one.get("failed") or f"not measured: no {one['missing']}"
        elif name == "checkpoint":
            yield f"writing a checkpoint of {one['mb']:.0f} MB", _seconds(one["seconds"])
        elif name == "help":
            yield "`cse --help` (wall; cpu)", f"{one['wall']:.2f}; {one['cpu']:.2f}"
        elif name == "start":
            yield f"{one['rows']:,} sentences of {one['text']} read, tokenized, first batch", _seconds(one["first"])
            yield "later starts", _seconds(one["later"])
        elif name == "suite":
            yield f"scoring {one['of']}", _seconds(one["seconds"])


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value >= 10 else f"{value:.3g}" if value >= 0.1 else f"{value:.4f}"


def _spread(values: list[float]) -> str:
    return f"{_seconds(min(values))} to {_seconds(max(values))}"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "| --- |" + " ---: |" * (len(rows[0]) - 1)
    return "\n".join([lines[0], rule, *lines[1:]])
