"""The module and the command in a process: threads, forks, signals, exit codes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import secsv

COMMAND = [sys.executable, "-m", "secsv"]


def started(arguments, **options):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, **options)


def test_the_command_is_the_whole_program(run, tmp_path):
    assert started(["--version"]).stdout == f"secsv {secsv.__version__}\n"
    assert started([]).returncode == 2
    wrong = started(["evaluate", str(tmp_path), "--protocol", "nssv"])
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ") and "federation.toml" in wrong.stderr
    shown = started(["--quiet", "--format", "json", "evaluate", str(run.path), "--protocol", "nssv"])
    assert json.loads(shown.stdout)["clients"] == run.silos
    helped = started(["--help"]).stdout
    assert "  doctor " in helped and "evaluate" in helped
    own = started(["doctor", str(run.path)])
    assert own.returncode == 0 and "nssv: can test this model" in own.stdout
    assert started(["doctor", str(tmp_path)]).returncode == 2
    assert started(["join", str(tmp_path), "--out", str(tmp_path / "run")]).returncode == 2
    script = os.path.join(os.path.dirname(sys.executable), "secsv")
    if os.path.exists(script):
        assert subprocess.run([script, "--version"], capture_output=True, text=True).stdout.startswith("secsv ")


def test_an_interrupt_ends_the_command():
    # The handler is the system's own: what computes is ended at once.
    code = (
        "import signal, sys, threading, time; from secsv import _command, _native\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "_native.command = lambda arguments: (print('computing', flush=True), time.sleep(60))\n"
        "_command.main()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "computing\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=30) == -signal.SIGINT


def test_four_threads_at_once_have_the_same_values(run, result):
    with ThreadPoolExecutor(4) as pool:
        protocols = ["nssv", "blindsv", "nssv", "blindsv"]
        found = list(pool.map(lambda name: secsv.evaluate(run, protocol=name, progress=False), protocols))
    assert [one.values for one in found] == [result.values] * 4


def test_the_interpreter_is_released(run):
    ticks, over = [], threading.Event()

    def tick():
        while not over.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    begun = time.monotonic()
    secsv.evaluate(run, protocol="blindsv", progress=False)
    ended = time.monotonic()
    over.set()
    thread.join()
    inside = [at for at in ticks if begun < at < ended]
    assert len(inside) >= 2, f"{len(inside)} ticks in {ended - begun:.3f} s"


FORK = """
import os, sys, time, secsv
run, first = sys.argv[1:]
if first != "nothing":
    secsv.evaluate(run, protocol=first, progress=False)
child = os.fork()
if child == 0:
    try:
        secsv.evaluate(run, protocol="secretsv", progress=False)
        os._exit(0)
    except RuntimeError as error:
        os._exit(7 if "spawn" in str(error) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(("first", "code"), [("nothing", 0), ("nssv", 7)])
def test_a_forked_child_computes_or_says_why_not(run, first, code):
    """Threads do not survive a fork: after work the child would wait for ever."""
    forked = subprocess.run([sys.executable, "-c", FORK, str(run.path), first], capture_output=True, text=True, timeout=120)
    assert forked.stdout == f"{code}\n", forked.stderr


def test_an_interrupt_ends_an_evaluation(tmp_path):
    """Of a federation that takes minutes."""
    code = """
import signal, sys, numpy as np, secsv
# Whoever starts tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
rng, silos = np.random.default_rng(0), [f"s{i}" for i in range(12)]
model = secsv.Model([40], 10, [{"kind": "linear", "weight": "w"}])
run = secsv.Run.create(sys.argv[1], name="large", model=model)
run.start_of(1, {"w": rng.normal(size=(10, 40))})
for r in range(1, 21):
    for s in silos:
        run.record(r, s, {"w": rng.normal(size=(10, 40))}, 1)
for s in silos:
    run.test(s, rng.normal(size=(150, 40)), rng.integers(0, 10, 150))
print("begun", flush=True)
try:
    secsv.evaluate(run, protocol="secretsv", progress=lambda now: print("at", now.tested, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "begun\n"
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=60)
    assert rest.endswith("interrupted\n") and child.returncode == 0


@pytest.mark.parametrize("order", ["torch, secsv", "secsv, torch"])
def test_it_goes_with_torch_in_any_order(run, order):
    pytest.importorskip("torch")
    code = f"import {order}, sys; secsv.evaluate(sys.argv[1], protocol='nssv', progress=False)"
    subprocess.run([sys.executable, "-c", code, str(run.path)], check=True, timeout=300)
