"""Recorders for Flower.

``SiloRecorder`` is a mod of the ClientApp: at a silo it keeps what this silo sent and received, where the silo's own node config says.
``record`` wraps the strategy of the ServerApp: it writes who took part with what weight, and models only if it is told to.
docs/FLOWER.md has the walk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from ._errors import SecsvError, wrong
from ._files import model_arrays, write_atomically, write_tensors
from ._live import Excluding, FollowedValues, History, LiveValues
from ._model import Model
from ._result import Result
from ._run import WEIGHT, check_id, check_weight, federation_toml, round_file, write_round
from ._silo import SiloDirectory

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import Strategy
except ImportError as error:
    raise SecsvError(f"expected Flower 1.22 or newer to be installed, found none: pip install secsv[flower] ({error})") from error

__all__ = ["DIRECTORY", "SILO", "SIMULATION", "SiloRecorder", "live", "record"]

#: The key of a SuperNode's node config that says where recordings go; without it nothing is recorded.
DIRECTORY = "secsv-dir"
#: The key that says the silo's id.
SILO = "silo"
#: The variable that says where the silos of a simulation record, each in a directory of its own: they have no node config.
SIMULATION = "SECSV_SIMULATION"
#: The record by which a silo tells the server its id.
RECORD = "secsv"
#: The record by which the server tells silos who took part in a round that has ended.
ROUND = "secsv-round"
#: Keys of the records of arrays that the older client interface has.
LEGACY = {"train": ("fitins.parameters", "fitres.parameters"), "evaluate": ("evaluateins.parameters", None)}

TestSamples = Callable[["Context"], tuple[Any, Any]]


class SiloRecorder:
    """A mod for a ClientApp: ``ClientApp(mods=[SiloRecorder(test)])``.

    ``test`` is a function of the context that gives the silo's test samples, as the model takes them, and their classes. Directory and
    id are taken from the node config of the SuperNode (``--node-config 'secsv-dir="/srv/secsv" silo="north"'``), never from the run
    config: whoever submits a run does not say where a silo writes. A silo without ``secsv-dir`` records nothing, but in simulations,
    whose partitions record in ``silo-0``, ``silo-1``, ... of the directory that the environment variable ``SECSV_SIMULATION`` names.

    The first mod is the outermost. With differential privacy the recorder comes before the mod that adds noise: what is uploaded counts. With
    secure aggregation it comes after the mod that masks: masked models are no models.
    """

    def __init__(self, test: TestSamples | None = None, *, arrays: str | None = None, weight: str = "num-examples") -> None:
        #: The function of test samples.
        self.test = test
        #: The key of the record of arrays; None where a message has one alone.
        self.arrays = arrays
        #: The metric by which the strategy weighs models.
        self.weight = weight

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        kind = message.metadata.message_type.split(".")[0]
        silo = silo_of(context)
        if silo is None or kind not in ("train", "evaluate"):
            return call_next(message, context)
        number = round_number(message)
        said = taken(message.content)
        if said is not None:
            silo.round(*said)
        # Before the app is called, which may compute in the same memory.
        begun = number if kind == "train" else number + 1
        silo.received(begun, arrays_of(message.content, self.arrays, LEGACY[kind][0]))
        reply = call_next(message, context)
        if kind == "train" and not reply.has_error():
            sent = arrays_of(reply.content, self.arrays, LEGACY[kind][1])
            silo.sent(number, sent, weight_in(reply.content, self.weight))
            if self.test is not None and not silo.has_test:
                silo.test(*self.test(context))
            reply.content[RECORD] = ConfigRecord({SILO: silo.silo})
        return reply


def taken(content: Any) -> tuple[int, dict[str, float], bool] | None:
    """The round that the server says has ended: the app is not shown it."""
    said = content.config_records.get(ROUND)
    if said is None:
        return None
    del content[ROUND]
    weights = dict(zip(map(str, said["silos"]), map(float, said["weights"]), strict=True))
    return int(said["round"]), weights, bool(said["last"])


def silo_of(context: Context) -> SiloDirectory | None:
    """Where this silo records; None where it does not."""
    directory = context.node_config.get(DIRECTORY)
    if directory is None:
        simulated, partition = os.environ.get(SIMULATION), context.node_config.get("partition-id")
        if not simulated or partition is None:
            return None
        silo = f"silo-{partition}"
        return SiloDirectory(Path(simulated) / silo, silo)
    silo = context.node_config.get(SILO)
    if silo is None:
        raise wrong(f"node config, {SILO}", f"the silo's id beside {DIRECTORY}", "none")
    return SiloDirectory(str(directory), str(silo))


def round_number(message: Message) -> int:
    """The round that a message is of: Flower counts from 1."""
    for record in message.content.config_records.values():
        if "server-round" in record:
            return int(record["server-round"])  # type: ignore[arg-type]
    if message.metadata.group_id.isdigit():
        return int(message.metadata.group_id)
    raise wrong("message", "a config record with server-round, as strategies of Flower send it", "none")


def arrays_of(content: Any, key: str | None, legacy: str | None) -> dict[str, Any]:
    """The model in a message."""
    records = content.array_records
    if key is None and legacy in records:
        key = legacy
    if key is not None:
        if key not in records:
            raise wrong("message", f"the record of arrays {key!r}", ", ".join(records) or "none")
        return model_arrays(dict(records[key].items()), f"message, {key}")
    if len(records) != 1:
        raise wrong("message", "one record of arrays (SiloRecorder(arrays=...) says which)", ", ".join(records) or "none")
    [(name, record)] = records.items()
    return model_arrays(dict(record.items()), f"message, {name}")


def weight_in(content: Any, key: str) -> float | None:
    """How much a reply counts in the mean; None where no metric says it."""
    for record in content.metric_records.values():
        if key in record:
            return float(record[key])
    legacy = content.config_records.get("fitres.num_examples") or {}
    legacy = content.metric_records.get("fitres.num_examples") or legacy
    return float(legacy["num_examples"]) if "num_examples" in legacy else None


def record(
    strategy: Strategy,
    directory: str | Path,
    model: Model | Mapping[str, Any],
    *,
    name: str = "Flower",
    models: bool = False,
    global_models: bool | None = None,
    weight: str | None = None,
    aggregation: Literal["mean", "other"] | None = None,
    rounds: bool = False,
) -> Strategy:
    """The strategy, writing ``federation.toml`` in ``directory`` as rounds end: names, weights and absences. It trains as it did.

    ``rounds=True`` is for processes that follow the training (docs/LIVE.md): as a round ends, ``rounds/0003.toml`` is written instead, and
    the next message to each silo says the same, for the mod to write there. ``federation.toml`` stays as it was agreed on.

    ``models=True`` keeps local models as well, for simulations; then nothing is left to protect. ``global_models`` keeps what all silos may
    know, for silos that missed the first round or an evaluation; by default where ``models`` is. ``weight`` is the metric that weighs
    models, by default the strategy's own. ``aggregation`` says whether global models are weighted means of local ones (``mean``) or
    not; by default they are under FedAvg and FedProx themselves, and under no other class.
    """
    recording = Recording(strategy, Path(directory), Model.of(model), name, models, weight)
    if global_models is not None:
        recording.global_models = global_models
    if aggregation is not None:
        recording.aggregation = aggregation
    recording.follows = rounds
    return recording


#: Strategies whose global model is the weighted mean of the local ones.
MEANS = {"FedAvg", "FedProx"}


class Recording(Strategy):
    """A strategy within another, by ``record``."""

    def __init__(self, inner: Strategy, directory: Path, model: Model, name: str, models: bool, weight: str | None) -> None:
        self.inner, self.directory, self.model, self.name = inner, directory, model, name
        self.models = self.global_models = models
        self.weight: str = str(weight or getattr(inner, "weighted_by_key", "num-examples"))
        self.weights: dict[str, dict[int, float]] = {}
        self.rounds = 0
        #: Whether processes follow the training.
        self.follows = False
        self.last: int | None = None
        #: Other strategies make their global models otherwise: it is said, and values begin at the model that a round began with.
        self.aggregation: str = "mean" if type(inner).__name__ in MEANS else "other"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def summary(self) -> None:
        self.inner.summary()

    def start(self, *arguments: Any, **named: Any) -> Any:
        """Trains as before; how many rounds there are is known from here."""
        self.last = named.get("num_rounds", arguments[2] if len(arguments) > 2 else 3)
        return super().start(*arguments, **named)

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Iterable[Message]:
        if self.global_models:
            file = "initial.safetensors" if server_round == 1 else f"global/{round_file(server_round - 1)}"
            write_tensors(self.directory / file, model_arrays(dict(arrays.items()), "global model"))
        return self.telling(server_round - 1, self.inner.configure_train(server_round, arrays, config, grid))

    def telling(self, number: int, messages: Iterable[Message]) -> list[Message]:
        """Messages with who took part in a round that has ended, where processes follow."""
        messages = list(messages)
        weights = {silo: of[number] for silo, of in self.weights.items() if number in of}
        if self.follows and weights:
            silos = sorted(weights)
            for message in messages:
                said = {"round": number, "silos": silos, "weights": [weights[silo] for silo in silos], "last": number == self.last}
                # Strategies may give all messages one content, and each silo takes the record out of its own.
                message.content = RecordDict({**message.content, ROUND: ConfigRecord(said)})
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        # The strategy reads them again.
        replies = list(replies)
        for reply in replies:
            if not reply.has_error():
                self.take(server_round, reply)
        self.rounds = max(self.rounds, server_round)
        result = self.inner.aggregate_train(server_round, replies)
        if self.global_models and result[0] is not None:
            arrays = model_arrays(dict(result[0].items()), "global model")
            write_tensors(self.directory / "global" / round_file(server_round), arrays)
        self.write()
        return result

    def take(self, number: int, reply: Message) -> None:
        """Notes one silo's reply."""
        said = reply.content.config_records.get(RECORD)
        silo = str(said[SILO]) if said is not None and SILO in said else f"node-{reply.metadata.src_node_id}"
        check_id(silo)
        weight = weight_in(reply.content, self.weight)
        if weight is None:
            raise wrong(f"reply of {silo}", f"the metric {self.weight!r}, which weighs models", "none")
        weight = check_weight(weight, silo, number)
        of_silo = self.weights.setdefault(silo, {})
        if number in of_silo:
            raise wrong(f"replies of round {number}", "one from each silo", f"two that say they are {silo!r}")
        of_silo[number] = weight
        if self.models:
            arrays = arrays_of(reply.content, None, LEGACY["train"][1])
            path = self.directory / "clients" / silo / round_file(number)
            write_tensors(path, arrays, {WEIGHT: repr(weight)})

    def write(self) -> None:
        """Writes ``federation.toml``, or the round's file where processes follow."""
        number = self.rounds
        if self.follows:
            weights = {silo: of[number] for silo, of in self.weights.items() if number in of}
            if weights:
                write_round(self.directory, number, weights, last=number == self.last)
            return
        weights = {silo: self.weights[silo] for silo in sorted(self.weights)}
        text = federation_toml(self.name, self.rounds, self.aggregation, self.model, weights)
        write_atomically(self.directory / "federation.toml", text.encode())

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Iterable[Message]:
        return self.telling(server_round, self.inner.configure_evaluate(server_round, arrays, config, grid))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        return self.inner.aggregate_evaluate(server_round, list(replies))


def live(
    strategy: Strategy,
    directory: str | Path,
    model: Model | Mapping[str, Any],
    *,
    tests: Mapping[str, tuple[Any, Any]] | None = None,
    values: str | Path | None = None,
    wait: float = 0.0,
    on_round: Callable[[int, Result], object] | None = None,
    exclude: Callable[[History], Collection[str]] | None = None,
    name: str = "Flower",
    weight: str | None = None,
    **options: Any,
) -> Strategy:
    """The strategy, with every round valued as soon as it has ended.

    With ``values`` by processes: where ``secsv principal --follow --values`` (or a silo) writes, values are read back; nobody shows models
    or samples. It records as ``record(..., rounds=True)`` does (docs/LIVE.md).

    With ``tests`` here: for simulations, where all models and ``tests`` (``x`` and ``y`` of each silo, by id) are in one place. It records as
    ``record(..., models=True)`` does, and writes ``values/round-0003.json``.

    Values are computed on a thread of their own. The training waits for those of a round no longer than ``wait`` seconds; what is there is
    among the metrics of the round as ``contribution/<silo>``, and what comes late counts for a later round. ``on_round(round, result)`` is
    called on that thread. ``exclude(history)`` names silos to leave out of the next round, from values by round and silo; nobody is left out
    by default, and nobody where fewer than two would stay. ``options`` are those of ``secsv.evaluate``.
    """
    if (tests is None) == (values is None):
        raise wrong("live", "tests for a simulation, or values that processes write", "both" if tests is not None else "neither")
    if values is not None and options:
        raise wrong(next(iter(options)), "options of evaluate beside tests alone: processes have theirs in the kit", "it beside values")
    recording = Live(strategy, Path(directory), Model.of(model), name, tests is not None, weight)
    recording.follows = values is not None
    recording.begin_live(tests, values, wait, on_round, exclude, options)
    return recording


class Live(Recording):
    """A strategy within another, by ``live``."""

    def begin_live(
        self,
        tests: Mapping[str, tuple[Any, Any]] | None,
        values: str | Path | None,
        wait: float,
        on_round: Callable[[int, Result], object] | None,
        exclude: Callable[[History], Collection[str]] | None,
        options: Mapping[str, Any],
    ) -> None:
        """What `live` says beside what `record` says."""
        self.live: LiveValues | FollowedValues
        if values is not None:
            self.live = FollowedValues(Path(values), on_round)
        else:
            self.live = LiveValues(self.directory, self.model, tests or {}, name=self.name, options=options, on_round=on_round)
        self.wait, self.excluding = wait, Excluding(exclude)
        self.start_arrays: dict[str, Any] = {}
        #: Who answers from which node, as far as it is known.
        self.silos: dict[int, str] = {}
        self.taken: dict[str, tuple[Any, float]] = {}

    @property
    def history(self) -> dict[int, dict[str, float]]:
        """The values that are there by now, by round."""
        return self.live.history

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Iterable[Message]:
        self.start_arrays = model_arrays(dict(arrays.items()), "global model")
        self.taken = {}
        if self.follows and server_round > 1:
            # Silos have heard of the round before with its evaluation: not earlier.
            self.live.wait(server_round - 1, self.wait)
        messages = list(super().configure_train(server_round, arrays, config, grid))
        out = self.excluding.of(self.history)
        kept = [message for message in messages if self.silos.get(message.metadata.dst_node_id) not in out]
        return kept if len(kept) >= min(2, len(messages)) else messages

    def take(self, number: int, reply: Message) -> None:
        super().take(number, reply)
        said = reply.content.config_records.get(RECORD)
        silo = str(said[SILO]) if said is not None and SILO in said else f"node-{reply.metadata.src_node_id}"
        self.silos[reply.metadata.src_node_id] = silo
        self.taken[silo] = (arrays_of(reply.content, None, LEGACY["train"][1]), self.weights[silo][number])

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if self.taken and not self.follows:
            self.live.begin(server_round, self.start_arrays, self.taken)
            self.live.wait(server_round, self.wait)
        history = self.history
        if history:
            metrics = MetricRecord() if metrics is None else metrics
            for silo, value in history[max(history)].items():
                metrics[f"contribution/{silo}"] = value
        return arrays, metrics

    def start(self, *arguments: Any, **named: Any) -> Any:
        """Trains, and waits for the last values."""
        try:
            return super().start(*arguments, **named)
        finally:
            if self.follows and self.wait:
                self.live.wait(self.rounds, self.wait)
            self.live.close()
