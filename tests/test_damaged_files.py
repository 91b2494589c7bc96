"""About 200 damaged files: none is computed with, none ends in a traceback.

Every kind of file that a run reads, damaged in seven ways (`WAYS`), and then read by the commands
that read it. A command must do what it does with the whole file, perhaps with a warning, or print one message and exit
with code 2, 3 or 4.

Some damage cannot be seen, and makes other input: another letter in a text or a pair, another digit in a recipe or in
weights. Of such files (`is_input`) only a crash is excluded. Only checkpoints have checksums, so a flipped bit is tried
in them and in such files only.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet

from cse_cli.training.train_step import StepOutput, TrainStep
from tests.support.command import cse
from tests.support.shrunken import Small, recipe


def _flipped(file: Path, random: Random) -> None:
    content = bytearray(file.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)


def _cut(file: Path, random: Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: random.randrange(len(content))])


def _empty(file: Path, _: Random) -> None:
    file.write_bytes(b"")


def _random(file: Path, random: Random) -> None:
    file.write_bytes(random.randbytes(file.stat().st_size))


def _of_another_kind(file: Path, random: Random) -> None:
    kinds = [
        b"\x89PNG\r\n\x1a\n" + random.randbytes(200),
        b"[1, 2]\n",
        b"PK\x05\x06" + bytes(18),
        b"<html>404</html>\n",
    ]
    file.write_bytes(random.choice(kinds))


def _a_folder(file: Path, _: Random) -> None:
    file.unlink()
    file.mkdir()


def _odd_bytes(file: Path, random: Random) -> None:
    content = file.read_bytes()
    middle = random.randrange(len(content))
    file.write_bytes(content[:middle] + random.choice([b"\0", b"\xff\xfe", b"\xed\xa0\x80"]) + content[middle:])


WAYS: dict[str, Callable[[Path, Random], None]] = {
    "one bit flipped": _flipped,
    "cut off": _cut,
    "emptied": _empty,
    "random bytes": _random,
    "of another kind": _of_another_kind,
    "a folder": _a_folder,
    "odd bytes in the middle": _odd_bytes,
}


def state_of(folder: Path) -> dict[Path, tuple[int, int] | None]:
    """Return path → size and time of every file, and None for a directory."""
    found = {path.relative_to(folder): path for path in folder.rglob("*")}
    stats = {name: None if path.is_dir() else path.stat() for name, path in found.items()}
    return {name: stat and (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def put_back(folder: Path, copy: Path) -> None:
    """Make a folder hold what its copy holds. Files with the size and time of the copy's are the same."""
    here, there = state_of(folder), state_of(copy)
    for name in sorted(here, reverse=True):
        if name not in there or here[name] != there[name]:
            (folder / name).rmdir() if here[name] is None else (folder / name).unlink()
            del here[name]
    for name in sorted(there):
        if there[name] is None:
            (folder / name).mkdir(exist_ok=True)
        elif name not in here:
            shutil.copy2(copy / name, folder / name)
    for name in (name for name in there if there[name] is None):
        shutil.copystat(copy / name, folder / name)


pytestmark = [pytest.mark.process, pytest.mark.usefixtures("few_pairs", "undrawn")]

SEED = 20_261_123
_KEYS = "seconds|finished|updated|peak_memory|run_id|speed|data|forward|backward|optimizer|evaluation|other|generated"
MEASURED = re.compile(rf'^ *"({_KEYS}|\w+_per_second)": .*\n', re.MULTILINE)
"""Lines of a document that differ between two runs of the same."""


class File(NamedTuple):
    """A file, how it is read, and what it is."""

    path: str  # below the folder of the test
    commands: tuple[tuple[str, ...], ...]  # of `cse`, one after the other: the last one's output counts
    is_input: bool = False  # whether damage may make other input of it


class Seen(NamedTuple):
    outcome: str
    value: str
    told: str


@pytest.fixture
def world(
    tmp_path: Path, home: Path, parts: Small, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[File]:
    """Two finished runs, a killed one, a search, and the files that they are made of, in one folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(parts.models["bert"], tmp_path / "bert")
    shutil.copy(parts.text, tmp_path / "text.tsv")
    file = recipe(tmp_path, parts, checkpoint_every=1)
    text = file.read_text().replace(str(parts.models["bert"]), "bert").replace(str(parts.text), "text.tsv")
    file.write_text(text.replace('model = "bert"', f'model = "{tmp_path / "bert"}"'))
    (tmp_path / "other.toml").write_text('extends = "small.toml"\n[losses.info_nce]\ntemperature = 0.2\n')
    first, second = (ran("run", name, "--json", capsys=capsys) for name in ("small.toml", "other.toml"))
    with monkeypatch.context() as patched:
        patched.setattr(TrainStep, "take", stopping(TrainStep.take))
        assert cse("run", "small.toml", "--seed", "8", capsys=capsys)[0] == 130
    (killed,) = (path.parent.name for path in (home / "runs").glob("*/checkpoint.pt"))
    assert cse(*SEARCH, capsys=capsys)[0] == 0
    with monkeypatch.context() as patched:
        patched.setenv("CSE_MIRRORS", "mlflow")
        assert cse("runs", "sync", capsys=capsys)[0] == 0
    rows = [line.split("\t") for line in (tmp_path / "pairs.tsv").read_text().splitlines()]
    pairs = [dict(zip(rows[0], (float(row[0]), *row[1:]), strict=True)) for row in rows[1:]]
    (tmp_path / "pairs.csv").write_text("".join(f"{','.join(row)}\n" for row in rows))
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    parquet.write_table(pa.Table.from_pylist(pairs), tmp_path / "pairs.parquet")
    grid = '[study]\ntitle = "x"\nrecipe = "small.toml"\n[study.grid]\n"train.steps" = [1, 2]\n'
    (tmp_path / "study.toml").write_text(grid)
    return list(files(home, first, second, killed))


def ran(*command: str, capsys: pytest.CaptureFixture[str]) -> str:
    code, out, err = cse(*command, capsys=capsys)
    assert code == 0, err
    return str(json.loads(out)["results"][0]["run_id"])


def stopping(take: Any) -> Any:
    def stop(self: TrainStep, done: int, *rest: Any) -> StepOutput:
        if done == 2:
            raise KeyboardInterrupt
        taken: StepOutput = take(self, done, *rest)
        return taken

    return stop


SEARCH = ("tune", "small.toml", "--param", "train.learning_rate", "--trials", "1", "--name", "s", "--json")
TABLE = ("leaderboard", "--format", "json")


def files(home: Path, first: str, second: str, killed: str) -> Iterator[File]:
    """Yield every kind of file of these runs."""

    def below(folder: str, pattern: str) -> str:
        (found,) = (home / folder).glob(pattern)
        return str(found.relative_to(home.parent))

    home_name, run, resume = home.name, ("run", "small.toml", "--json"), ("run", "--resume", killed, "--json")
    score = ("evaluate", first, "--tasks", "pairs.tsv", "--json")
    for folder, pattern in (("text", "*.arrow"), ("tokens", "*/*.arrow")):
        yield File(below(f"cache/{folder}", pattern), (run,))
    yield File(f"{home_name}/mlflow.db", (("runs", "sync"), TABLE))
    yield File(f"{home_name}/cache/runs.json", (TABLE,))
    yield File(f"{home_name}/tuning/s/journal.jsonl", (SEARCH,))
    for name in ("checkpoint.pt", "checkpoint-previous.pt", "run.toml", "recipe.toml", "events.jsonl"):
        yield File(f"{home_name}/runs/{killed}/{name}", (resume,))
    for name in ("run.toml", "recipe.toml", "events.jsonl", "result.json"):
        yield File(f"{home_name}/runs/{first}/{name}", (TABLE,))
    for name in ("model/config.json", "model/model.safetensors", "model/tokenizer.json"):
        yield File(f"{home_name}/runs/{first}/{name}", (score,))
    yield File(f"{home_name}/runs/{first}/series/dev.npz", (("compare", first, second, "--json"),))
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        yield File(f"bert/{name}", (("evaluate", "bert", "--tasks", "pairs.tsv", "--json"),), is_input=True)
    yield File("small.toml", (("check", "small.toml"), run), is_input=True)
    yield File("study.toml", (("run", "study.toml", "--dry-run"),), is_input=True)
    yield File("text.tsv", (run,), is_input=True)
    for name in ("pairs.tsv", "pairs.csv", "pairs.jsonl", "pairs.parquet"):
        yield File(name, (("evaluate", "bert", "--tasks", name, "--json"),), is_input=True)
    yield File(f"{home_name}/runs/{second}/mirrors/mlflow.json", (("runs", "sync"), TABLE))


def look(file: File, folder: Path, capsys: pytest.CaptureFixture[str]) -> Seen:
    """Run a file's commands, and say what came of them."""
    told, out = "", ""
    for number, command in enumerate(file.commands, start=1):
        with warnings.catch_warnings(record=True) as warned, pytest.MonkeyPatch.context() as patched:
            patched.setenv("CSE_MIRRORS", "mlflow" if command[0] == "runs" else "none")
            warnings.simplefilter("always", UserWarning)
            try:
                code, out, err = cse(*command, capsys=capsys)
            except Exception as error:  # what no user should see
                return Seen("traceback", "", f"{type(error).__name__}: {error}")
        told += err + "".join(f"warning: {each.message}\n" for each in warned if each.category is UserWarning)
        if code and number == len(file.commands):
            good = code in (2, 3, 4) and err.count("error: ") == 1 and "Traceback" not in err and len(err) < 2500
            return Seen("refused" if good else "badly refused", "", f"{code} {err}")
    return Seen("done", MEASURED.sub("", out), told)


def test_none_is_computed_with_and_none_is_a_traceback(
    world: list[File], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path.with_name(f"{tmp_path.name}-copy")
    shutil.copytree(tmp_path, copy)
    outcomes, wrong, looked = Counter[str](), [], dict[tuple[tuple[str, ...], ...], Seen]()
    for file in world:
        if file.commands not in looked:
            looked[file.commands] = look(file, tmp_path, capsys)
            put_back(tmp_path, copy)
        whole = looked[file.commands]
        assert whole.outcome == "done", whole
        for way, damage in WAYS.items():
            if way == "one bit flipped" and not (file.is_input or file.path.endswith(".pt")):
                continue
            damage(tmp_path / file.path, Random(f"{SEED} {file.path.rpartition('/')[2]} {way}"))
            seen = look(file, tmp_path, capsys)
            put_back(tmp_path, copy)
            outcome = seen.outcome
            if outcome == "done":
                same, said = seen.value == whole.value, "warning" in seen.told and seen.told != whole.told
                outcome = "said" if said else "equal" if same else "valid input" if file.is_input else "computed with"
            outcomes[outcome] += 1
            if outcome not in ("refused", "said", "equal", "valid input"):
                wrong.append((file.path, way, outcome, seen.told[-600:]))
    shutil.rmtree(copy)
    assert wrong == [], outcomes
    assert sum(outcomes.values()) >= 190, outcomes
    assert outcomes["refused"] > 90
