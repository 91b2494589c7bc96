"""Forecasts as a table, as three lines, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.filesize import decimal
from rich.text import Text

from cse_cli.core.console import stdout_console
from cse_cli.core.formatting import UNSET, counted, duration
from cse_cli.core.tables import as_rich, plain_table
from cse_cli.planning.forecast import Forecast

UNKNOWN = "unknown until the download"


def print_forecast(forecast: Forecast, title: str, finished: int) -> None:
    """Print the stages with their times, then the totals."""
    rows = []
    for stage in forecast.stages:
        took = UNSET if stage.seconds is None else duration(stage.seconds)
        rows.append((stage.name, took, stage.detail, stage.basis))
    with stdout_console() as out:
        out.print(Text(title, "bold"), soft_wrap=True)
        if finished:
            out.print(Text(f"{counted(finished, 'run')} finished, {forecast.runs} to run"), soft_wrap=True)
        if not forecast.runs:
            return
        out.print(as_rich(plain_table(("stage", "time", "work", "basis"), rows, align="lrpp"), gap=1))
        out.print()
        for line in summary(forecast):
            out.print(Text(line), soft_wrap=not out.is_terminal)
        for missing in forecast.missing:
            out.print(Text(f"missing {missing}", "yellow"), soft_wrap=True)


def summary(forecast: Forecast) -> list[str]:
    """Return time, disk space and memory in three lines."""
    return [f"time    {_time(forecast)}", f"disk    {_disk(forecast)}", f"memory  {_memory(forecast)}"]


def _time(forecast: Forecast) -> str:
    what = f"{counted(forecast.runs, 'run')}, {forecast.place}"
    if forecast.seconds is None:
        return f"{'unknown: see below' if forecast.missing else UNKNOWN} ({what})"
    return f"about {duration(forecast.seconds)} for {what}" + "".join(_exceptions(forecast))


def _exceptions(forecast: Forecast) -> Iterator[str]:
    """Yield the parts that the time does not include."""
    if forecast.download:
        yield ", plus the download"
    if forecast.unmeasured:
        yield f", without {', '.join(forecast.unmeasured)}"


def _disk(forecast: Forecast) -> str:
    known = f"about {decimal(sum(forecast.disk.values()))}" if forecast.disk else ""
    parts = ", ".join(f"{name} {decimal(size)}" for name, size in forecast.disk.items())
    if forecast.seconds is None and not known:
        return UNKNOWN
    return f"{known} ({parts})" + (", and runs" if "runs" not in forecast.disk else "")


def _memory(forecast: Forecast) -> str:
    return UNKNOWN if forecast.memory is None else f"about {decimal(forecast.memory)} for each run"


def to_document(forecast: Forecast, title: str, finished: int) -> dict[str, Any]:
    """Return a forecast for JSON. Times are in seconds and sizes in bytes."""
    return {"title": title, "finished": finished, **asdict(forecast)}
