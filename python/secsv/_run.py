"""Run directories: what a federation leaves behind, written and read."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import _native
from ._errors import wrong
from ._files import (
    as_numpy,
    model_arrays,
    quoted,
    read_header,
    read_tensors,
    round_file,
    round_of,
    toml_value,
    write_atomically,
    write_tensors,
)
from ._model import Model

#: The note in a model's file that says how much it counted in the mean.
WEIGHT = "secsv.weight"
#: The directory of rounds' files.
ROUNDS = "rounds"
LETTERS = "1 to 64 characters of A-Z a-z 0-9 . _ -, not beginning with a dot"


class Run:
    """A run directory (docs/RUN_DIRECTORY.md). ``Run(path)`` opens one; ``Run.create`` begins one.

    >>> with Run.create("run", name="five hospitals", model=model) as run:
    ...     run.start_of(1, initial)
    ...     run.record(1, "north", weights, weight=243)
    ...     run.test("north", x, y)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        found = json.loads(_native.describe(self.path))
        #: The federation's name.
        self.name: str = found["name"]
        #: What was trained.
        self.model = Model(**found["model"])
        #: How global models were made: ``mean`` or ``other``.
        self.aggregation: str = found.get("aggregation", "mean")
        self._rounds: int = found.get("rounds", 0)
        self._weights: dict[str, dict[int, float]] = {}
        for client in found["clients"]:
            usual = weight_of(client)
            others = {other["round"]: weight_of(other) for other in client.get("rounds", [])}
            rounds = range(1, self._rounds + 1)
            self._weights[client["id"]] = {number: others.get(number, usual) for number in rounds}
        self._labels: dict[str, str] = {}
        self._changed = False

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        name: str,
        model: Model | Mapping[str, Any],
        aggregation: Literal["mean", "other"] = "mean",
        silos: Iterable[str] = (),
    ) -> Run:
        """Begins a run directory at an absent or empty place. ``aggregation`` is ``other`` where global models are no weighted means of
        local ones (FedAdam, a median). ``silos`` fixes their order; otherwise it is that of their first record."""
        run = cls.__new__(cls)
        run.path = Path(path)
        if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
            raise wrong("directory", "an absent or empty directory", "files in it", path)
        if aggregation not in ("mean", "other"):
            raise wrong("aggregation", "mean or other", aggregation)
        run.name, run.model, run.aggregation = name, Model.of(model), aggregation
        run._rounds, run._weights, run._labels, run._changed = 0, {}, {}, True
        for silo in silos:
            run._silo(silo)
        run.path.mkdir(parents=True, exist_ok=True)
        return run

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self._rounds

    @property
    def silos(self) -> list[str]:
        """Ids of all silos, in order."""
        return list(self._weights)

    def weight(self, silo: str, round: int) -> float:
        """How much a silo's model counted in a round's mean; 0 where it took no part."""
        if silo not in self._weights:
            raise wrong("silo", f"one of {', '.join(self._weights)}", silo)
        return self._weights[silo].get(round, 0.0)

    def start_of(self, round: int, arrays: Any) -> None:
        """Writes the global model that a round began with: a mapping from names to arrays, a list of arrays, or a module of PyTorch."""
        if round == 1:
            path = self.path / "initial.safetensors"
        else:
            path = self.path / "global" / round_file(round - 1)
        write_tensors(path, model_arrays(arrays, f"start of round {round}"))
        self._changed = True

    def end_of(self, round: int, arrays: Any) -> None:
        """Writes the global model that a round ended with."""
        write_tensors(self.path / "global" / round_file(round), model_arrays(arrays, f"end of round {round}"))
        self._changed = True

    def record(self, round: int, silo: str, arrays: Any, weight: float) -> None:
        """Writes the model that a silo handed in, and how much it counts in the mean (its number of training samples)."""
        weight = check_weight(weight, silo, round)
        path = self._silo(silo) / round_file(round)
        write_tensors(path, model_arrays(arrays, f"{silo} in round {round}"), {WEIGHT: repr(weight)})
        self._weights[silo][round] = weight
        self._rounds = max(self._rounds, round)
        self._changed = True

    def test(self, silo: str, x: Any, y: Any) -> None:
        """Writes a silo's test samples, as the model takes them (after normalisation), and their classes."""
        write_test(self._silo(silo) / "test.safetensors", x, y)
        self._changed = True

    def label(self, silo: str, name: str) -> None:
        """Says what people call a silo, in any letters."""
        self._silo(silo)
        self._labels[silo] = name
        self._changed = True

    def local_model(self, silo: str, round: int) -> dict[str, np.ndarray]:
        """The model that a silo handed in."""
        return self._read(self.path / "clients" / silo / round_file(round))

    def global_model(self, round: int) -> dict[str, np.ndarray]:
        """The global model that a round began with, as ``start_of`` wrote it."""
        if round == 1:
            return self._read(self.path / "initial.safetensors")
        return self._read(self.path / "global" / round_file(round - 1))

    def write(self) -> None:
        """Writes ``federation.toml``, if anything was recorded since. Leaving a ``with`` block does it, and checks."""
        if not self._changed:
            return
        text = federation_toml(self.name, self._rounds, self.aggregation, self.model, self._weights)
        write_atomically(self.path / "federation.toml", text.encode())
        if self._labels:
            lines = [f"{quoted(silo)} = {quoted(label)}\n" for silo, label in self._labels.items()]
            write_atomically(self.path / "labels.toml", "".join(lines).encode())
        self._changed = False

    def check(self) -> None:
        """Reads every file and checks it; raises ``InputError`` with the first defect."""
        self.write()
        _native.check(self.path)

    def evaluate(self, **options: Any):
        """The result of ``secsv.evaluate`` for this run."""
        from ._evaluate import evaluate

        return evaluate(self, **options)

    def _silo(self, silo: str) -> Path:
        check_id(silo)
        self._weights.setdefault(silo, {})
        return self.path / "clients" / silo

    def _read(self, path: Path) -> dict[str, np.ndarray]:
        if not path.exists():
            raise wrong("file", "this file", "none", path)
        return read_tensors(path)[0]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.check()

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.name!r}, {len(self._weights)} silos, {self._rounds} rounds)"


def weight_of(table: Mapping[str, Any]) -> float:
    """The weight that a table of ``federation.toml`` says."""
    return float(table["train_size"] if table.get("train_size") is not None else table["weight"])


def check_weight(weight: float, silo: str, round: int) -> float:
    """A weight above 0."""
    weight = float(weight)
    if not (math.isfinite(weight) and weight > 0.0):
        raise wrong(f"weight of {silo} in round {round}", "a number above 0 (a silo that took no part hands nothing in)", weight)
    return weight


def check_id(silo: str) -> str:
    """A silo's id: it names files and certificates."""
    if not isinstance(silo, str) or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", silo):
        raise wrong("silo", f"{LETTERS} (Run.label says what people call it)", repr(silo))
    return silo


def write_test(path: Path, x: Any, y: Any) -> None:
    """Writes test samples and their classes."""
    x, y = as_numpy(x), as_numpy(y)
    if x.ndim < 2 or len(x) != len(y):
        raise wrong("x", f"[{len(y)}, ...], a row for each label", list(x.shape), path)
    for name, array in (("x", x), ("y", y)):
        if array.dtype.kind not in "fiub":
            raise wrong(name, "an array of numbers", f"elements of type {array.dtype}", path)
    if y.dtype.kind == "b":
        y = y.astype(np.int64)
    if x.dtype.kind == "b":
        x = x.astype(np.float32)
    write_tensors(path, {"x": x, "y": y})


def federation_toml(
    name: str, rounds: int, aggregation: str, model: Model, weights: Mapping[str, Mapping[int, float]]
) -> str:
    """The text of ``federation.toml``. A silo without a weight in a round took no part in it, which is said: silos do not see each
    other's files."""
    lines = [f"name = {quoted(name)}", f"rounds = {rounds}"]
    if aggregation != "mean":
        lines.append(f"aggregation = {quoted(aggregation)}")
    lines.append(model.to_toml().rstrip())
    for silo, of in weights.items():
        known = list(of.values())
        # The weight of most rounds; of several the first.
        usual = max(known, key=known.count) if known else 0.0
        lines += ["[[clients]]", f"id = {quoted(silo)}", weight_line(usual)]
        for number in range(1, rounds + 1):
            weight = of.get(number, 0.0)
            if weight != usual:
                lines += ["[[clients.rounds]]", f"round = {number}", weight_line(weight)]
    return "\n".join(lines) + "\n"


def write_round(
    directory: str | os.PathLike[str],
    number: int,
    weights: Mapping[str, float],
    *,
    without: Iterable[str] = (),
    last: bool = False,
) -> Path:
    """Writes the file of a round that is valued while training goes on (``rounds/0003.toml`` in ``directory``), whole or not at all:
    who took part with what weight, whom the round does without, and whether it is the last one."""
    if not weights:
        raise wrong(f"round {number}", "at least one silo that took part", "none")
    lines = [f"round = {number}"] + (["last = true"] if last else [])
    gone = sorted(check_id(silo) for silo in without)
    if gone:
        lines.append(f"without = {toml_value(gone)}")
    for silo in sorted(weights):
        lines += ["[[clients]]", f"id = {quoted(check_id(silo))}", weight_line(check_weight(weights[silo], silo, number))]
    path = Path(directory) / ROUNDS / f"{number:04d}.toml"
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    return path


def weight_line(weight: float) -> str:
    """A weight as ``federation.toml`` has it: whole numbers are training sizes."""
    return f"train_size = {int(weight)}" if weight == int(weight) else f"weight = {toml_value(weight)}"


def recorded_weights(directory: Path) -> dict[int, float | None]:
    """The weights that a silo's model files say, by round; None where a file says none."""
    found: dict[int, float | None] = {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        number = round_of(path.name)
        if number is not None:
            said = read_header(path)[1].get(WEIGHT)
            try:
                found[number] = None if said is None else float(said)
            except (TypeError, ValueError) as error:
                raise wrong(WEIGHT, "a number", said, path) from error
    return found
