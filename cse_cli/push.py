"""Upload of a run's model, recipe and result to the Hugging Face Hub, with a model card."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cse_cli.core.formatting import mean_text, seed_list
from cse_cli.core.results import Result
from cse_cli.listing.citations import citations
from cse_cli.recipe.requirements import HUB
from cse_cli.runs.index import find_run, finished_results
from cse_cli.runs.record import model_of_run
from registry import EVALUATORS
from registry.encoders.export import usage
from registry.errors import CseError, MissingError
from registry.prompts import Prompts
from registry.resources.models import PRETRAINED, is_native, known

_REPOSITORY = re.compile(r"(?!.*(--|\.\.))(?![.-])[\w.-]*\w/(?![.-])[\w.-]*\w", re.ASCII)
CARD, RECIPE, RESULT = "README.md", "recipe.toml", "result.json"
"""Files that are uploaded in addition to the model."""
_LICENSES = ("apache-2.0", "mit", "cc-by-4.0", "cc-by-nc-4.0")
"""Identifiers of the Hub for licenses of models in the catalog."""


@dataclass(frozen=True)
class Upload:
    """A model to upload. `seeds` are finished runs of its experiment, one for each seed, itself included."""

    directory: Path
    result: Result
    recipe: str
    seeds: Sequence[Result]
    bibtex: str

    @cached_property
    def tables(self) -> dict[str, Any]:
        """The parsed recipe."""
        return tomllib.loads(self.recipe)


def push_model(run: str, repository: str, *, private: bool = False) -> str:
    """Upload a run's model to the Hub in one commit, to a repository that is created if missing, and return its URL."""
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    upload = _find(run)
    model = [path for path in upload.directory.rglob("*") if path.is_file() and path.name != CARD]
    files: dict[str, str | bytes] = {path.relative_to(upload.directory).as_posix(): str(path) for path in model}
    files |= {
        CARD: _card(upload, repository).encode(),
        RECIPE: upload.recipe.encode(),
        RESULT: upload.result.model_dump_json(indent=1).encode(),
    }
    if get_token() is None:
        action = "run `hf auth login`, or set HF_TOKEN"
        raise MissingError("not logged in to the Hugging Face Hub", action, code="push.not_logged_in")
    hub, note = HfApi(), f"{upload.result.recipe}, seed {upload.result.seed}"
    operations = [CommitOperationAdd(name, content) for name, content in files.items()]
    try:
        made = hub.create_repo(repository, private=private, exist_ok=True)
        hub.create_commit(made.repo_id, operations, commit_message=note)
    except OfflineModeIsEnabled as error:
        raise MissingError("HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE", code="push.offline") from error
    except HfHubHTTPError as error:
        status, reason = error.response.status_code, error.server_message or error.response.reason_phrase
        problem = f"upload of '{repository}' to the Hub failed: {status} {reason}"
        if status in (401, 403):
            action = "log in with `hf auth login` as a user with write access"
            raise MissingError(problem, action, code="push.no_access") from error
        raise MissingError(problem, "try again later", code="push.failed") from error
    except OSError as error:  # no connection, a time-out
        problem = f"the Hub at {hub.endpoint} does not respond: {error}"
        raise MissingError(problem, "try again later", code="push.no_connection") from error
    return str(made)


def model_card(run: str, repository: str) -> str:
    """Return the model card of a run, as Markdown with metadata."""
    return _card(_find(run), repository)


def _find(run: str) -> Upload:
    found = find_run(run)
    result, folder = found.result, model_of_run(found.run_id)
    if result is None or folder is None:
        action = "choose a finished run: cse runs ls --status finished. Trials and imported runs have no model"
        raise CseError(f"run {found.about.short} has no model on this machine", action, code="push.no_model")
    recipe = (found.about.path / RECIPE).read_text(encoding="utf-8")
    same = {one.seed: one for one in finished_results() if one.experiment == result.experiment}
    seeds = sorted({**same, result.seed: result}.values(), key=lambda one: one.seed)
    return Upload(Path(folder), result, recipe, seeds, citations([found.run_id]).bibtex)


def _card(upload: Upload, repository: str) -> str:
    if not _REPOSITORY.fullmatch(repository):
        action = "use owner/name, for example me/simcse-bert-base"
        raise CseError(f"'{repository}' is not a Hub repository ID", action, code="push.bad_repository")
    result, name, used = upload.result, repository.partition("/")[2], upload.result.versions
    step = result.steps if result.selected_step is None else result.selected_step
    # Columns of the text that the data contains, in addition to the sentences.
    read = {view.get("column", "text") for view in upload.tables.get("views", {}).values()} - {"text"}
    given = [f"`{one}`" for one in sorted(read - upload.tables.get("data", {}).get("columns", {}).keys())]
    pairs = f"on sentences and the {', '.join(given)} that its data gives them,"
    rows = []
    for evaluator, metric, data, split in _measured(upload):
        values = [one.scores[evaluator][metric] for one in upload.seeds if metric in one.scores.get(evaluator, {})]
        before = result.untrained.get(evaluator, {}).get(metric)
        numbers = f"{result.scores[evaluator][metric]:.2f} | {mean_text(values)}"
        untrained = "" if before is None else f"{before:.2f}"
        rows.append(f"| {_joined(data, split)} | {metric} | {numbers} | {untrained} |")
    return _TEXT.format(
        metadata=_metadata(upload, name),
        name=name,
        title=result.title,
        model=result.model,
        on=pairs if given else "on single sentences, without labels,",
        usage=usage(repository, Prompts.read(upload.directory), native=is_native(upload.directory)),
        rows="\n".join(rows),
        seeds=seed_list([one.seed for one in upload.seeds]),
        seed=result.seed,
        step=f"{step} of {result.steps}",
        selected=f", selected by {result.metric_for_best_model}" if result.metric_for_best_model else "",
        warning=" Test data selected it, so the scores are optimistic." if result.test_selected else "",
        versions=f"cse {used.cse}, torch {used.torch}, transformers {used.transformers}",
        device=f"{result.device}, {result.precision}",
        recipe=upload.recipe.strip(),
        bibtex=upload.bibtex,
        file=RECIPE,
    )


def _metadata(upload: Upload, name: str) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    result, about = upload.result, known(upload.result.model)
    on_hub = about.downloadable if about is not None else f"model {result.model}" in result.commits
    # None if the owners of the model name no license that the Hub knows. Models of this package have its own.
    stated = "" if about is None else (about.license or "").lower()
    own = "apache-2.0" if (PRETRAINED / result.model).is_dir() else None
    metadata = ModelCardData(
        language=result.language,
        library_name="sentence-transformers" if is_native(upload.directory) else "cse",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "feature-extraction", "cse"],
        base_model=(result.model if about is None else about.id) if on_hub else None,
        license=own or (stated if stated in _LICENSES else None),
        datasets=sorted(key.removeprefix("dataset ") for key in result.commits if key.startswith("dataset ")) or None,
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="sentence-similarity",
                dataset_type=data,
                dataset_name=_joined(data, split),
                dataset_split=split or None,
                metric_type=metric,
                metric_value=round(result.scores[evaluator][metric], 2),
            )
            for evaluator, metric, data, split in _measured(upload)
        ],
    )
    return str(metadata.to_yaml())


def _measured(upload: Upload) -> Iterator[tuple[str, str, str, str]]:
    """Yield each evaluator with its main metric, and its data set, or file without its directory, and split."""
    for evaluator, scores in upload.result.scores.items():
        params = upload.tables["evaluators"][evaluator]
        metric, file = EVALUATORS[params["name"]].cls.metric, str(params.get("file", ""))
        source = file.removeprefix(HUB) if file.startswith(HUB) else Path(file).name
        if metric in scores:
            yield evaluator, metric, params.get("dataset") or source or evaluator, params.get("split", "")


def _joined(data: str, split: str) -> str:
    return "/".join(filter(None, (data, split)))


_TEXT = """---
{metadata}
---
# {name}

{title}. Trained from `{model}` {on} by cse. Compare embeddings by cosine
similarity.

{usage}

## Scores

| data | metric | this model (seed {seed}) | {seeds} | before training |
| --- | --- | ---: | ---: | ---: |
{rows}

The checkpoint is that of step {step}{selected}.{warning} The mean ± standard deviation is over the seeds of the same
experiment.

## Reproduce

```console
cse run {file} --seed {seed}
```

Trained with {versions} on {device}. `{file}` is in this repository:

```toml
{recipe}
```

## Citation

```bibtex
{bibtex}
```
"""
