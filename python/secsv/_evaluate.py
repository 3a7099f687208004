"""Evaluating, planning and comparing."""

from __future__ import annotations

import html
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Union

from . import _native
from ._errors import wrong
from ._result import Result, frame_of
from ._run import Run

PathLike = Union[str, "os.PathLike[str]"]
ProtocolName = Literal["nssv", "blindsv", "secsv", "hesv", "secretsv"]


class Progress(NamedTuple):
    """How far an evaluation has come."""

    #: The round just worked on.
    round: int
    #: Models tested so far, over all rounds.
    tested: int
    #: Models asked for so far; a sampling estimator may ask for more.
    asked: int


Watcher = Callable[[Progress], object]


def evaluate(
    run: PathLike | Run,
    *,
    protocol: ProtocolName | None = None,
    estimator: str | None = None,
    skip: Literal["on", "off", "auto"] | None = None,
    utility: str | None = None,
    seed: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    samples: int | None = None,
    max_error: float | None = None,
    max_tests: int | None = None,
    max_seconds: float | None = None,
    preset: str | None = None,
    matmul: str | None = None,
    progress: bool | Watcher = True,
) -> Result:
    """Values every silo of a run, with every party of the protocol at work in this process.

    Arguments are those of ``secsv evaluate``; what is None has the default there: exact values by ``blindsv``, where it can test the
    model. ``progress`` is True for a bar (if tqdm is installed), a function that is called with ``Progress`` now and then, or False.
    The interpreter is released meanwhile; Ctrl-C ends it.
    """
    options = dict(
        protocol=protocol,
        estimator=estimator,
        skip=skip,
        utility=utility,
        seed=seed,
        epsilon=epsilon,
        delta=delta,
        samples=samples,
        max_error=max_error,
        max_tests=max_tests,
        max_seconds=max_seconds,
        preset=preset,
        matmul=matmul,
    )
    arguments = [path_of(run), *as_arguments(options)]
    with watcher(progress, protocol or "secsv") as watch:
        seen = []

        def told(*now):
            seen[:] = [Progress(*now)]
            watch(seen[0])

        observe = None if watch is None else told
        document = _native.evaluate(arguments, observe)
        result = Result(document)
        if watch is not None:
            # Utilities that one round takes over from another one are no models that were tested.
            tested = seen[0].asked if seen else len(result.utilities)
            watch(Progress(max(result.rounds, default=0), tested, tested))
    return result


def plan(
    run: PathLike | Run,
    *,
    protocol: ProtocolName | None = None,
    skip: Literal["on", "off"] | None = None,
    preset: str | None = None,
    matmul: str | None = None,
    measure: bool = False,
) -> Plan:
    """What an exact evaluation would cost and disclose, before anything runs. Unit costs of this machine are measured once."""
    options = dict(protocol=protocol, skip=skip, preset=preset, matmul=matmul)
    flags = ["--measure"] if measure else []
    return Plan(_native.plan([path_of(run), *as_arguments(options), *flags]))


def compare(
    run: PathLike | Run,
    protocols: Sequence[ProtocolName] = ("nssv", "blindsv"),
    *,
    progress: bool | Watcher = True,
    **options: Any,
) -> Comparison:
    """The same run under several protocols; ``options`` are those of ``evaluate``."""
    if not protocols:
        raise wrong("protocols", "at least one", "none")
    return Comparison({name: evaluate(run, protocol=name, progress=progress, **options) for name in protocols})


class Plan:
    """What an evaluation will cost and disclose. ``document`` has everything that ``secsv plan --format json`` prints."""

    def __init__(self, document: str) -> None:
        self.document: dict[str, Any] = json.loads(document)

    @property
    def protocol(self) -> str:
        """The protocol."""
        return self.document["protocol"]

    @property
    def tests(self) -> int:
        """Models that will be tested."""
        return self.document["tests"]

    @property
    def seconds(self) -> float:
        """Seconds until the values are there if all parties share this machine, estimated."""
        return self.document["wall_s"]

    @property
    def bytes_sent(self) -> int:
        """Bytes between parties."""
        return sum(link["bytes"] for link in self.document["traffic"])

    @property
    def memory_bytes(self) -> int:
        """Memory of all parties in one process, estimated."""
        return self.document["memory_bytes"]

    @property
    def disclosures(self) -> list[dict[str, str]]:
        """Who will learn what, and why."""
        return self.document["security"]["disclosures"]

    @property
    def exposure(self) -> list[str]:
        """Sentences on who can do what with it."""
        return self.document["security"]["exposure"].get("sentences", [])

    def __repr__(self) -> str:
        megabytes = self.bytes_sent / 1e6
        return f"Plan({self.protocol}: {self.tests} tests, {self.seconds:.1f} s, {megabytes:.1f} MB sent)"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(found['who'])}</td><td style='text-align:left'>{html.escape(found['what'])}</td></tr>"
            for found in self.disclosures
        )
        said = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.exposure)
        heading = html.escape(repr(self)[5:-1])
        return f"<p><b>{heading}</b></p><ul>{said}</ul><table><tr><th>who</th><th>learns</th></tr>{rows}</table>"


class Comparison(Mapping[str, Result]):
    """Results of one run by protocol."""

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._results = dict(results)

    def __getitem__(self, protocol: str) -> Result:
        return self._results[protocol]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def table(self) -> dict[str, dict[str, float]]:
        """Values by silo, then protocol."""
        first = next(iter(self._results.values()))
        return {silo: {name: of.values[silo] for name, of in self._results.items()} for silo in first.values}

    def to_dataframe(self):
        """The values as a pandas DataFrame: a row for each silo, a column for each protocol."""
        return frame_of(self.table()).T

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self._results)})"

    def _repr_html_(self) -> str:
        names = "".join(f"<th>{html.escape(name)}</th>" for name in self._results)
        rows = "".join(
            f"<tr><td>{html.escape(silo)}</td>" + "".join(f"<td>{value:+.6f}</td>" for value in row.values()) + "</tr>"
            for silo, row in self.table().items()
        )
        return f"<table><tr><th></th>{names}</tr>{rows}</table>"


def path_of(run: PathLike | Run) -> str:
    """Where a run is; a run that is being written is written first."""
    if isinstance(run, Run):
        run.write()
        return str(run.path)
    return os.fspath(run)


def as_arguments(options: Mapping[str, Any]) -> list[str]:
    """Arguments of the command line for options that are not None."""
    given = ((name.replace("_", "-"), value) for name, value in options.items() if value is not None)
    return [f"--{name}={value!r}" if isinstance(value, float) else f"--{name}={value}" for name, value in given]


@contextmanager
def watcher(progress: bool | Watcher, what: str) -> Iterator[Watcher | None]:
    """What to tell of progress: the caller's function, a bar, or nothing."""
    if callable(progress):
        yield progress
        return
    bar = bar_of(what) if progress else None
    if bar is None:
        yield None
        return

    def show(now: Progress) -> None:
        bar.total = now.asked
        bar.n = now.tested
        bar.refresh()

    try:
        yield show
    finally:
        bar.close()


def bar_of(what: str) -> Any:
    """A bar of tqdm; None without it, or where nobody looks."""
    is_notebook = "ipykernel" in sys.modules
    if not is_notebook and not sys.stderr.isatty():
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(desc=what, unit=" coalitions", leave=False)
