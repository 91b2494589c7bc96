"""Golden digits: what runs, a resumed run, a group of processes, a search and a study compute and print.

Each set has one process with the instructions of the set. It imports everything once, and forks each command.

    python .ci/goldens.py check           compare with .ci/goldens/ to the last bit, and print each difference
    python .ci/goldens.py check native    only this set
    python .ci/goldens.py write           replace the stored values. A commit that does so names each change and why

Each set has one file, because digits depend on the instructions of the processor: `native` uses all of them, and
`avx2` hides the newer ones. The digits are compared if processor and versions of the libraries are those of the file.
Otherwise everything except the digits is compared.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.support.forked import Forked  # noqa: E402

STORE = HERE / "goldens"
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
SETS: dict[str, dict[str, str]] = {"native": {}, "avx2": AVX2}
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "datasets", "optuna")

SIX = ["--set", "train.steps=6", "--set", "train.evaluate_every=3", "--set", "train.batch_size=16"]
PART = ["--set", "evaluate.limit=100"]
TRAINED = [
    "mini/ifcl_en",
    "mini/mocose_en",
    "mini/conisi_s_en",
    "mini/tsdae_en",
    "mini/matryoshka_en",
    "examples/pairs_csv",
]
FITTED = {
    "quickstart": [*SIX, "--set", "encoders.white.limit=500"],
    "mini/bert_whitening_en": ["--set", "encoders.white.limit=500"],
    "mini/bert_flow_en": ["--set", "encoders.flow.limit=500"],
    "mini/static_en": [],
}
COMPARED = ["mini/simcse_en", "mini/focal_infonce_en"]
STUDY = """[study]
title = "Two temperatures"
recipe = "mini/simcse_en"
seeds = [3]
score = "test.spearman"
rows = [
  { row = "0.05", set = ["losses.info_nce.temperature=0.05"] },
  { row = "0.1", set = ["losses.info_nce.temperature=0.1"] },
]
set = ["train.steps=6", "train.evaluate_every=3", "train.batch_size=16", "evaluate.limit=100"]
"""

DROPPED = re.compile(
    "time|host|hint|pid|command|git|engine|code|experiment|created|started|finished|ended|source|folder|model_path|files|"
    "mirrors|versions|machine|processor|updated|crc32|(.*_)?seconds?|(.*_)?per_second|speed(/.*)?|system/.*|run_id|short|plan|parent|search_id"
)
"""Keys that differ from run to run, or with every change of the code."""


class Machine:
    """One state directory, in which commands run."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def start(self, *words: str) -> Forked:
        """Start a command."""
        return Forked(["cse_cli", *words], HERE.parent, CSE_HOME=str(self.home), CSE_MIRRORS="")

    def cse(self, *words: str) -> str:
        """Return the output of a command on stdout."""
        process = self.start(*words)
        output, errors = process.communicate()
        if process.returncode:
            raise SystemExit(f"cse {' '.join(words)}: exit code {process.returncode}\n{errors[-3000:]}")
        return output

    def killed_after_step_3(self, *words: str) -> None:
        """Kill a command with SIGKILL as soon as the checkpoint of step 3 is on the disk."""
        process = self.start(*words)
        while process.poll() is None:
            logs = [file.read_text(encoding="utf-8") for file in self.home.glob("runs/*/events.jsonl")]
            if any(event.get("kind") == "checkpoint" and event["step"] == 3 for log in logs for event in parsed(log)):
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)
        process.communicate()

    def runs(self) -> dict[str, Any]:
        """Return name → weights, result and events of each finished run."""
        found = {}
        for folder in sorted((self.home / "runs").iterdir()):
            if not (folder / "result.json").exists():  # the record of a search
                continue
            events = parsed((folder / "events.jsonl").read_text(encoding="utf-8"))
            weights = hashlib.sha256()
            for file in sorted((folder / "model").rglob("*")):
                if file.suffix in (".safetensors", ".npz", ".pt"):
                    weights.update(file.read_bytes())
            about = (folder / "run.toml").read_text(encoding="utf-8")
            name = re.search(r'^name = "(.*)"$', about, re.MULTILINE)[1]  # type: ignore[index]
            result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            events = [event for event in events if event["kind"] not in ("system", "file", "progress")]
            found[name] = self.clean({"weights": weights.hexdigest(), "result": result, "events": events})
        return dict(sorted(found.items()))

    def clean(self, value: Any) -> Any:
        """Return a value without what differs from run to run."""
        if isinstance(value, dict):
            return {key: self.clean(one) for key, one in value.items() if not DROPPED.fullmatch(key)}
        if isinstance(value, list):
            return [self.clean(one) for one in value]
        if isinstance(value, str):
            value = value.replace(str(self.home), "$CSE_HOME").replace(str(HERE.parent), ".")
            value = re.sub(r"\d{4}-\d\d-\d\d", "DATE", value)
            return re.sub(r"(?<![0-9a-f])([0-9a-f]{32}|[0-9a-f]{8})(?![0-9a-f])", "ID", value)
        return value


def parsed(log: str) -> list[dict[str, Any]]:
    """Return the events of a log whose last line may be incomplete."""
    return [json.loads(line) for line in log.split("\n") if line.endswith("}")]


def made() -> dict[str, Any]:
    """Return everything that one set, whose environment this process has, computes and prints."""
    multiprocessing.set_forkserver_preload(["tests.support.preloaded"])
    with tempfile.TemporaryDirectory() as top:
        one, two = (Machine(Path(top) / name) for name in ("one", "two"))
        one.cse("run", *TRAINED, *SIX, *PART)
        for recipe, settings in FITTED.items():
            one.cse("run", recipe, *PART, *settings)
        one.cse("run", *COMPARED, *SIX, "--seeds", "2")
        two.killed_after_step_3("run", "mini/mocose_en", *SIX, *PART)
        two.cse("run", "mini/mocose_en", *SIX, *PART)
        two.cse("run", "mini/simcse_en", *SIX, *PART, "--processes", "2")
        search = two.cse("tune", "mini/ifcl_en", "--param", "temperature", "--trials", "3", "--name", "golden", *SIX,
                         *PART, "--json")  # fmt: skip
        study = Path(top) / "study.toml"
        study.write_text(STUDY, encoding="utf-8")
        outputs = {
            "search": two.clean(json.loads(search)),
            "study": two.clean(json.loads(two.cse("run", str(study), "--json"))),
            "compare": one.clean(json.loads(one.cse("compare", *COMPARED, "--json"))),
            "leaderboard": one.clean(json.loads(one.cse("leaderboard", "--format", "json"))),
            "show": one.clean(json.loads(one.cse("runs", "show", "mini/ifcl_en seed 42", "--json"))),
        }
        first, second = one.runs(), two.runs()
        for part in ("weights", "result"):
            if first["mini/mocose_en seed 42"][part] != second["mini/mocose_en seed 42"][part]:
                raise SystemExit(f"the {part} of a resumed run differ from those of an uninterrupted run")
        del second["mini/mocose_en seed 42"]
        del second["mini/simcse_en seed 3"]  # both rows of the study have this name. `printed` has their results
        return {"runs": first, "group, search, study": second, "printed": outputs}


def machine(name: str) -> dict[str, str]:
    """Return the processor and the versions on which the digits of a set depend."""
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    capability = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **SETS[name]}, capture_output=True, text=True, check=True
    ).stdout.strip()
    maker = re.search(r"vendor_id\s*: (\S+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return {"processor": f"{maker[1] if maker else 'unknown'} {capability}", **{one: version(one) for one in LIBRARIES}}


def without_digits(value: Any) -> Any:
    """Return the structure of a value: numbers with a fraction, digests and what depends on them are left out."""
    if isinstance(value, dict):
        return {key: without_digits(one) for key, one in value.items() if key not in ("best", "selected_step", "p")}
    if isinstance(value, list):
        return [without_digits(one) for one in value]
    if isinstance(value, float) or (isinstance(value, str) and re.search(r"[0-9a-f]{16}|\d\.\d", value)):
        return "…"
    return value


def check(name: str, now: dict[str, Any]) -> bool:
    """Print the differences from the stored values, and return whether the values are equal."""
    stored = json.loads((STORE / f"{name}.json").read_text(encoding="utf-8"))
    here, then = machine(name), stored["machine"]
    both = [stored["values"], now]
    if here != then:
        other = ", ".join(f"{key} {here[key]} instead of {then[key]}" for key in then if here[key] != then[key])
        print(f"{name}: the digits are not compared: {other}")
        both = [without_digits(one) for one in both]
    before, after = (json.dumps(one, indent=1, ensure_ascii=False).split("\n") for one in both)
    lines = list(difflib.unified_diff(before, after, "stored", "now", lineterm="", n=6))
    print(f"{name}: " + ("equal" if not lines else "differs\n" + "\n".join(lines[:400])))
    return not lines


def main() -> None:
    """Make the sets in parallel, then check or write them."""
    action, *names = sys.argv[1:] or ["check"]
    if action == "make":
        print(json.dumps(made()))
        return
    own = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}
    makers = {
        name: subprocess.Popen([sys.executable, __file__, "make"], env={**own, **SETS[name]}, stdout=subprocess.PIPE)
        for name in names or SETS
    }
    printed = {name: maker.communicate()[0] for name, maker in makers.items()}
    if failed := [name for name, maker in makers.items() if maker.returncode]:
        sys.exit(f"{', '.join(failed)}: see above")
    found = {name: json.loads(text) for name, text in printed.items()}
    if action == "write":
        for name, values in found.items():
            text = json.dumps({"machine": machine(name), "values": values}, indent=1, ensure_ascii=False)
            (STORE / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    else:
        equal = [check(name, values) for name, values in found.items()]
        sys.exit(0 if all(equal) else 1)


if __name__ == "__main__":
    main()
