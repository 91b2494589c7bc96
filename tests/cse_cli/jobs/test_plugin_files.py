"""Components from a Python file: `--plugin`, its record and resumption, and errors in such a component."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cse_cli
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import folder_of
from registry import LOSSES, REGISTRIES
from registry.machinery import plugins
from tests.cse_cli.jobs.conftest import Run
from tests.support.command import cse, refused
from tests.support.errors import refuses
from tests.support.programs import results
from tests.support.records import states

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs", "undrawn")]

LOSS = '''\
from pathlib import Path

from torch import Tensor

from own_scale import SCALE
from registry import LOSSES
from registry.types import Loss, Sentences


def value(x: Tensor) -> Tensor:
    return BODY


@LOSSES.register("own")
class Own(Loss):
    """A loss of a file."""

    calls, scale = 0, SCALE

    def forward(self, anchor: Sentences) -> Tensor:
        """Return the loss of the batch."""
        self.calls += 1
        if self.calls == 3 and Path(__file__).with_name("broken").exists():
            raise KeyError("why")
        return value(anchor)
'''
VALUE_LINE, FORWARD_LINE = 11, 20
MEAN = "x.pow(2).mean()"


def forget() -> None:
    """Forget the loss and its file, as a new process does."""
    os.environ.pop(plugins.VARIABLE, None)
    plugins._loaded.clear()
    for registry in REGISTRIES:
        for name in [name for name, entry in registry.registered.items() if entry.distribution.startswith("own_")]:
            del registry._entries[name]
    for module in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[module]


@pytest.fixture
def own(file: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Return a function that writes the loss with a body. The recipe of `file` uses the loss."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = folder / file
    path.write_text(path.read_text() + "[losses.own]\nweight = 0.1\n")
    (folder / "own_scale.py").write_text("SCALE = 1.0\n")

    def written(body: str = MEAN, name: str = "own_loss.py") -> Path:
        (folder / name).write_text(LOSS.replace("BODY", body))
        return folder / name

    forget()
    yield written
    forget()


def test_a_run_with_a_file_is_recorded_and_repeated_by_its_hint(own, file: str, run: Run, folder: Path) -> None:
    assert refused("run", file, "--device", "cpu").code == "recipe.unknown_component"
    path = own()
    code, _, err = run(file, "--plugin", "own_loss.py")
    assert code == 0
    assert f"--plugin {path}" in err
    (recorded,) = all_runs()
    assert recorded.about.plugins == (str(path),)
    assert "losses.own" in recorded.about.identity.code
    forget()
    assert run(file, "--plugin", "own_loss.py")[0] == 0
    assert len(all_runs()) == 1

    forget()
    (folder / "own_scale.py").write_text("SCALE = 2.0\n")  # next to the file, so it belongs to the component
    assert run(file, "--plugin", "own_loss.py")[0] == 0
    assert len(all_runs()) == 2


def test_a_failed_run_resumes_with_the_file_unless_its_code_changed(own, file: str, run: Run, folder: Path) -> None:
    own()
    (folder / "broken").touch()
    error = refused("run", file, "--plugin", "own_loss.py", "--device", "cpu")
    assert (error.code, error.exit_code) == ("part.failed", 2)
    (recorded,) = all_runs()
    assert (recorded.end, recorded.reason.partition("\n")[0]) == ("failed", error.message.partition("\n")[0])
    (folder / "broken").unlink()
    resume = ("run", "--resume", recorded.about.short, "--device", "cpu")

    forget()
    own("x.pow(4).mean()")
    with refuses("training.experiment_changed", "losses.own"):
        raise refused(*resume)

    forget()
    moved = own().rename(folder / "own_other.py")
    with refuses("jobs.missing_plugin", "own_loss.py", "--plugin own_loss.py"):
        raise refused(*resume)

    forget()
    moved.rename(folder / "own_loss.py")
    assert run("--resume", recorded.about.short)[0] == 0
    assert [one.end for one in all_runs()] == ["finished"]
    forget()
    assert cse_cli.load_model(recorded.run_id).encode("a cat").ndim == 1
    assert plugins.named() == [str(folder / "own_loss.py")]


def test_a_resumed_search_loads_the_file(own, file: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own()
    space = ("--range", "learning_rate=1e-4..1e-3", "--name", "s", "--trials", "1", "--plugin", "own_loss.py")
    code, _, err = cse("tune", file, *space, "--device", "cpu", capsys=capsys)
    assert code == 0, err
    forget()
    code, _, err = cse("tune", "--resume", "s", "--trials", "2", "--device", "cpu", capsys=capsys)
    assert code == 0, err
    assert plugins.named() == [str(folder / "own_loss.py")]


@pytest.mark.process
@pytest.mark.usefixtures("forked_children")
def test_workers_load_the_file_and_their_results_are_those_of_one_after_the_other(
    own, run: Run, file: str, folder: Path
) -> None:
    own()
    arguments = (file, "--plugin", "own_loss.py", "--seeds", "2", "--json")
    code, out, err = run(*arguments, "--workers", 2)
    assert code == 0, err
    together = results(out)
    assert [one.seed for one in together] == [0, 1]
    assert states() == ["FINISHED"] * 2
    for seed in range(2):
        assert f"[small seed {seed}] step 3  dev.spearman " in err

    code, out, _ = run(*arguments, "--again")
    assert code == 0
    assert not {one.run_id for one in results(out)} & {one.run_id for one in together}
    assert [one.last_state for one in results(out)] == [one.last_state for one in together]
    assert [one.scores for one in results(out)] == [one.scores for one in together]


def test_other_commands_take_the_file(own, file: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own()
    for arguments in (("check", file), ("show", "own"), ("show", file, "--resolved"), ("cp", file, "copy.toml")):
        forget()
        assert cse(*arguments, "--plugin", "own_loss.py", capsys=capsys)[0] == 0, arguments
        forget()
        (folder / "copy.toml").unlink(missing_ok=True)
        assert cse(*arguments, capsys=capsys)[0] == 2, arguments


WRONG_FILES = {
    "missing": (None, "plugin.missing_file", "own_mising.py", "Did you mean"),
    "syntax": ("x = 1\ndef f(:\n", "plugin.not_importable", "own_file.py:2: SyntaxError"),
    "exception": ("x = 1\n\n1 / 0\n", "plugin.not_importable", "own_file.py:3: ZeroDivisionError"),
    "import": ("import no_such_module\n", "plugin.not_importable", "own_file.py:1: ModuleNotFoundError"),
    "exit": ("import sys\nsys.exit(3)\n", "plugin.not_importable", "own_file.py:2: SystemExit"),
    "nothing": ("x = 1\n", "plugin.no_component", "own_file.py", "LOSSES.register"),
    "used name": (LOSS.replace("BODY", MEAN).replace('"own"', '"info_nce"'), "component.same_name", "'info_nce'"),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_wrong_file_is_an_error_with_its_line(own, file: str, folder: Path, name: str) -> None:
    text, code, *values = WRONG_FILES[name]
    (folder / "own_missing.py").write_text("")
    if text is not None:
        (folder / "own_file.py").write_text(text)
    with refuses(code, *values) as caught:
        raise refused("show", "info_nce", "--plugin", "own_mising.py" if text is None else "own_file.py")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["json.py", "torch.py", "my-loss.py"])
def test_a_file_with_the_name_of_another_module_is_refused(own, file: str, folder: Path, name: str) -> None:
    own(name=name)
    with refuses("plugin.invalid_name", name, "rename the file"):
        raise refused("check", file, "--plugin", name)


def test_from_python_a_changed_file_is_loaded_again(own, file: str, folder: Path) -> None:
    path = own()
    cse_cli.plugin(path)
    first = LOSSES["own"].cls
    cse_cli.plugin(path)
    assert LOSSES["own"].cls is not first
    (result,) = cse_cli.run(file, device="cpu", progress=False)
    assert result.steps == 3


WRONG_VALUES = {
    "a row per sentence": ("x.pow(2).mean(dim=1)", "returned a tensor of shape (4,), not a scalar"),
    "a float": ("3.0", "returned float, not a tensor"),
    "an integer": ("x.argmax()", "returned torch.int64"),
    "no gradient": ("x.detach().mean()", "without a gradient"),
}


@pytest.mark.parametrize("name", WRONG_VALUES)
@pytest.mark.parametrize("options", [("--dry-run",), ()], ids=["dry run", "run"])
def test_a_loss_that_is_no_scalar_with_a_gradient_is_named(own, file: str, name: str, options: tuple[str, ...]) -> None:
    body, message = WRONG_VALUES[name]
    own(body)
    with refuses("part.invalid_result", "loss 'own' ", message, f"own_loss.py:{FORWARD_LINE}") as caught:
        raise refused("run", file, "--plugin", "own_loss.py", "--device", "cpu", *options)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("options", [("--dry-run",), ()], ids=["dry run", "run"])
def test_an_exception_names_the_component_then_its_own_lines(
    own, file: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    own("x.view(7, 7, 7)")
    code, _, err = cse("run", file, "--plugin", "own_loss.py", "--device", "cpu", *options, capsys=capsys)
    assert code == 2
    message = err[err.index("error: ") :].split("\n")
    assert message[0].startswith(f"error: loss 'own' failed at own_loss.py:{VALUE_LINE}: RuntimeError: shape")
    assert message[1:5] == [
        f"  own_loss.py:{FORWARD_LINE + 5} in forward",
        "    return value(anchor)",
        f"  own_loss.py:{VALUE_LINE} in value",
        "    return x.view(7, 7, 7)",
    ]
    assert len(message) <= 7
    assert "Traceback" not in err


def test_a_loss_that_is_not_finite_is_named(own, file: str) -> None:
    """The body is NaN from the third call on, because a class attribute counts the calls."""
    own("x.pow(2).mean() * (float('nan') if Own.calls == 3 else 1)")
    path = Path("own_loss.py")
    path.write_text(path.read_text().replace("self.calls += 1", "Own.calls += 1"))
    with refuses("training.loss_not_finite", "nan at step 3: caused by 'own'\n") as caught:
        raise refused("run", file, "--plugin", "own_loss.py", "--device", "cpu")
    lines = str(caught.value).split("\n")
    (events,) = [folder_of(run.run_id) for run in all_runs()]
    assert events.exists()
    assert lines[1].startswith("  loss info_nce: ")
    assert lines[2] == "  loss own: nan"
    assert caught.value.exit_code == 1
