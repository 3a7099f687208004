"""Recorders in real apps and strategies of Flower, in one process: what is recorded is what travelled, and values follow from it."""

import contextlib
import importlib
import itertools
import json
import logging
import math
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: its recorders are not tested")

import flwr
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import Grid
from flwr.serverapp import strategy as strategies

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "flower"))
from hospitals import client_app, task

import secsv
from secsv import _files, _run
from secsv._doctor import findings
from secsv._join import join
from secsv.flower import SiloRecorder, live, record

logging.getLogger("flwr").setLevel(logging.ERROR)
NAMES = ["north", "south", "east", "west", "centre"]


class LocalGrid(Grid):
    """The nodes of a federation in this process: messages go to the app itself, and every node has its own node config."""

    def __init__(self, app, configs):
        try:
            from flwr.supercore.task_identity import TaskIdentity

            TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        except ImportError:
            pass
        self.app, self.sent = app, []
        self.contexts = {
            1000 + place: Context(run_id=1, node_id=1000 + place, node_config=config, state=RecordDict(), run_config={"secsv-dir": "/elsewhere", "silo": "liar"})
            for place, config in enumerate(configs)
        }

    def set_run(self, run):
        pass

    @property
    def run(self):
        return None

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
            node = message.metadata.dst_node_id
            reply = self.app(message, self.contexts[node])
            if message.metadata.message_type.startswith("train"):
                self.sent.append((node, message.content["config"]["server-round"], reply))
            replies.append(reply)
        return replies


def configs(parent, recording=NAMES):
    """The node configs of five SuperNodes."""
    return [
        {"hospital": place, **({"secsv-dir": str(parent / name), "silo": name} if name in recording else {})}
        for place, name in enumerate(NAMES)
    ]


def initial():
    return ArrayRecord({name: Array(array) for name, array in task.initial().items()})


def federate(parent, strategy, rounds=3, app=client_app.app, **options):
    grid = LocalGrid(app, configs(parent))
    recorded = record(strategy, parent / "server", task.MODEL, name="five hospitals", **options)
    recorded.start(grid=grid, initial_arrays=initial(), num_rounds=rounds)
    return grid


def fed_avg(**options):
    return strategies.FedAvg(min_available_nodes=5, min_train_nodes=4, **options)


def test_what_silos_keep_is_what_the_server_got(tmp_path):
    grid = federate(tmp_path, fed_avg(), models=True)
    assert len(grid.sent) == 15
    for node, number, reply in grid.sent:
        name = NAMES[node - 1000]
        own = tmp_path / name / "clients" / name / f"round-{number:04d}.safetensors"
        assert own.read_bytes() == (tmp_path / "server" / "clients" / name / own.name).read_bytes()
        kept, _ = _files.read_tensors(own)
        for key, array in reply.content["arrays"].items():
            assert kept[key].tobytes() == array.numpy().tobytes()
    for place, name in enumerate(NAMES):
        kept, _ = _files.read_tensors(tmp_path / name / "clients" / name / "test.safetensors")
        x, y = task.load(place, "test")
        assert np.array_equal(kept["x"], x) and np.array_equal(kept["y"], y)
        others = [entry.name for entry in (tmp_path / name / "clients").iterdir()]
        assert others == [name], "nothing of anybody else"
    assert not Path("/elsewhere").exists(), "who submits a run does not say where silos write"


def values_by_hand(run):
    """Shapley values of a whole run by the definition, in NumPy alone."""
    tests = [_files.read_tensors(run.path / "clients" / name / "test.safetensors")[0] for name in run.silos]
    x = np.concatenate([test["x"] for test in tests]).astype(float)
    y = np.concatenate([test["y"] for test in tests])
    counts, values, everybody = {}, dict.fromkeys(run.silos, 0.0), {}
    for number in range(1, run.rounds + 1):
        there = [name for name in run.silos if run.weight(name, number)]
        models = {name: run.local_model(name, number) for name in there}
        right = lambda model: int(((x @ model["weight"].T + model["bias"]).argmax(axis=1) == y).sum())
        for size in range(len(there) + 1):
            for coalition in itertools.combinations(there, size):
                total = sum(run.weight(name, number) for name in coalition)
                if coalition:
                    model = {key: sum(run.weight(n, number) * models[n][key].astype(float) for n in coalition) / total for key in ("weight", "bias")}
                elif number == 1:
                    model = {key: array.astype(float) for key, array in run.global_model(1).items()}
                else:
                    model = everybody
                counts[number, tuple(sorted(coalition))] = right(model)
                everybody_now = model
        everybody = everybody_now
        for name in there:
            others = [other for other in there if other != name]
            for size in range(len(others) + 1):
                for coalition in itertools.combinations(others, size):
                    gain = counts[number, tuple(sorted((*coalition, name)))] - counts[number, tuple(sorted(coalition))]
                    values[name] += gain / len(y) / (len(there) * math.comb(len(others), size))
    return counts, values


def test_silos_are_joined_and_valued(tmp_path):
    federate(tmp_path, fed_avg(), global_models=True)
    assert not (tmp_path / "server" / "clients").exists(), "no local model at the server"
    run = join([tmp_path / name for name in NAMES], tmp_path / "run", federation=tmp_path / "server")
    counts, values = values_by_hand(run)
    for protocol in ("nssv", "blindsv"):
        result = secsv.evaluate(run, protocol=protocol)
        assert {(one.round, one.coalition): one.correct for one in result.utilities} == counts
        for name, value in values.items():
            assert result[name] == pytest.approx(value, abs=1e-12)
    assert min(result.values, key=result.values.get) == "centre", "its labels are wrong"


def test_absences_are_said(tmp_path):
    """Three of five take part in each round; who missed the first never got the initial model."""
    np.random.seed(1)
    import random

    random.seed(4)
    grid = federate(tmp_path, strategies.FedAvg(fraction_train=0.6, min_available_nodes=5, min_train_nodes=3), rounds=4)
    run = join([tmp_path / name for name in NAMES if (tmp_path / name).exists()], tmp_path / "run", federation=tmp_path / "server")
    took_part = {(NAMES[node - 1000], number) for node, number, _ in grid.sent}
    assert len(took_part) == 12
    for name in run.silos:
        for number in range(1, 5):
            assert bool(run.weight(name, number)) == ((name, number) in took_part)
    counts, _ = values_by_hand(run)
    assert {(one.round, one.coalition): one.correct for one in secsv.evaluate(run, protocol="nssv").utilities} == counts


@pytest.mark.parametrize("make", [lambda: strategies.FedAdam(min_available_nodes=5), lambda: strategies.FedAvgM(min_available_nodes=5, server_momentum=0.5), lambda: strategies.FedMedian(min_available_nodes=5)])
def test_other_strategies_are_said_to_be_others(tmp_path, make):
    federate(tmp_path, make(), models=True)
    run = secsv.Run(tmp_path / "server")
    assert run.aggregation == "other"
    for place, name in enumerate(NAMES):
        run.test(name, *task.load(place, "test"))
    result = secsv.evaluate(run, protocol="nssv")
    empty = {one.round: one.correct for one in result.utilities if not one.coalition}
    x = np.concatenate([task.load(place, "test")[0] for place in range(5)])
    y = np.concatenate([task.load(place, "test")[1] for place in range(5)])
    model = secsv.Model.of(task.MODEL)
    for number, correct in empty.items():
        assert correct == int((model.predict(run.global_model(number), x) == y).sum())
    with pytest.raises(secsv.InputError, match="aggregation"):
        secsv.evaluate(run, protocol="blindsv")


def test_a_silo_that_does_not_record_is_left_alone(tmp_path):
    grid = LocalGrid(client_app.app, configs(tmp_path, NAMES[:3]))
    recorded = record(fed_avg(), tmp_path / "server", task.MODEL)
    recorded.start(grid=grid, initial_arrays=initial(), num_rounds=1)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["east", "north", "server", "south"]
    assert set(recorded.weights) == {"east", "north", "south", "node-1003", "node-1004"}


def test_partitions_of_a_simulation_record_where_the_environment_says(tmp_path, monkeypatch):
    nodes = [{"partition-id": place, "num-partitions": 5} for place in range(5)]
    for place, is_said in enumerate((False, True)):
        if is_said:
            monkeypatch.setenv("SECSV_SIMULATION", str(tmp_path / "silos"))
        recorded = record(fed_avg(), tmp_path / f"server-{place}", task.MODEL)
        recorded.start(grid=LocalGrid(client_app.app, nodes), initial_arrays=initial(), num_rounds=1)
        assert (tmp_path / "silos").exists() == is_said
    assert (tmp_path / "silos" / "silo-4" / "clients" / "silo-4" / "test.safetensors").exists()
    run = join(sorted((tmp_path / "silos").iterdir()), tmp_path / "run", federation=tmp_path / "server-1")
    assert run.silos == [f"silo-{place}" for place in range(5)]


def test_training_is_what_it_was(tmp_path):
    """The mod and the wrapper change no number."""
    plain = ClientApp()
    plain.train()(client_app.train)
    plain.evaluate()(client_app.evaluate)
    grid, other = LocalGrid(plain, configs(tmp_path, [])), LocalGrid(client_app.app, configs(tmp_path))
    without = fed_avg().start(grid=grid, initial_arrays=initial(), num_rounds=2)
    recorded = record(fed_avg(), tmp_path / "server", task.MODEL).start(grid=other, initial_arrays=initial(), num_rounds=2)
    for key, array in without.arrays.items():
        assert np.allclose(array.numpy(), recorded.arrays[key].numpy(), atol=1e-6)


def changing(change):
    """A mod that changes the model on its way out."""

    def mod(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type.startswith("train"):
            arrays = {name: Array(change(array.numpy(), context.node_id)) for name, array in reply.content["arrays"].items()}
            reply.content["arrays"] = ArrayRecord(arrays)
        return reply

    return mod


def app_of(mods):
    app = ClientApp(mods=mods)
    app.train()(client_app.train)
    app.evaluate()(client_app.evaluate)
    return app


def test_noise_for_privacy_is_inside_and_masks_are_outside(tmp_path):
    """What is uploaded under differential privacy is what counts; what masks hide is what the silo trained."""
    recorder = SiloRecorder(lambda context: task.load(int(context.node_config["hospital"]), "test"))
    noise = LocalDpMod(clipping_norm=5.0, sensitivity=0.5, epsilon=5.0, delta=1e-5)
    grid = federate(tmp_path / "dp", fed_avg(), rounds=1, app=app_of([recorder, noise]), models=True)
    for node, number, reply in grid.sent:
        name = NAMES[node - 1000]
        kept, _ = _files.read_tensors(tmp_path / "dp" / name / "clients" / name / "round-0001.safetensors")
        assert np.array_equal(kept["weight"], reply.content["arrays"]["weight"].numpy())
        x, y = task.load(node - 1000, "train")
        assert not np.allclose(kept["weight"], task.train(task.initial(), x, y)["weight"]), "Flower's mod added noise"
    # Masks that cancel over all five, as secure aggregation has them.
    mask = lambda array, node: (array + np.float32(50 * (node - 1002))).astype("f4")
    grid = federate(tmp_path / "masks", strategies.FedAvg(min_available_nodes=5), rounds=1, app=app_of([changing(mask), recorder]))
    for node, number, reply in grid.sent:
        name = NAMES[node - 1000]
        kept, _ = _files.read_tensors(tmp_path / "masks" / name / "clients" / name / "round-0001.safetensors")
        x, y = task.load(node - 1000, "train")
        assert np.array_equal(kept["weight"], task.train(task.initial(), x, y)["weight"])
        assert np.abs(kept["weight"] - reply.content["arrays"]["weight"].numpy()).max() > 40 or node == 1002


def test_trees_are_refused_with_the_reason(tmp_path):
    app = ClientApp(mods=[SiloRecorder()])

    @app.train()
    def train(message, context):
        trees = ArrayRecord({"0": Array(np.frombuffer(b'{"trees": []}' * 89, np.uint8))})
        return Message(content=RecordDict({"arrays": trees, "metrics": MetricRecord({"num-examples": 3})}), reply_to=message)

    grid = LocalGrid(app, configs(tmp_path))
    message = Message(RecordDict({"arrays": initial(), "config": flwr.app.ConfigRecord({"server-round": 1})}), 1000, "train", group_id="1")
    with pytest.raises(Exception, match="1157 bytes of uint8: a serialised model"):
        grid.send_and_receive([message])


def test_a_silo_that_cannot_write_trains_all_the_same(tmp_path, caplog):
    (tmp_path / "north").write_text("a file where the directory should be")
    federate(tmp_path, fed_avg(), rounds=1)
    said = [line.message for line in caplog.records if line.name == "secsv"]
    assert len(said) >= 3 and "the model of north in round 1 is not recorded" in " ".join(said)
    run = (tmp_path / "server" / "federation.toml").read_text()
    assert 'id = "north"' in run and (tmp_path / "south" / "clients" / "south" / "round-0001.safetensors").exists()


def test_two_silos_of_one_name_are_refused(tmp_path):
    nodes = configs(tmp_path)
    nodes[1]["silo"] = "north"
    recorded = record(fed_avg(), tmp_path / "server", task.MODEL)
    with pytest.raises(secsv.InputError, match="two that say they are 'north'"):
        recorded.start(grid=LocalGrid(client_app.app, nodes), initial_arrays=initial(), num_rounds=1)


def test_join_refuses_what_does_not_fit(tmp_path):
    federate(tmp_path, fed_avg(), rounds=2, global_models=True)
    silos = [tmp_path / name for name in NAMES]
    with pytest.raises(secsv.InputError, match="as the server recorded it"):
        join(silos, tmp_path / "a")
    with pytest.raises(secsv.InputError, match="one directory with the silo's files"):
        join(silos[:4], tmp_path / "b", federation=tmp_path / "server")
    text = (tmp_path / "server" / "federation.toml").read_text()
    other = tmp_path / "other.toml"
    other.write_text(text.replace("train_size = 100", "train_size = 101"))
    with pytest.raises(secsv.InputError, match="the weight that the silo recorded"):
        join(silos, tmp_path / "c", federation=other)
    global_model = tmp_path / "east" / "global" / "round-0001.safetensors"
    arrays, _ = _files.read_tensors(global_model)
    _files.write_tensors(global_model, {name: array + 1 for name, array in arrays.items()})
    with pytest.raises(secsv.InputError, match="the same that the other silos received"):
        join(silos, tmp_path / "d", federation=tmp_path / "server")


def test_the_doctor_says_what_is_missing(tmp_path):
    federate(tmp_path, fed_avg(), rounds=2, global_models=True)
    assert any("`secsv join`" in line for line in findings(tmp_path / "server"))
    run = join([tmp_path / name for name in NAMES], tmp_path / "run", federation=tmp_path / "server")
    found = list(findings(run.path))
    assert not any(line.startswith("->") for line in found), found
    assert "blindsv: can test this model" in found and any("##  40 test samples" in line for line in found)
    (run.path / "clients" / "east" / "test.safetensors").unlink()
    (run.path / "clients" / "west" / "round-0002.safetensors").unlink()
    found = "\n".join(findings(run.path))
    assert "-> west counts 180 but has no model in round 2" in found and "each silo writes its own test samples" in found


def translation():
    """What translates messages of the older interface; versions of Flower have it in different places."""
    for name in ("flwr.compat.common.recorddict_compat", "flwr.common.recorddict_compat"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return pytest.skip("this Flower has no translation of the older interface")


def test_clients_of_the_older_interface_are_recorded(tmp_path):
    compat = translation()
    from flwr.client import NumPyClient
    from flwr.common import FitIns, ndarrays_to_parameters

    class Client(NumPyClient):
        def fit(self, parameters, config):
            return [parameter + 1 for parameter in parameters], 17, {}

    app = ClientApp(client_fn=lambda context: Client().to_client(), mods=[SiloRecorder()])
    sent = [np.zeros((3, 12), "f4"), np.zeros(3, "f4")]
    content = compat.fitins_to_recorddict(FitIns(ndarrays_to_parameters(sent), {}), keep_input=True)
    grid = LocalGrid(app, configs(tmp_path))
    message = Message(content, 1000, "train", group_id="2")
    message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
    reply = app(message, grid.contexts[1000])
    assert not reply.has_error()
    kept, notes = _files.read_tensors(tmp_path / "north" / "clients" / "north" / "round-0002.safetensors")
    assert sorted(kept) == ["0", "1"] and np.array_equal(kept["0"], np.ones((3, 12))) and notes == {"secsv.weight": "17.0"}
    assert (tmp_path / "north" / "global" / "round-0001.safetensors").exists()


def samples():
    return {name: task.load(place, "test") for place, name in enumerate(NAMES)}


def lively(tmp_path, strategy, rounds=4, app=client_app.app, **options):
    """Trains with values of each round; hands on the strategy and what training made."""
    options = {"tests": samples(), "protocol": "nssv", "wait": 60.0, **options}
    recorded = live(strategy, tmp_path / "live", task.MODEL, **options)
    made = recorded.start(grid=LocalGrid(app, configs(tmp_path)), initial_arrays=initial(), num_rounds=rounds)
    return recorded, made


@pytest.mark.parametrize("make", [fed_avg, lambda: strategies.FedAdam(min_available_nodes=5)])
def test_rounds_are_valued_as_they_end_and_add_up(tmp_path, make):
    """To the last bit: each round is the game that it is in the whole run, and sums are in the order of rounds."""
    told = []
    recorded, made = lively(tmp_path, make(), on_round=lambda number, result: told.append((number, dict(result.values))))
    assert [number for number, _ in told] == [1, 2, 3, 4] and dict(told) == recorded.history
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "live", whole, ignore=shutil.ignore_patterns("rounds", "values", "tests"))
    text = (whole / "federation.toml").read_text()
    (whole / "federation.toml").write_text(text if "aggregation" in text else text.replace("rounds = 4", 'rounds = 4\naggregation = "other"'))
    run = secsv.Run(whole)
    for name, (x, y) in samples().items():
        run.test(name, x, y)
    result = secsv.evaluate(run, protocol="nssv")
    assert result.rounds == recorded.history and result.values == recorded.live.totals()
    assert min(result.values, key=result.values.get) == "centre"
    for number in range(1, 5):
        kept = secsv.Result.load(tmp_path / "live" / "values" / f"round-{number:04d}.json")
        assert kept.values == recorded.history[number]
        metrics = made.train_metrics_clientapp[number]
        assert {key: value for key, value in metrics.items() if key.startswith("contribution/")} == {f"contribution/{name}": value for name, value in kept.values.items()}


def test_training_waits_no_longer_than_told(tmp_path):
    """Values that take long, or that nobody gets, keep no round waiting."""
    over, in_time = threading.Event(), []
    recorded = live(
        fed_avg(),
        tmp_path / "live",
        task.MODEL,
        tests=samples(),
        protocol="nssv",
        wait=0.05,
        # Until the training is over; were it to wait for values, it would not be in time.
        on_round=lambda *_: in_time.append(over.wait(20)),
    )
    original, rounds = recorded.aggregate_train, []

    def aggregate_train(number, replies):
        made = original(number, replies)
        rounds.append(number)
        if number == 3:
            over.set()
        return made

    recorded.aggregate_train = aggregate_train
    recorded.start(grid=LocalGrid(client_app.app, configs(tmp_path)), initial_arrays=initial(), num_rounds=3)
    assert rounds == [1, 2, 3] and in_time == [True, True, True]
    assert sorted(recorded.history) == [1, 2, 3], "late values are there in the end"


def test_a_round_that_cannot_be_valued_ends_no_training(tmp_path, caplog):
    wrong = {**samples(), "north": (np.zeros((3, task.FEATURES), "f4"), np.array([0, 1, 99]))}
    recorded, made = lively(tmp_path, fed_avg(), rounds=2, tests=wrong)
    assert recorded.history == {} and "round 1 is not valued" in caplog.text and len(made.train_metrics_clientapp) == 2


def test_silos_are_left_out_by_a_rule_and_by_nothing_else(tmp_path):
    def negative(history):
        totals = {}
        for values in history.values():
            for silo, value in values.items():
                totals[silo] = totals.get(silo, 0.0) + value
        return [silo for silo, total in totals.items() if len(history) >= 2 and total < 0]

    recorded, _ = lively(tmp_path / "rule", fed_avg(), exclude=negative)
    assert [sorted(recorded.weights["centre"])] == [[1, 2]] and sorted(recorded.weights["west"]) == [1, 2, 3, 4]
    assert recorded.history[4]["centre"] == 0.0
    everybody, _ = lively(tmp_path / "all", fed_avg(), exclude=lambda history: NAMES)
    assert all(sorted(of) == [1, 2, 3, 4] for of in everybody.weights.values()), "fewer than two would stay"


def test_a_silo_may_come_late_and_leave(tmp_path):
    def sometimes(message, context, call_next):
        number = message.content["config"]["server-round"]
        if (context.node_config["silo"], number) in [("east", 1), ("south", 3)]:
            return Message(flwr.app.Error(code=1000, reason="away"), reply_to=message)
        return call_next(message, context)

    app = app_of([sometimes, SiloRecorder()])
    recorded, _ = lively(tmp_path, fed_avg(), rounds=3, app=app)
    assert recorded.history[1]["east"] == 0.0 and recorded.history[3]["south"] == 0.0
    assert recorded.history[2]["east"] != 0.0


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def listens(port):
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens on port {port}")


def secsv_command(*arguments):
    done = subprocess.run([sys.executable, "-m", "secsv", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def value_over_tls(parent, server):
    """Five silos and two servers, a process each, value what is in the silos' own directories in `parent`. `server` has the
    federation's description. Returns the principal's result."""
    requests, kits, ports = parent / "requests", parent / "kits", [free_port(), free_port()]
    requests.mkdir()
    for party in ["principal", "auxiliary", *NAMES]:
        code, _, said = secsv_command("keygen", "--id", party, "--out", parent / "kit" / party)
        assert code == 0, said
        shutil.copy(parent / "kit" / party / f"{party}.request.toml", requests)
    servers = ["--principal", f"localhost:{ports[0]}", "--auxiliary", f"localhost:{ports[1]}", "--servers-did-not-aggregate"]
    code, _, said = secsv_command("provision", server / "federation.toml", "--requests", requests, *servers, "--out", kits)
    assert code == 0, said
    for party in (entry for entry in kits.iterdir() if entry.is_dir()):
        shutil.copytree(party, parent / "kit" / party.name, dirs_exist_ok=True)
    started = []
    with contextlib.ExitStack() as stack:

        def start(role, name, *arguments):
            command = [sys.executable, "-m", "secsv", "--quiet", role, str(parent / "kit" / name), "--state", str(parent / "state" / name)]
            log = stack.enter_context(open(parent / f"{name}.log", "w"))
            child = subprocess.Popen([*command, *map(str, arguments)], stdout=log, stderr=log)
            stack.callback(child.kill)
            started.append((name, child))

        start("principal", "principal", "--json", parent / "result.json")
        listens(ports[0])
        start("auxiliary", "auxiliary")
        listens(ports[1])
        for name in NAMES:
            shutil.copy(server / "federation.toml", parent / name)
            _, said, also = secsv_command("preflight", parent / "kit" / name)
            word = (said + also).rsplit("--accept-exposure ", 1)[1].split()[0]
            start("client", name, "--data", parent / name, "--accept-exposure", word)
        for name, child in started:
            assert child.wait(timeout=120) == 0, (parent / f"{name}.log").read_text()[-2000:]
    return secsv.Result.load(parent / "result.json")


def test_silos_value_each_other_over_tls_from_their_own_recordings(tmp_path):
    """Five silos and two servers, a process each: what Flower's mod recorded at a silo never leaves it in the clear. One silo misses the
    first round; it takes the initial model from the server."""
    app = client_app.app

    def late(message, context, call_next):
        if context.node_config["silo"] == "west" and message.content["config"]["server-round"] == 1:
            return Message(flwr.app.Error(code=1000, reason="away"), reply_to=message)
        return call_next(message, context)

    app = app_of([late, SiloRecorder(lambda context: task.load(int(context.node_config["hospital"]), "test"))])
    federate(tmp_path, fed_avg(), rounds=2, app=app, global_models=True)
    assert not (tmp_path / "west" / "initial.safetensors").exists()
    shutil.copy(tmp_path / "server" / "initial.safetensors", tmp_path / "west")
    result = value_over_tls(tmp_path, tmp_path / "server")
    run = join([tmp_path / name for name in NAMES], tmp_path / "run", federation=tmp_path / "server")
    assert run.weight("west", 1) == 0.0 and run.weight("west", 2) > 0
    counts, _ = values_by_hand(run)
    assert {(one.round, one.coalition): one.correct for one in result.utilities} == counts
    assert result.values == secsv.evaluate(run, protocol="blindsv").values


def test_processes_that_follow_get_files_and_values_come_back(tmp_path):
    """As rounds end, the server and every silo have the same file; what processes write is read back, and a rule leaves a silo out."""
    values, valued = tmp_path / "values", []
    values.mkdir()
    example = secsv.evaluate(join_of_one_round(tmp_path / "once"), protocol="nssv")

    class Grid(LocalGrid):
        """When the silos have a round's file, values appear, as processes would write them."""

        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            replies = super().send_and_receive(messages, timeout=timeout)
            for number in range(1, 4):
                files = [tmp_path / name / "rounds" / f"{number:04d}.toml" for name in NAMES]
                target = values / f"round-{number:04d}.json"
                if all(file.exists() for file in files) and not target.exists():
                    valued.append((number, {file.read_bytes() for file in files}))
                    example.save(target)
            return replies

    app = ClientApp(mods=[SiloRecorder(), forbidding("secsv-round")])
    app.train()(client_app.train)
    app.evaluate()(client_app.evaluate)
    worst = min(example.values, key=example.values.get)
    heard = []
    strategy = live(
        strategies.FedAvg(min_available_nodes=5, min_train_nodes=4),
        tmp_path / "server",
        task.MODEL,
        values=values,
        wait=5.0,
        on_round=lambda number, result: heard.append(number),
        exclude=lambda history: [worst] if len(history) >= 2 else [],
    )
    grid = Grid(app, configs(tmp_path))
    result = strategy.start(grid=grid, initial_arrays=initial(), num_rounds=3)
    assert [number for number, _ in valued] == [1, 2, 3] and heard == [1, 2, 3]
    for number, files in valued:
        assert files == {(tmp_path / "server" / "rounds" / f"{number:04d}.toml").read_bytes()}, "one text everywhere"
    text = (tmp_path / "server" / "rounds" / "0003.toml").read_text()
    assert "last = true" in text and f'id = "{worst}"' not in text
    assert not (tmp_path / "server" / "federation.toml").exists(), "what was agreed on stays as it is"
    assert not (tmp_path / "server" / "clients").exists(), "no local model at the server"
    assert sorted(strategy.history) == [1, 2, 3]
    assert result.train_metrics_clientapp[2][f"contribution/{worst}"] == example[worst]


def forbidding(name):
    """A mod that fails if the app is shown a record."""

    def mod(message, context, call_next):
        assert name not in message.content
        return call_next(message, context)

    return mod


def join_of_one_round(parent):
    federate(parent, fed_avg(), rounds=1, global_models=True)
    return join([parent / name for name in NAMES], parent / "run", federation=parent / "server")


def test_live_takes_tests_or_values(tmp_path):
    for options, expected in (({}, "neither"), ({"tests": {}, "values": tmp_path}, "both"), ({"values": tmp_path, "protocol": "nssv"}, "protocol")):
        with pytest.raises(secsv.InputError, match=expected):
            live(fed_avg(), tmp_path / "server", task.MODEL, **options)


LIMITS = "[limits]\nrounds = 9\nnorm = 32\ninput = 16\n"


def test_values_come_over_tls_while_training_goes_on(tmp_path):
    """Five silos and two servers follow a training, a process each. The principal and a silo are killed meanwhile: training goes on, and every
    round's values are those of a run of all rounds."""
    weights = {name: {1: 60.0 + 40 * place} for place, name in enumerate(NAMES)}
    spec = _run.federation_toml("five hospitals", 1, "mean", secsv.Model.of(task.MODEL), weights).replace("rounds = 1\n", LIMITS, 1)
    for site in ("server", *NAMES):
        _files.write_atomically(tmp_path / site / "federation.toml", spec.encode())
        _files.write_tensors(tmp_path / site / "initial.safetensors", task.initial())
    kits, ports = tmp_path / "kits", [free_port(), free_port()]
    servers = ["--principal", f"localhost:{ports[0]}", "--auxiliary", f"localhost:{ports[1]}", "--servers-did-not-aggregate"]
    code, _, said = secsv_command("provision", tmp_path / "server" / "federation.toml", "--generate-keys", *servers, "--out", kits)
    assert code == 0, said
    values, running = tmp_path / "values", {}
    with contextlib.ExitStack() as stack:

        def start(role, name, *arguments):
            command = [sys.executable, "-m", "secsv", "--quiet", "--format", "json", role, str(kits / name), "--state", str(tmp_path / "state" / name)]
            log = stack.enter_context(open(tmp_path / f"{name}.log", "a"))
            child = subprocess.Popen([*command, "--follow", *map(str, arguments)], stdout=log, stderr=log)
            stack.callback(child.kill)
            running[name] = (child, (role, name, *arguments))

        rounds = ["--rounds", tmp_path / "server" / "rounds"]
        start("principal", "principal", "--values", values, *rounds)
        start("auxiliary", "auxiliary", *rounds)
        for name in NAMES:
            _, said, also = secsv_command("client", kits / name, "--data", tmp_path / name, "--state", tmp_path / "asked" / name, "--follow")
            word = (said + also).rsplit("--accept-exposure ", 1)[1].split()[0]
            start("client", name, "--data", tmp_path / name, "--accept-exposure", word)

        class Grid(LocalGrid):
            def send_and_receive(self, messages, *, timeout=None):
                messages = list(messages)
                replies = super().send_and_receive(messages, timeout=timeout)
                if messages[0].metadata.message_type.startswith("evaluate") and len(self.sent) == 10:
                    for name in ("principal", "east"):
                        child, arguments = running[name]
                        child.kill()
                        child.wait()
                        start(*arguments)
                return replies

        strategy = live(fed_avg(), tmp_path / "server", task.MODEL, values=values, wait=90.0)
        strategy.start(grid=Grid(client_app.app, configs(tmp_path)), initial_arrays=initial(), num_rounds=3)
        for name, (child, _) in running.items():
            assert child.wait(timeout=120) == 0, (tmp_path / f"{name}.log").read_text()[-2000:]
    assert sorted(strategy.history) == [1, 2, 3]
    run = secsv.Run.create(tmp_path / "run", name="five hospitals", model=task.MODEL, silos=NAMES)
    run.start_of(1, task.initial())
    for place, name in enumerate(NAMES):
        run.test(name, *task.load(place, "test"))
        for number, weight in strategy.weights[name].items():
            arrays, _ = _files.read_tensors(tmp_path / name / "clients" / name / f"round-{number:04d}.safetensors")
            run.record(number, name, arrays, weight)
    with run:
        pass
    # The same run with the same limits, evaluated when all is over.
    text = (run.path / "federation.toml").read_text()
    (run.path / "federation.toml").write_text(text.replace("rounds = 3\n", f"rounds = 3\n{LIMITS}", 1))
    whole = secsv.evaluate(run.path, protocol="blindsv")
    assert whole.rounds == strategy.history, "to the last bit"
    totals = json.loads((values / "totals.json").read_text())
    assert totals == {"rounds": 3, "totals": dict(whole.values)}
    for number in strategy.history:
        result = secsv.Result.load(values / f"round-{number:04d}.json")
        of_round = lambda utilities: {one.coalition: one.correct for one in utilities if one.round == number}
        assert of_round(result.utilities) == of_round(whole.utilities)
    # Formats follow from limits, so a few samples may be on the other side of a tie than in double precision.
    counts, _ = values_by_hand(run)
    found = {(one.round, one.coalition): one.correct for one in whole.utilities}
    assert found.keys() == counts.keys() and max(abs(found[key] - counts[key]) for key in counts) <= 2
    events = (tmp_path / "principal.log").read_text()
    assert all(f'{{"event":"round","round":{number},' in events for number in (1, 2, 3))
