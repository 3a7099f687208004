"""Recorders of NVIDIA FLARE: a simulation of four sites, and filters by themselves."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: its recorders are not tested")

from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.filter import FilterChainType, FilterContextKey, FilterSource
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.app_constant import AppConstants

import secsv
from secsv import _files
from secsv._join import join
from secsv.nvflare import FederationRecorder, SiloRecorder

EXAMPLE = Path(__file__).parents[2] / "examples" / "flare"
sys.path.insert(0, str(EXAMPLE))
import task

RNG = np.random.default_rng(5)


def message(number, arrays, kind=DataKind.WEIGHTS, **meta):
    """A message of a round, which FLARE counts from 0."""
    shareable = DXO(kind, data=arrays, meta=meta).to_shareable()
    shareable.set_header(AppConstants.CURRENT_ROUND, number - 1)
    return shareable


def context(site, peer=None):
    found = FLContext()
    found.set_prop(ReservedKey.IDENTITY_NAME, site, private=False, sticky=False)
    if peer:
        found.set_peer_context(context(peer))
    return found


def recorder(chain, source=FilterSource.JOB, directory=None):
    made = SiloRecorder(directory)
    made.set_prop(FilterContextKey.CHAIN_TYPE, chain)
    made.set_prop(FilterContextKey.SOURCE, source)
    return made


def model():
    return {"w": RNG.normal(size=(3, 2)).astype("f4")}


def test_only_the_site_says_where(tmp_path, monkeypatch):
    incoming, elsewhere = FilterChainType.TASK_DATA_CHAIN, str(tmp_path / "elsewhere")
    recorder(incoming, directory=elsewhere).process(message(1, model()), context("north"))
    assert list(tmp_path.iterdir()) == [], "a job's directory is not listened to"
    monkeypatch.setenv("SECSV_DIR", str(tmp_path / "own"))
    recorder(incoming, directory=elsewhere).process(message(1, model()), context("north"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["own"]
    monkeypatch.delenv("SECSV_DIR")
    configured = str(tmp_path / "configured")
    recorder(incoming, FilterSource.SITE, configured).process(message(2, model()), context("north"))
    assert (tmp_path / "configured" / "global" / "round-0001.safetensors").exists()


def test_the_sites_own_configuration_is_that_of_the_document(tmp_path):
    """FLARE's own loader reads the JSON of docs/FLARE.md; what comes and what goes passes the filters that it makes."""
    from nvflare.apis.fl_constant import FilterKey
    from nvflare.private.fed.app.fl_conf import create_privacy_manager

    text = (EXAMPLE.parents[1] / "docs" / "FLARE.md").read_text()
    file = tmp_path / "privacy.json"
    file.write_text(text.split("```json\n")[1].split("```")[0].replace("/srv/secsv", str(tmp_path / "own")))

    class Site:
        def get_site_privacy_file_path(self):
            return str(file)

    scope = create_privacy_manager(Site(), names_only=False).get_scope(None)
    [came], [went] = scope.task_data_filters[FilterKey.IN], scope.task_result_filters[FilterKey.OUT]
    came.process(message(1, model()), context("north"))
    sent = model()
    went.process(message(1, sent), context("north"))
    kept, _ = _files.read_tensors(tmp_path / "own" / "clients" / "north" / "round-0001.safetensors")
    assert np.array_equal(kept["w"], sent["w"]) and (tmp_path / "own" / "initial.safetensors").exists()


def test_differences_are_added_to_what_came(tmp_path, monkeypatch):
    monkeypatch.setenv("SECSV_DIR", str(tmp_path))
    begun, difference = model(), model()
    came, went = message(1, begun), message(1, difference, DataKind.WEIGHT_DIFF, **{MetaKey.NUM_STEPS_CURRENT_ROUND: 7})
    assert recorder(FilterChainType.TASK_DATA_CHAIN).process(came, context("north")) is came
    assert recorder(FilterChainType.TASK_RESULT_CHAIN).process(went, context("north")) is went
    kept, notes = _files.read_tensors(tmp_path / "clients" / "north" / "round-0001.safetensors")
    assert np.array_equal(kept["w"], begun["w"] + difference["w"]) and notes == {"secsv.weight": "7.0"}


def test_whole_models_are_kept_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("SECSV_SIMULATION", str(tmp_path))
    sent = model()
    recorder(FilterChainType.TASK_RESULT_CHAIN).process(message(3, sent), context("site-2"))
    kept, notes = _files.read_tensors(tmp_path / "site-2" / "clients" / "site-2" / "round-0003.safetensors")
    assert np.array_equal(kept["w"], sent["w"]) and notes == {}


def test_what_a_privacy_filter_lets_out_is_what_counts(tmp_path, monkeypatch):
    """FLARE's own filter before the recorder: kept is what is uploaded, not what was trained."""
    from nvflare.apis.dxo import from_shareable
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy

    monkeypatch.setenv("SECSV_DIR", str(tmp_path))
    begun, trained = model(), model()
    recorder(FilterChainType.TASK_DATA_CHAIN).process(message(1, begun), context("north"))
    went = message(1, dict(trained), DataKind.WEIGHT_DIFF, **{MetaKey.NUM_STEPS_CURRENT_ROUND: 1})
    for passed in (PercentilePrivacy(percentile=50, gamma=0.1), recorder(FilterChainType.TASK_RESULT_CHAIN)):
        went = passed.process(went, context("north"))
    uploaded = from_shareable(went).data["w"]
    assert np.abs(uploaded).max() <= 0.1 + 1e-6 < np.abs(trained["w"]).max()
    kept, _ = _files.read_tensors(tmp_path / "clients" / "north" / "round-0001.safetensors")
    assert np.allclose(kept["w"], begun["w"] + uploaded)


def test_ciphertexts_are_refused(tmp_path, monkeypatch):
    """Attack: the filter that encrypts comes first, and the recorder would keep ciphertexts as models."""
    monkeypatch.setenv("SECSV_DIR", str(tmp_path))
    encrypted = message(1, model(), **{MetaKey.PROCESSED_ALGORITHM: "_CKKS_"})
    with pytest.raises(secsv.InputError, match="before the filter that encrypts"):
        recorder(FilterChainType.TASK_RESULT_CHAIN).process(encrypted, context("north"))
    trees = message(1, {"trees": np.zeros(900, np.uint8)})
    with pytest.raises(secsv.InputError, match="900 bytes of uint8: a serialised model"):
        recorder(FilterChainType.TASK_RESULT_CHAIN).process(trees, context("north"))


def test_the_server_keeps_weights_and_no_model(tmp_path):
    description = {"input": [2], "classes": 3, "layers": [{"kind": "linear", "weight": "w"}]}
    server = FederationRecorder(str(tmp_path), description, weights={"south": 0.5})
    for number, site, steps in [(1, "south", 30), (1, "north", 10), (2, "north", 10)]:
        server.process(message(number, model(), **{MetaKey.NUM_STEPS_CURRENT_ROUND: steps}), context("server", site))
    assert [entry.name for entry in tmp_path.iterdir()] == ["federation.toml"]
    _files.write_tensors(tmp_path / "initial.safetensors", model())
    run = secsv.Run(tmp_path)
    assert [[run.weight(site, number) for number in (1, 2)] for site in ("north", "south")] == [[10, 10], [15, 0]]


def end_all(directory):
    """Ends the simulator's processes, which are in sessions of their own, by the directory that they were given."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(directory).encode() in (entry / "cmdline").read_bytes() and entry.name != str(os.getpid()):
                os.kill(int(entry.name), signal.SIGKILL)


def test_a_simulation_of_four_sites_is_valued(tmp_path):
    """With differences, which is the harder case."""
    environment = {**os.environ, "SECSV_SIMULATION": str(tmp_path / "sites")}
    command = [sys.executable, str(EXAMPLE / "job.py"), "--recorded", str(tmp_path / "recorded"), "--workspace", str(tmp_path / "workspace"), "--transfer", "DIFF"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    finally:
        end_all(tmp_path)
    sites = sorted((tmp_path / "sites").iterdir()) if (tmp_path / "sites").exists() else []
    assert [site.name for site in sites] == [f"site-{number}" for number in range(1, 5)], done.stdout[-3000:] + done.stderr[-3000:]
    run = join(sites, tmp_path / "run", federation=tmp_path / "recorded")
    assert (run.silos, run.rounds) == ([site.name for site in sites], 2)
    # The mean of what sites recorded is what FLARE made of it.
    mean = sum(run.weight(silo, 1) * run.local_model(silo, 1)[task.NAME].astype(float) for silo in run.silos)
    mean /= sum(run.weight(silo, 1) for silo in run.silos)
    assert np.abs(_files.read_tensors(sites[0] / "global" / "round-0001.safetensors")[0][task.NAME] - mean).max() < 1e-6
    values = {name: secsv.evaluate(run, protocol=name).values for name in ("nssv", "blindsv")}
    assert values["nssv"] == values["blindsv"]
    assert min(values["nssv"], key=values["nssv"].get) == "site-4", "its labels are wrong"
