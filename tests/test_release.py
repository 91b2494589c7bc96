"""What a release consists of agrees: version, changelog, citation, and the steps that hosted CI and hooks call."""

from __future__ import annotations

import re
import subprocess
import tomllib
from itertools import chain

import pytest
import yaml

from cse_cli._version import __version__
from tests.conftest import ROOT

WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github" / "workflows").glob("*.yml")
}


def test_the_citation_and_the_changelog_have_the_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    (day,) = re.findall(
        rf"(?m)^## \[{re.escape(__version__)}\] - (\d{{4}}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text("utf-8")
    )
    assert (cited["version"], str(cited["date-released"])) == (__version__, day)


def called_steps() -> set[str]:
    """Return the steps of `.ci/run` that workflows and hooks call."""
    jobs = chain.from_iterable(workflow["jobs"].values() for workflow in WORKFLOWS.values())
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    matrix = WORKFLOWS["ci.yml"]["jobs"]["check"]["strategy"]["matrix"]
    commands += [f".ci/run {steps}" for steps in (*matrix["steps"], *(each["steps"] for each in matrix["include"]))]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    commands += [hook["entry"] for hook in hooks]
    assert {command.split()[0] for command in commands} == {".ci/run"}
    return {word for command in commands for word in command.split()[1:]} - {"${{", "matrix.steps", "}}"}


def test_workflows_and_hooks_call_every_step_and_only_steps():
    done = subprocess.run([ROOT / ".ci" / "run", "no_such_step"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    known = set(done.stderr.partition("Steps: ")[2].split())
    assert called_steps() == known - {"environment"}  # the runner's Python is the environment


def test_workflows_test_both_ends_of_the_range_of_torch():
    (bounds,) = (
        each.removeprefix("torch")
        for each in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
        if each.startswith("torch")
    )
    matrix = WORKFLOWS["ci.yml"]["jobs"]["check"]["strategy"]["matrix"]
    assert matrix["torch"] == [f"=={bounds.removeprefix('>=')}.*", bounds]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned(name):
    used = re.findall(r"uses: (\S+)(.*)", (ROOT / ".github" / "workflows" / name).read_text("utf-8"))
    assert used
    assert [action for action, note in used if not re.search(r"@[0-9a-f]{40}$", action) or " # v" not in note] == []
