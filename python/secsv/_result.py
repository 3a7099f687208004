"""Values, and everything they were computed from."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _native
from ._errors import SecsvError, wrong
from ._files import write_atomically

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


class Utility(NamedTuple):
    """What one coalition's model was worth in one round."""

    round: int
    #: Who was in it, sorted; nobody for the model before the round.
    coalition: tuple[str, ...]
    #: Samples that it predicted right.
    correct: int
    #: Samples of all silos together.
    total: int

    @property
    def value(self) -> float:
        """The share of right predictions."""
        return self.correct / self.total


class Result:
    """Every silo's contribution. ``result["north"]`` is the value of one; iterating gives the silos, in the order of the federation."""

    def __init__(self, document: str | bytes | Mapping[str, Any]) -> None:
        if isinstance(document, Mapping):
            document = json.dumps(document)
        text = document.decode() if isinstance(document, bytes) else document
        found = json.loads(text)
        if not isinstance(found, dict) or "fsv" not in found or "utilities" not in found:
            raise wrong("result", "a result of secsv", "another document")
        self._text = text
        #: Everything, as docs/RESULT.md describes it.
        self.document: dict[str, Any] = found
        #: Each silo's value over all rounds.
        self.values: dict[str, float] = self._ordered(found["fsv"])  # type: ignore[assignment]
        #: Standard errors of the values, where they were sampled.
        self.stderr: dict[str, float] | None = self._ordered(found.get("standard_error"))
        #: Each silo's value in each round, by round.
        self.rounds: dict[int, dict[str, float]] = {of["round"]: self._ordered(of["values"]) for of in found["ssv"]}  # type: ignore[misc]
        #: Every coalition that was tested.
        self.utilities: list[Utility] = list(utilities_of(found["utilities"]))

    def _ordered(self, by_silo: Mapping[str, float] | None) -> dict[str, float] | None:
        return None if by_silo is None else {silo: by_silo[silo] for silo in self.document["clients"]}

    def __getitem__(self, silo: str) -> float:
        return self.values[silo]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def silos(self) -> list[str]:
        """Ids of all silos."""
        return list(self.values)

    @property
    def labels(self) -> dict[str, str]:
        """What people call each silo."""
        known = (self.document.get("federation") or {}).get("organisations", [])
        labels = {one["id"]: one.get("label") or one["id"] for one in known}
        return {silo: labels.get(silo, silo) for silo in self.values}

    @property
    def protocol(self) -> str:
        """The protocol by which models were tested."""
        return self.document["protocol"]

    @property
    def estimator(self) -> str:
        """How values were computed from utilities."""
        return self.document["estimator"]

    @property
    def name(self) -> str:
        """The federation's name."""
        return (self.document.get("federation") or {}).get("name", "contributions")

    @property
    def disclosures(self) -> list[dict[str, str]]:
        """Who learned what, and why; nothing is listed of values in the clear, under which one party has everything."""
        return (self.document.get("security") or {}).get("disclosures", [])

    @property
    def notes(self) -> list[str]:
        """Sentences on what the numbers do not cover."""
        return self.document.get("notes", [])

    def sort(self, by: Literal["value", "name"] = "value") -> list[tuple[str, float]]:
        """Silos with their values: the largest value first, or by name."""
        if by == "name":
            return sorted(self.values.items())
        if by != "value":
            raise wrong("by", "value or name", by)
        return sorted(self.values.items(), key=lambda item: (-item[1], item[0]))

    def to_dataframe(self, by: Literal["silo", "round", "coalition"] = "silo") -> pandas.DataFrame:
        """A pandas DataFrame with a row for each silo, for each round (a column for each silo), or for each coalition tested."""
        if by == "silo":
            columns: dict[str, Any] = {"value": self.values}
            if self.stderr is not None:
                columns["stderr"] = self.stderr
            if any(label != silo for silo, label in self.labels.items()):
                columns["label"] = self.labels
            frame = frame_of(columns)
            frame.index.name = "silo"
            return frame.loc[self.silos]
        if by == "round":
            frame = frame_of(self.rounds).T
            frame.index.name = "round"
            return frame[self.silos]
        if by == "coalition":
            rows = [{**one._asdict(), "value": one.value, "size": len(one.coalition)} for one in self.utilities]
            return frame_of(rows)
        raise wrong("by", "silo, round or coalition", by)

    def shares(self, budget: float, floor: float = 0.0) -> dict[str, float]:
        """The budget, divided: everybody gets ``floor``, and the rest is in proportion to values above 0. Where no value is above 0
        all get the same."""
        if not (budget >= 0.0 and 0.0 <= floor * len(self) <= budget):
            raise wrong("floor", f"0 to {budget / max(len(self), 1)} for each of {len(self)} silos", floor)
        gains = {silo: max(value, 0.0) for silo, value in self.values.items()}
        total = sum(gains.values())
        rest = budget - floor * len(self)
        if total == 0.0:
            return {silo: budget / len(self) for silo in gains}
        return {silo: floor + rest * gain / total for silo, gain in gains.items()}

    def without(self, *silos: str) -> Result:
        """The values that the others would have if these silos had been no players: exact, from the same utilities. Nothing is tested
        again; what the others trained from stays what it was."""
        return Result(_native.without(self._text, list(silos)))

    def to_json(self) -> str:
        """The document, as ``secsv evaluate --json`` writes it."""
        return self._text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the document to a file."""
        write_atomically(Path(path), self._text.encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Reads a document that ``save`` or ``secsv evaluate --json`` wrote."""
        try:
            return cls(Path(path).read_text())
        except FileNotFoundError as error:
            raise wrong("file", "this file", "none", path) from error
        except ValueError as error:
            raise wrong("result", "a result of secsv", error, path) from error

    def report(self, path: str | os.PathLike[str], title: str | None = None) -> None:
        """Writes the report for people: one HTML file that needs nothing else."""
        write_atomically(Path(path), _native.report(self._text, title).encode())

    def plot(self, kind: Literal["bar", "rounds", "heatmap", "waterfall"] = "bar", ax: Axes | None = None) -> Axes:
        """Draws the values: a bar for each silo, a line over rounds, rounds by silos in colours, or how they add up."""
        from ._plot import KINDS

        if kind not in KINDS:
            raise wrong("kind", ", ".join(KINDS), kind)
        return KINDS[kind](self, ax)

    def log_to(self, tracker: Literal["mlflow", "wandb", "tensorboard"], directory: str = "runs/secsv") -> None:
        """Tells a tracker of experiments: ``contribution/<silo>`` for each round, ``contribution_total/<silo>`` at the end, and where it
        keeps files the document and the report. MLflow and Weights & Biases log to the run that is active; TensorBoard to
        ``directory``."""
        from ._trackers import TRACKERS

        if tracker not in TRACKERS:
            raise wrong("tracker", ", ".join(TRACKERS), tracker)
        TRACKERS[tracker](self, directory)

    def __repr__(self) -> str:
        shown = ", ".join(f"{silo}={value:+.4f}" for silo, value in self.sort()[:6])
        more = f", and {len(self) - 6} more" if len(self) > 6 else ""
        return f"Result({self.protocol}, {self.estimator}: {shown}{more})"

    def _repr_html_(self) -> str:
        largest = max((abs(value) for value in self.values.values()), default=0.0) or 1.0
        labels = self.labels
        rows = []
        for silo, value in self.sort():
            error = "" if self.stderr is None else f" &plusmn; {100 * self.stderr[silo]:.2f}"
            colour = "#2b6cb0" if value >= 0 else "#c05621"
            width = round(160 * abs(value) / largest)
            bar = f"<div style='background:{colour};height:0.8em;width:{width}px'></div>"
            name = html.escape(labels[silo])
            rows.append(f"<tr><td style='text-align:left'>{name}</td><td>{100 * value:+.2f}{error}</td><td>{bar}</td></tr>")
        heading = f"{html.escape(self.name)}: {html.escape(self.protocol)}, {html.escape(self.estimator)}"
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return (
            f"<p><b>{heading}</b></p><table><tr><th></th><th>points</th><th></th></tr>{''.join(rows)}</table>"
            f"<p>Points are right answers per hundred test samples.</p>{notes}"
        )


def utilities_of(found: Any) -> Iterator[Utility]:
    """Utilities as a document has them: a list, or a table by column."""
    if isinstance(found, list):
        for one in found:
            yield Utility(one["round"], tuple(one["coalition"]), one["correct"], one["total"])
        return
    members, total = found["members"], found["total"]
    for number, coalition, correct in zip(found["round"], found["coalition"], found["correct"]):
        bits = int(coalition, 16)
        names = tuple(sorted(name for place, name in enumerate(members) if bits >> place & 1))
        yield Utility(number, names, correct, total if isinstance(total, int) else total[0])


def frame_of(data: Any) -> pandas.DataFrame:
    """A DataFrame; says what to install where pandas is missing."""
    try:
        import pandas
    except ImportError as error:
        raise SecsvError("expected pandas to be installed, found none: pip install secsv[plot]") from error
    return pandas.DataFrame(data)
