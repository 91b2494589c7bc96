"""Keeps what a store did not take, in order and on disk, and sends it when the store answers again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import groupby

from filelock import FileLock
from mlflow import MlflowClient
from pydantic import TypeAdapter, ValidationError

from cse_cli.home import runs
from cse_cli.tracking.writes import AnyWrite, Folder, History, Metrics

_WRITE: TypeAdapter[AnyWrite] = TypeAdapter(AnyWrite)
_LOCK_SECONDS = 60.0


class Pending:
    """What one run's store has not taken yet.

    Args:
        run_id: The run.
        uri: The store it belongs to.
    """

    def __init__(self, run_id: str, uri: str) -> None:
        self.run_id = run_id
        self.uri = uri
        self.folder = runs() / run_id / "pending"
        self._journal = self.folder / "journal.jsonl"
        self._done = self.folder / "done"

    def exists(self) -> bool:
        """Return whether anything is waiting."""
        return self._journal.exists()

    def add(self, write: AnyWrite) -> None:
        """Keep a write; files are copied, since training may delete them before the store answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock():
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "uri").write_text(self.uri, encoding="utf-8")
            if isinstance(write, Folder):
                write = self._copied(write)
            with self._journal.open("ab") as file:
                # The newline first: a line torn by a kill must not swallow this one. The model's own dump, because
                # a type adapter's writes null for NaN.
                file.write(f"\n{write.model_dump_json()}\n".encode())

    def replay(self, client: MlflowClient) -> int:
        """Send everything in order and return how many writes that were.

        Stops with the store's exception at the first write it refuses; that one and all after it stay.
        """
        with self._lock():
            if not self.exists():
                return 0
            done = int(self._done.read_text()) if self._done.exists() else 0
            writes = list(self._read())
            sent = 0
            for write, count in _merged(writes[done:]):
                # A request may have been carried out although its answer was lost: ask what is there.
                wanted = History(client, self.run_id).missing(write) if isinstance(write, Metrics) else write
                wanted.send(client, self.run_id)
                sent += count
                self._remember(done + sent)
            shutil.rmtree(self.folder)
            return sent

    def _lock(self) -> FileLock:
        return FileLock(self.folder.with_suffix(".lock"), timeout=_LOCK_SECONDS)

    def _copied(self, write: Folder) -> Folder:
        number = sum(1 for _ in self.folder.glob("files-*"))
        copy = self.folder / f"files-{number}"
        shutil.copytree(write.path, copy)
        return write.model_copy(update={"path": copy})

    def _read(self) -> Iterator[AnyWrite]:
        with self._journal.open("rb") as file:
            for line in file:
                try:
                    if line.strip():
                        yield _WRITE.validate_json(line)
                except ValidationError as error:
                    if error.errors()[0]["type"] != "json_invalid":
                        raise OSError(f"{self._journal} has a record of another version of cse") from error
                    # Half a line: the process was killed while it wrote it.

    def _remember(self, count: int) -> None:
        new = self._done.with_suffix(".new")
        new.write_text(str(count))
        new.replace(self._done)


def _merged(writes: list[AnyWrite]) -> Iterator[tuple[AnyWrite, int]]:
    """Yield the writes with neighbouring metrics joined, each with how many it stands for."""
    for kind, group in groupby(writes, key=type):
        same = list(group)
        if kind is Metrics:
            yield Metrics(points=tuple(p for w in same if isinstance(w, Metrics) for p in w.points)), len(same)
        else:
            yield from ((write, 1) for write in same)


def waiting() -> list[Pending]:
    """Return every run on this machine that has something to send."""
    found = sorted(runs().glob("*/pending/journal.jsonl"))
    return [Pending(path.parent.parent.name, (path.parent / "uri").read_text(encoding="utf-8")) for path in found]
