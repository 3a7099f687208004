"""A federation of Flower as it is deployed: a SuperLink and five SuperNodes, a process each, and `flwr run`. Then five silos and two
servers, a process each, value what the silos recorded."""

import contextlib
import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

flwr = pytest.importorskip("flwr", reason="Flower is not installed: its processes are not tested")

APP = Path(__file__).parents[2] / "examples" / "flower"
sys.path.insert(0, str(APP))
from hospitals import task

import secsv
from secsv import _files
from secsv._join import join
from test_flower import NAMES, value_over_tls, values_by_hand

BIN = Path(sys.executable).parent
#: Flower's processes have had these options since.
VERSION = tuple(int(part) for part in re.findall(r"\d+", flwr.__version__)[:2])
pytestmark = pytest.mark.skipif(VERSION < (1, 41), reason=f"Flower {flwr.__version__} configures its processes otherwise: tested from 1.41 on")


def ports(count):
    """Free ports of the loopback interface."""
    sockets = [socket.socket() for _ in range(count)]
    for taken in sockets:
        taken.bind(("127.0.0.1", 0))
    found = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return found


@contextlib.contextmanager
def processes(parent):
    """Starts processes by name and arguments; ends each with all that it started."""
    started = []
    home = parent / "flower"
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "SECSV_SIMULATION"}
    environment |= {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }

    def start(name, program, *arguments, **more):
        with open(parent / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [BIN / program, *map(str, arguments)], env=environment | more, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                pass
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


def wait_for_port(port, process, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, "the process has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise AssertionError(f"nobody listens at port {port}")


def test_silos_of_a_real_federation_are_valued(tmp_path):
    runtime, *own = ports(1 + len(NAMES))
    with processes(tmp_path) as start:
        (tmp_path / "flower" / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{runtime}"\ninsecure = true\n'
        )
        link = start("superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", runtime)
        wait_for_port(runtime, link)
        for place, (name, port) in enumerate(zip(NAMES, own)):
            start(
                f"supernode-{name}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{runtime}", "--host", "127.0.0.1", "--port", port,
                "--node-config", f'secsv-dir="{tmp_path / name}" silo="{name}" hospital={place}',
            )  # fmt: skip
        run = start("run", "flwr", "run", APP, "test", "--stream", "--run-config", f'recording="{tmp_path / "recorded"}"')
        run.wait(240)
    log = (tmp_path / "run.log").read_text(errors="replace")
    assert (tmp_path / "recorded" / "federation.toml").exists(), log[-3000:]
    for place, name in enumerate(NAMES):
        kept, _ = _files.read_tensors(tmp_path / name / "clients" / name / "test.safetensors")
        x, y = task.load(place, "test")
        assert np.array_equal(kept["x"], x) and np.array_equal(kept["y"], y)
        assert [entry.name for entry in (tmp_path / name / "clients").iterdir()] == [name], "nothing of anybody else"
    result = value_over_tls(tmp_path, tmp_path / "recorded")
    whole = join([tmp_path / name for name in NAMES], tmp_path / "run", federation=tmp_path / "recorded")
    assert whole.rounds == 3
    counts, _ = values_by_hand(whole)
    assert {(one.round, one.coalition): one.correct for one in result.utilities} == counts
    check_aggregates(whole)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Flower's simulations need flwr[simulation]: python/test versions runs this")
def test_a_real_simulation_is_valued(tmp_path):
    (runtime,) = ports(1)
    silos = [f"silo-{place}" for place in range(len(NAMES))]
    with processes(tmp_path) as start:
        (tmp_path / "flower" / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{runtime}"\ninsecure = true\n'
        )
        place = {"SECSV_SIMULATION": str(tmp_path / "silos")}
        link = start("superlink", "flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", runtime, **place)
        wait_for_port(runtime, link)
        settings = ("--run-config", f'recording="{tmp_path / "recorded"}"', "--federation-config", f"num-supernodes={len(NAMES)} client-resources-num-cpus=1")
        run = start("run", "flwr", "run", APP, "test", "--stream", *settings)
        run.wait(240)
    log = (tmp_path / "run.log").read_text(errors="replace")
    assert (tmp_path / "recorded" / "federation.toml").exists(), log[-3000:]
    whole = join([tmp_path / "silos" / silo for silo in silos], tmp_path / "run", federation=tmp_path / "recorded")
    assert whole.rounds == 3
    counts, _ = values_by_hand(whole)
    result = secsv.evaluate(whole, protocol="blindsv")
    assert {(one.round, one.coalition): one.correct for one in result.utilities} == counts
    check_aggregates(whole)


def check_aggregates(run):
    """What silos recorded is what the server got: its aggregates are the weighted means of that."""
    for number in range(1, run.rounds):
        weights = {name: run.weight(name, number) for name in run.silos}
        for key, array in run.global_model(number + 1).items():
            mean = sum(weight * run.local_model(name, number)[key].astype(float) for name, weight in weights.items()) / sum(weights.values())
            assert np.allclose(array, mean, atol=1e-6)
