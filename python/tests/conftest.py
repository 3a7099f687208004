"""A small federation, and values of it that NumPy alone computes."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import secsv

SILOS = ["north", "south", "east", "west"]
LINEAR = secsv.Model([5], 3, [{"kind": "linear", "weight": "w", "bias": "b"}])


def scores(model, x):
    """What a linear model says, in double precision."""
    return x.astype(float) @ model["w"].astype(float).T + model["b"].astype(float)


def mean_of(models, weights):
    """The weighted mean, in double precision."""
    total = sum(weights)
    return {name: sum(w * m[name].astype(float) for m, w in zip(models, weights)) / total for name in models[0]}


class Federation:
    """Random local models of four silos in two rounds; ``west`` misses the first."""

    def __init__(self, seed: int = 7) -> None:
        rng = np.random.default_rng(seed)
        draw = lambda: {"w": rng.normal(size=(3, 5)).astype("f4"), "b": rng.normal(size=3).astype("f4")}
        self.initial = draw()
        self.weights = {silo: 10.0 + 7 * place for place, silo in enumerate(SILOS)}
        self.local = {1: {silo: draw() for silo in SILOS[:3]}, 2: {silo: draw() for silo in SILOS}}
        self.test = {silo: (rng.normal(size=(9, 5)).astype("f4"), rng.integers(0, 3, 9)) for silo in SILOS}

    def write(self, path: Path) -> secsv.Run:
        with secsv.Run.create(path, name="four silos", model=LINEAR, silos=SILOS) as run:
            run.start_of(1, self.initial)
            for number, models in self.local.items():
                for silo, model in models.items():
                    run.record(number, silo, model, self.weights[silo])
            for silo, (x, y) in self.test.items():
                run.test(silo, x, y)
        return run

    def counts(self) -> dict[tuple[int, tuple[str, ...]], int]:
        """Right predictions of every coalition."""
        x = np.concatenate([self.test[silo][0] for silo in SILOS])
        y = np.concatenate([self.test[silo][1] for silo in SILOS])
        found, start = {}, self.initial
        for number, models in self.local.items():
            for size in range(len(models) + 1):
                for coalition in itertools.combinations(models, size):
                    model = start
                    if coalition:
                        model = mean_of([models[s] for s in coalition], [self.weights[s] for s in coalition])
                    key = (number, tuple(sorted(coalition)))
                    found[key] = int((scores(model, x).argmax(axis=1) == y).sum())
            start = mean_of(list(models.values()), [self.weights[s] for s in models])
        return found

    def values(self) -> dict[str, float]:
        """Shapley values, added up over rounds, by the definition."""
        counts, samples = self.counts(), sum(len(y) for _, y in self.test.values())
        return {silo: sum(self.value(counts, number, silo) for number in self.local) / samples for silo in SILOS}

    def value(self, counts, number, silo):
        players = [other for other in self.local[number] if other != silo]
        if silo not in self.local[number]:
            return 0.0
        total = 0.0
        for size in range(len(players) + 1):
            share = 1 / ((len(players) + 1) * math.comb(len(players), size))
            for others in itertools.combinations(players, size):
                gain = counts[number, tuple(sorted((*others, silo)))] - counts[number, tuple(sorted(others))]
                total += share * gain
        return total


@pytest.fixture(scope="session")
def federation() -> Federation:
    return Federation()


@pytest.fixture(scope="session")
def run(federation, tmp_path_factory) -> secsv.Run:
    return federation.write(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="session")
def result(run) -> secsv.Result:
    return secsv.evaluate(run, protocol="nssv")
