"""What a silo keeps while training goes on: its own part of a run directory, written by several processes one after the other."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import wrong
from ._files import model_arrays, read_tensors, round_file, write_tensors
from ._run import ROUNDS, WEIGHT, check_id, check_weight, write_round, write_test


log = logging.getLogger("secsv")


@contextmanager
def unless_it_cannot_be_written(what: str) -> Iterator[None]:
    """Says what cannot be kept, for want of space or of rights, and goes on: that ends no training."""
    try:
        yield
    except OSError as error:
        log.error("%s is not recorded: %s", what, error)


class SiloDirectory:
    """A silo's part of a run directory. Nothing is kept in memory. What the system does not let it keep is said in the log."""

    def __init__(self, path: str | Path, silo: str) -> None:
        self.path = Path(path)
        self.silo = check_id(silo)

    def start_file(self, round: int) -> Path:
        """Where the model is kept that a round began with."""
        return self.path / ("initial.safetensors" if round == 1 else f"global/{round_file(round - 1)}")

    def received(self, round: int, arrays: Any) -> None:
        """Keeps the global model that a round began with."""
        found = model_arrays(arrays, f"global model of round {round}")
        with unless_it_cannot_be_written(f"the global model of round {round}"):
            write_tensors(self.start_file(round), found)

    def sent(self, round: int, arrays: Any, weight: float | None) -> None:
        """Keeps the model that the silo handed in, with its weight where it is known."""
        notes = None if weight is None else {WEIGHT: repr(check_weight(weight, self.silo, round))}
        found = model_arrays(arrays, f"{self.silo} in round {round}")
        with unless_it_cannot_be_written(f"the model of {self.silo} in round {round}"):
            write_tensors(self.own / round_file(round), found, notes)

    def sent_difference(self, round: int, differences: Mapping[str, np.ndarray], weight: float | None) -> None:
        """Keeps the model that differs so much from the one that the round began with."""
        differences = model_arrays(differences, f"{self.silo} in round {round}")
        begun = None
        with unless_it_cannot_be_written(f"the model of {self.silo} in round {round}"):
            begun, _ = read_tensors(self.start_file(round))
        if begun is None:
            return
        if set(begun) != set(differences):
            raise wrong("message", f"differences of {', '.join(sorted(begun))}", ", ".join(sorted(differences)))
        self.sent(round, {name: (begun[name] + array).astype(begun[name].dtype) for name, array in differences.items()}, weight)

    def round(self, number: int, weights: Mapping[str, float], last: bool) -> None:
        """Keeps who took part in a round, as the server says it. ``secsv client --follow`` begins with the round then; a file that is there
        is left as it is."""
        if not (self.path / ROUNDS / f"{number:04d}.toml").exists():
            with unless_it_cannot_be_written(f"the file of round {number}"):
                write_round(self.path, number, weights, last=last)

    def test(self, x: Any, y: Any) -> None:
        """Keeps the test samples."""
        with unless_it_cannot_be_written(f"the test set of {self.silo}"):
            write_test(self.own / "test.safetensors", x, y)

    @property
    def own(self) -> Path:
        """The files of this silo alone."""
        return self.path / "clients" / self.silo

    @property
    def has_test(self) -> bool:
        """Whether test samples are kept."""
        return (self.own / "test.safetensors").exists() or (self.own / "test.npz").exists()
