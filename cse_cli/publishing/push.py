"""What is sent to the hub: a run's model, its recipe, its result, and a model card made of both."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cse_cli.core.formatting import mean_text, seed_list
from cse_cli.core.results import Result
from cse_cli.runs.index import find_run, finished_results
from cse_cli.runs.model import checked_model_of_run
from registry import EVALUATORS
from registry.encoders.export import MODULES
from registry.errors import CseError, MissingError

_REPOSITORY = re.compile(r"(?!.*(--|\.\.))(?![.-])[\w.-]*\w/(?![.-])[\w.-]*\w", re.ASCII)
CARD, RECIPE, RESULT = "README.md", "recipe.toml", "result.json"
"""Files that are sent beside the model's own."""


@dataclass(frozen=True)
class Pushed:
    """What is sent.

    Args:
        folder: The model's files.
        result: Of the run.
        recipe: Its resolved recipe, as TOML.
        seeds: Finished runs of the same experiment, one a seed, the run among them.
    """

    folder: Path
    result: Result
    recipe: str
    seeds: Sequence[Result]


def push_model(run: str, repository: str, *, private: bool = False) -> str:
    """Send a run's model to the hub in one commit, and return its address.

    Args:
        run: The first characters of its id, or its name.
        repository: "owner/name"; made where there is none.
        private: Of a repository that is made.

    Raises:
        CseError: The run has no model, or the repository is no name.
        MissingError: The hub cannot be reached, or does not let this user write there.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    pushed = _find(run)
    model = [path for path in pushed.folder.rglob("*") if path.is_file() and path.name != CARD]
    files: dict[str, str | bytes] = {path.relative_to(pushed.folder).as_posix(): str(path) for path in model}
    files |= {
        CARD: _card(pushed, repository).encode(),
        RECIPE: pushed.recipe.encode(),
        RESULT: pushed.result.model_dump_json(indent=1).encode(),
    }
    if get_token() is None:
        raise MissingError("nobody is logged in to the hub", "run `hf auth login`, or set HF_TOKEN")
    hub, note = HfApi(), f"{pushed.result.recipe}, seed {pushed.result.seed}"
    operations = [CommitOperationAdd(name, content) for name, content in files.items()]
    try:
        made = hub.create_repo(repository, private=private, exist_ok=True)
        hub.create_commit(made.repo_id, operations, commit_message=note)
    except OfflineModeIsEnabled as error:
        raise MissingError("HF_HUB_OFFLINE forbids the network", "unset HF_HUB_OFFLINE") from error
    except HfHubHTTPError as error:
        status, said = error.response.status_code, error.server_message or error.response.reason_phrase
        may_not = "log in with `hf auth login` as someone who may write there"
        action = may_not if status in (401, 403) else "try again later"
        raise MissingError(f"the hub did not take {repository}: {status} {said}", action) from error
    except OSError as error:  # no connection, a time-out
        raise MissingError(f"the hub at {hub.endpoint} does not answer: {error}", "try again later") from error
    return str(made)


def model_card(run: str, repository: str) -> str:
    """Return the card of a run's model, as Markdown with the hub's metadata."""
    return _card(_find(run), repository)


def _find(run: str) -> Pushed:
    found = find_run(run)
    result, folder = found.result, checked_model_of_run(found.run_id)
    if result is None or folder is None:
        raise CseError(
            f"run {found.about.short} has no model on this machine",
            "push a finished run (`cse runs ls --status finished`). Trials and imported runs have no model",
        )
    recipe = (found.about.path / RECIPE).read_text(encoding="utf-8")
    same = {one.seed: one for one in finished_results() if one.experiment == result.experiment}
    seeds = sorted({**same, result.seed: result}.values(), key=lambda one: one.seed)
    return Pushed(Path(folder), result, recipe, seeds)


def _card(pushed: Pushed, repository: str) -> str:
    if not _REPOSITORY.fullmatch(repository):
        raise CseError(f"'{repository}' is no repository of the hub", "write owner/name, such as me/simcse-bert-base")
    result, name = pushed.result, repository.partition("/")[2]
    used = result.versions
    state = "the last one" if result.selected_step is None else f"that of step {result.selected_step} of {result.steps}"
    return _TEXT.format(
        metadata=_metadata(pushed, name),
        name=name,
        title=result.title,
        model=result.model,
        repository=repository,
        rows="\n".join(_score_lines(pushed)),
        seeds=seed_list([one.seed for one in pushed.seeds]),
        seed=result.seed,
        state=f"{state}, chosen by {result.select}" if result.select else state,
        warning=" It was chosen by test data: these scores are optimistic." if result.test_selected else "",
        versions=f"cse {used.cse}, torch {used.torch}, transformers {used.transformers}",
        device=f"{result.device}, {result.precision}",
        recipe=pushed.recipe.strip(),
        file=RECIPE,
    )


def _metadata(pushed: Pushed, name: str) -> str:
    """Return what the hub reads of a card, as YAML."""
    from huggingface_hub import EvalResult, ModelCardData

    result = pushed.result
    on_hub = (key.removeprefix("model ") for key in result.commits if key.startswith("model "))
    metadata = ModelCardData(
        language=result.language,
        library_name="sentence-transformers" if (pushed.folder / MODULES).is_file() else "cse",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "feature-extraction", "cse"],
        base_model=next((one for one in on_hub if one.endswith(result.model)), None),
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="sentence-similarity",
                dataset_type=evaluator,
                dataset_name=evaluator,
                metric_type=metric,
                metric_value=round(result.scores[evaluator][metric], 2),
            )
            for evaluator, metric in _shown_metrics(pushed)
        ],
    )
    return str(metadata.to_yaml())


def _score_lines(pushed: Pushed) -> Iterator[str]:
    """Yield the rows of the table of scores."""
    result = pushed.result
    for evaluator, metric in _shown_metrics(pushed):
        values = [one.scores[evaluator][metric] for one in pushed.seeds if metric in one.scores.get(evaluator, {})]
        before = result.untrained.get(evaluator, {}).get(metric)
        untrained = "" if before is None else f"{before:.2f}"
        own = result.scores[evaluator][metric]
        yield f"| {evaluator} | {metric} | {own:.2f} | {mean_text(values)} | {untrained} |"


def _shown_metrics(pushed: Pushed) -> list[tuple[str, str]]:
    """Return each evaluator with the metric that its component declares as the one to show."""
    parts = tomllib.loads(pushed.recipe)["evaluators"]
    named = [(name, EVALUATORS[parts[name]["name"]].cls.metric) for name in pushed.result.scores]
    return [(name, metric) for name, metric in named if metric in pushed.result.scores[name]]


_TEXT = """---
{metadata}
---
# {name}

{title}. Trained from `{model}` by [cse](https://pypi.org/project/cse-registry/), without labels. Compare its vectors by
cosine.

```python
from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer("{repository}").encode(["A sentence.", "Another one."])
```

## Scores

| data | metric | this model (seed {seed}) | {seeds} | before training |
| --- | --- | ---: | ---: | ---: |
{rows}

The state is {state}.{warning} Mean ± standard deviation over the seeds that were run of the same experiment.

## Made by

```console
cse run {file} --seed {seed}
```

with {versions} on {device}. `{file}` is beside this card; its text:

```toml
{recipe}
```
"""
