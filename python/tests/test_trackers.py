"""Trackers of experiments, where they are installed."""

import pytest

import secsv


def test_mlflow_has_rounds_totals_and_files(result, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: logging to it is not tested")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file:{tmp_path / 'tracked'}")
    with mlflow.start_run() as run:
        result.log_to("mlflow")
    client = mlflow.MlflowClient()
    told = client.get_metric_history(run.info.run_id, "contribution/north")
    assert {one.step: one.value for one in told} == {number: values["north"] for number, values in result.rounds.items()}
    assert client.get_run(run.info.run_id).data.metrics["contribution_total/north"] == result["north"]
    assert {one.path for one in client.list_artifacts(run.info.run_id)} == {"result.json", "report.html"}


def test_tensorboard_has_rounds_and_files(result, tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: logging to it is not tested")
    pytest.importorskip("torch", reason="PyTorch is not installed: logging to TensorBoard is not tested")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result.log_to("tensorboard", str(tmp_path))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    told = {one.step: one.value for one in events.Scalars("contribution/north")}
    assert told == pytest.approx({number: values["north"] for number, values in result.rounds.items()}, abs=1e-6)
    assert (tmp_path / "result.json").exists() and (tmp_path / "report.html").exists()


def test_a_tracker_that_is_unknown_or_missing_is_said(result, monkeypatch):
    with pytest.raises(secsv.InputError, match="mlflow, wandb, tensorboard"):
        result.log_to("paper")
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(secsv.SecsvError, match="pip install wandb"):
        result.log_to("wandb")
