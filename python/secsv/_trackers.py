"""Trackers of experiments."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ._errors import SecsvError

if TYPE_CHECKING:
    from ._result import Result


def missing(name: str, error: ImportError) -> SecsvError:
    """The error that a tracker is not installed."""
    return SecsvError(f"expected {name} to be installed, found none: pip install {name} ({error})")


def files(result: Result, directory: str) -> tuple[Path, Path]:
    """The document and the report, written to a directory."""
    document, report = Path(directory, "result.json"), Path(directory, "report.html")
    result.save(document)
    result.report(report)
    return document, report


def mlflow(result: Result, _: str) -> None:
    """Logs to the active run of MLflow."""
    try:
        import mlflow
    except ImportError as error:
        raise missing("mlflow", error) from error
    for number, values in result.rounds.items():
        mlflow.log_metrics({f"contribution/{silo}": value for silo, value in values.items()}, step=number)
    mlflow.log_metrics({f"contribution_total/{silo}": value for silo, value in result.values.items()})
    with tempfile.TemporaryDirectory() as directory:
        for path in files(result, directory):
            mlflow.log_artifact(str(path))


def wandb(result: Result, _: str) -> None:
    """Logs to the active run of Weights & Biases."""
    try:
        import wandb
    except ImportError as error:
        raise missing("wandb", error) from error
    for number, values in result.rounds.items():
        wandb.log({"round": number, **{f"contribution/{silo}": value for silo, value in values.items()}})
    wandb.log({f"contribution_total/{silo}": value for silo, value in result.values.items()})
    artifact = wandb.Artifact("contributions", type="secsv-result")
    with tempfile.TemporaryDirectory() as directory:
        for path in files(result, directory):
            artifact.add_file(str(path))
        wandb.log_artifact(artifact)


def tensorboard(result: Result, directory: str) -> None:
    """Writes an event file, with the document and the report beside it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing("tensorboard", error) from error
    with SummaryWriter(directory) as writer:
        for number, values in result.rounds.items():
            for silo, value in values.items():
                writer.add_scalar(f"contribution/{silo}", value, number)
        last = max(result.rounds, default=0)
        for silo, value in result.values.items():
            writer.add_scalar(f"contribution_total/{silo}", value, last)
    files(result, directory)


TRACKERS: dict[str, Callable[[Result, str], None]] = {"mlflow": mlflow, "wandb": wandb, "tensorboard": tensorboard}
