"""What the server that forks processes for tests has imported: they then start in milliseconds, not in ten seconds."""

import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
import scipy.stats  # noqa: F401
import transformers.models.bert.modeling_bert
import transformers.models.roberta.modeling_roberta  # noqa: F401

import cse_cli.analysis.figures  # noqa: F401
import tests.support.shrunken  # noqa: F401
