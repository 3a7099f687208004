"""Values of each round while training goes on, where all models and test samples are in one place."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import wrong
from ._evaluate import evaluate
from ._files import model_arrays, round_file, write_atomically, write_tensors
from ._model import Model
from ._result import Result
from ._run import check_id, federation_toml, write_test

log = logging.getLogger("secsv")

#: Values by round and silo.
History = Mapping[int, Mapping[str, float]]


class LiveValues:
    """Rounds as run directories of their own, each valued on a thread as soon as it has ended. A round begins with the model that it
    really began with, so any way of making global models will do."""

    def __init__(
        self,
        directory: Path,
        model: Model,
        tests: Mapping[str, tuple[Any, Any]],
        *,
        name: str,
        options: Mapping[str, Any],
        on_round: Callable[[int, Result], object] | None = None,
    ) -> None:
        if not tests:
            raise wrong("tests", "test samples of each silo: x and y by its id", "none")
        self.directory, self.model, self.name = directory, model, name
        self.options, self.on_round = {"progress": False, **options}, on_round
        self.silos = [check_id(silo) for silo in tests]
        for silo, (x, y) in tests.items():
            write_test(self.tests_of(silo), x, y)
        self._history: dict[int, dict[str, float]] = {}
        self._guard = threading.Lock()
        # One round after the other; nothing is started before there is one.
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="secsv-live")
        self._open: dict[int, Future[None]] = {}

    def tests_of(self, silo: str) -> Path:
        """Where a silo's test samples are kept for all rounds."""
        return self.directory / "tests" / f"{silo}.safetensors"

    @property
    def history(self) -> dict[int, dict[str, float]]:
        """The values that are there by now, by round."""
        with self._guard:
            return {number: dict(values) for number, values in sorted(self._history.items())}

    def totals(self) -> dict[str, float]:
        """What each silo has gained by now, in the order of rounds."""
        totals = dict.fromkeys(self.silos, 0.0)
        for values in self.history.values():
            for silo, value in values.items():
                totals[silo] = totals.get(silo, 0.0) + value
        return totals

    def begin(self, number: int, start: Mapping[str, Any], models: Mapping[str, tuple[Any, float]]) -> None:
        """Takes a round that has ended: the model that it began with, and silos' models with their weights. A round that is there already
        is not taken again."""
        if number in self._open:
            return
        place = self.directory / "rounds" / f"{number:04d}"
        shutil.rmtree(place, ignore_errors=True)
        write_tensors(place / "initial.safetensors", model_arrays(start, f"start of round {number}"))
        for silo, (arrays, _) in models.items():
            write_tensors(place / "clients" / silo / round_file(1), model_arrays(arrays, f"{silo} in round {number}"))
        # The order of the whole run: sums of the same numbers in another order may differ in the last bit.
        known = sorted({*self.silos, *models})
        for silo in known:
            own = place / "clients" / silo / "test.safetensors"
            own.parent.mkdir(parents=True, exist_ok=True)
            if silo in self.silos:
                linked_or_copied(self.tests_of(silo), own)
            else:
                # It trained, and brought no samples.
                write_test(own, np.zeros((0, *self.model.input), np.float32), np.zeros(0, np.int64))
        weights = {silo: ({1: models[silo][1]} if silo in models else {}) for silo in known}
        name = f"{self.name}, round {number}"
        write_atomically(place / "federation.toml", federation_toml(name, 1, "mean", self.model, weights).encode())
        self._open[number] = self._threads.submit(self._value, number, place)

    def _value(self, number: int, place: Path) -> None:
        try:
            result = evaluate(place, **self.options)
            with self._guard:
                self._history[number] = dict(result.values)
            result.save(self.directory / "values" / f"round-{number:04d}.json")
            total = {"rounds": len(self.history), "totals": self.totals()}
            write_atomically(self.directory / "values" / "totals.json", json.dumps(total).encode())
            if self.on_round is not None:
                self.on_round(number, result)
        except Exception:
            # Training goes on, whatever happens here.
            log.exception("round %d is not valued", number)

    def wait(self, number: int | None, seconds: float | None) -> None:
        """Waits for a round's values, or for all of them, no longer than told."""
        waited = list(self._open.values()) if number is None else [self._open[number]]
        for future in waited:
            try:
                future.result(timeout=seconds)
            except FutureTimeout:
                return

    def close(self) -> None:
        """Waits for what is open, and takes no more."""
        self._threads.shutdown(wait=True)


class FollowedValues:
    """Values that processes write as rounds end: ``secsv principal --follow --values DIR``, or the same at a silo."""

    def __init__(self, values: Path, on_round: Callable[[int, Result], object] | None = None) -> None:
        self.values, self.on_round = values, on_round
        self._history: dict[int, dict[str, float]] = {}

    @property
    def history(self) -> dict[int, dict[str, float]]:
        """The values that are there by now, by round."""
        for path in sorted(self.values.glob("round-[0-9][0-9][0-9][0-9].json")):
            number = int(path.stem[-4:])
            if number in self._history:
                continue
            try:
                result = Result.load(path)
                self._history[number] = dict(result.values)
                if self.on_round is not None:
                    self.on_round(number, result)
            except Exception:
                # Training goes on, whatever happens here.
                log.exception("the values of round %d cannot be used", number)
        return {number: dict(values) for number, values in sorted(self._history.items())}

    def wait(self, number: int, seconds: float) -> None:
        """Waits for a round's values, or for the word that there will be none, no longer than told."""
        until = time.monotonic() + seconds
        names = [f"round-{number:04d}.json", f"round-{number:04d}.missed.json"]
        while not any((self.values / name).exists() for name in names) and time.monotonic() < until:
            time.sleep(0.05)

    def begin(self, number: int, start: Mapping[str, Any], models: Mapping[str, tuple[Any, float]]) -> None:
        """Nothing: the processes see the files."""

    def close(self) -> None:
        """Reads what is there in the end."""
        _ = self.history


class Excluding:
    """Who is left out of a round, by a rule of the user's."""

    def __init__(self, rule: Callable[[History], Collection[str]] | None) -> None:
        self.rule = rule

    def of(self, history: History) -> set[str]:
        """The silos to leave out; nobody where there are no values yet, or no rule."""
        if self.rule is None or not history:
            return set()
        return {str(silo) for silo in self.rule(history)}


def linked_or_copied(source: Path, target: Path) -> None:
    """The same file under another name, or a copy where the system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
