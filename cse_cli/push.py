"""Upload of a run's model, recipe and result to the Hugging Face Hub, with a model card."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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
    """A model to upload.

    Args:
        seeds: Finished runs of the same experiment, one for each seed, including the run itself.
        bibtex: References of the run.
    """

    directory: Path
    result: Result
    recipe: str
    seeds: Sequence[Result]
    bibtex: str


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
        raise MissingError(
            "not logged in to the Hugging Face Hub", "run `hf auth login`, or set HF_TOKEN", code="push.not_logged_in"
        )
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
        raise MissingError(
            f"the Hub at {hub.endpoint} does not respond: {error}", "try again later", code="push.no_connection"
        ) from error
    return str(made)


def model_card(run: str, repository: str) -> str:
    """Return the model card of a run, as Markdown with metadata."""
    return _card(_find(run), repository)


def _find(run: str) -> Upload:
    found = find_run(run)
    result, folder = found.result, model_of_run(found.run_id)
    if result is None or folder is None:
        raise CseError(
            f"run {found.about.short} has no model on this machine",
            "choose a finished run: cse runs ls --status finished. Trials and imported runs have no model",
            code="push.no_model",
        )
    recipe = (found.about.path / RECIPE).read_text(encoding="utf-8")
    same = {one.seed: one for one in finished_results() if one.experiment == result.experiment}
    seeds = sorted({**same, result.seed: result}.values(), key=lambda one: one.seed)
    return Upload(Path(folder), result, recipe, seeds, citations([found.run_id]).bibtex)


def _card(upload: Upload, repository: str) -> str:
    if not _REPOSITORY.fullmatch(repository):
        raise CseError(
            f"'{repository}' is not a Hub repository ID",
            "use owner/name, for example me/simcse-bert-base",
            code="push.bad_repository",
        )
    result, name = upload.result, repository.partition("/")[2]
    used = result.versions
    step = result.steps if result.selected_step is None else result.selected_step
    return _TEXT.format(
        metadata=_metadata(upload, name),
        name=name,
        title=result.title,
        model=result.model,
        on=_training_text(upload),
        usage=usage(repository, Prompts.read(upload.directory), native=is_native(upload.directory)),
        rows="\n".join(_score_lines(upload)),
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


def _training_text(upload: Upload) -> str:
    """Return whether the views are made of single sentences, or of pairs or triplets that the data contains."""
    recipe = tomllib.loads(upload.recipe)
    read = {view.get("column", "text") for view in recipe.get("views", {}).values()}
    given = sorted(read - {"text"} - recipe.get("data", {}).get("columns", {}).keys())
    if not given:
        return "on single sentences, without labels,"
    return f"on sentences and the {', '.join(f'`{name}`' for name in given)} that its data gives them,"


def _metadata(upload: Upload, name: str) -> str:
    """Return the metadata of the card as YAML."""
    from huggingface_hub import EvalResult, ModelCardData

    result, trained = upload.result, known(upload.result.model)
    if trained is not None:
        base = trained.id if trained.downloadable else None
    else:
        base = result.model if f"model {result.model}" in result.commits else None
    metadata = ModelCardData(
        language=result.language,
        library_name="sentence-transformers" if is_native(upload.directory) else "cse",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "feature-extraction", "cse"],
        base_model=base,  # none if the Hub does not have it
        license=_license(result.model),
        datasets=sorted(key.removeprefix("dataset ") for key in result.commits if key.startswith("dataset ")) or None,
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="sentence-similarity",
                dataset_type=_dataset(upload, evaluator)[0],
                dataset_name=_data_text(upload, evaluator),
                dataset_split=_dataset(upload, evaluator)[1] or None,
                metric_type=metric,
                metric_value=round(result.scores[evaluator][metric], 2),
            )
            for evaluator, metric in _shown_metrics(upload)
        ],
    )
    return str(metadata.to_yaml())


def _license(model: str) -> str | None:
    """Return the Hub's identifier of the license of the trained model, or None if the owners name no such license."""
    if (PRETRAINED / model).is_dir():
        return "apache-2.0"  # as this package
    about = known(model)
    stated = "" if about is None else (about.license or "").lower()
    return stated if stated in _LICENSES else None


def _dataset(upload: Upload, evaluator: str) -> tuple[str, str]:
    """Return data set, or file without its directory, and split. An evaluator without one data set has its own name."""
    params = tomllib.loads(upload.recipe)["evaluators"][evaluator]
    file = str(params.get("file", ""))
    source = file.removeprefix(HUB) if file.startswith(HUB) else Path(file).name
    return params.get("dataset") or source or evaluator, params.get("split", "")


def _data_text(upload: Upload, evaluator: str) -> str:
    """Return "stsb/test"."""
    return "/".join(filter(None, _dataset(upload, evaluator)))


def _score_lines(upload: Upload) -> Iterator[str]:
    """Yield the rows of the scores table."""
    result = upload.result
    for evaluator, metric in _shown_metrics(upload):
        values = [one.scores[evaluator][metric] for one in upload.seeds if metric in one.scores.get(evaluator, {})]
        before = result.untrained.get(evaluator, {}).get(metric)
        untrained = "" if before is None else f"{before:.2f}"
        own = result.scores[evaluator][metric]
        yield f"| {_data_text(upload, evaluator)} | {metric} | {own:.2f} | {mean_text(values)} | {untrained} |"


def _shown_metrics(upload: Upload) -> list[tuple[str, str]]:
    """Return each evaluator with its main metric."""
    parts = tomllib.loads(upload.recipe)["evaluators"]
    named = [(name, EVALUATORS[parts[name]["name"]].cls.metric) for name in upload.result.scores]
    return [(name, metric) for name, metric in named if metric in upload.result.scores[name]]


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
