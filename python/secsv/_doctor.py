"""``secsv doctor``: what is there of a run or of a silo's part of it, what is missing, and what to do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import _native
from ._errors import InputError
from ._files import read_header, round_file
from ._run import Run

#: What helps against a defect, by words of its sentence.
ADVICE = [
    ("weighted mean", "the strategy makes global models otherwise: record with aggregation=\"other\""),
    ("global model after each round", "keep global models: record(..., global_models=True), or copy them from a silo"),
    ("initial.safetensors", "a silo that missed round 1 never got it: copy it from another silo or from the server's recording"),
    ("test.safetensors", "each silo writes its own test samples: SiloRecorder(test=...) or Run.test"),
    ("serialised model", "trees and pickles have no weighted means: such a federation cannot be valued here"),
    ("model.layout", "say layout = \"pytorch\" or \"keras\" in [model]"),
    ("model.ignore", "name buffers that no layer uses in ignore"),
    ("federation.toml", "the server's recorder writes it (secsv.flower.record); copy it to every silo"),
]


def findings(path: str | Path) -> Iterator[str]:
    """Sentences on a directory, one after the other; those about something to do begin with "->"."""
    place = Path(path)
    try:
        run = Run(place)
    except InputError as error:
        yield f"-> {error}{advice(error)}"
        return
    silos = [silo for silo in run.silos if (place / "clients" / silo).is_dir()]
    yield f"{run.name}: {len(run.silos)} silos, {run.rounds} rounds, aggregation {run.aggregation}; files of {len(silos)}"
    if not silos:
        yield "-> no silo has files in clients/: this is what a server recorded; `secsv join` puts silos' directories beside it"
        return
    yield from attendance(run, silos)
    yield from defects(run, silos)
    for name, why in _native.protocols(place):
        yield f"{name}: can test this model" if why is None else f"{name}: cannot ({why})"
    if len(run.silos) < 4:
        yield f"-> {len(run.silos)} silos: secsv, hesv and secretsv need 4, blindsv 2 (Flower's and FLARE's examples begin with 2 clients)"


def attendance(run: Run, silos: Sequence[str]) -> Iterator[str]:
    """Who took part when, and how many test samples there are."""
    width = max(map(len, silos))
    for silo in silos:
        directory = run.path / "clients" / silo
        marks = []
        for number in range(1, run.rounds + 1):
            is_there, weight = (directory / round_file(number)).exists(), run.weight(silo, number)
            marks.append("#" if is_there and weight else "." if not weight and not is_there else "?")
        yield f"{silo:{width}}  {''.join(marks)}  {tests(directory)}"
        for number, mark in enumerate(marks, 1):
            if mark == "?":
                weight = run.weight(silo, number)
                what = f"counts {weight:g} but has no model" if weight else "has a model but counts 0"
                yield f"-> {silo} {what} in round {number}"


def tests(directory: Path) -> str:
    """How many test samples a silo has."""
    path = directory / "test.safetensors"
    if path.exists():
        try:
            return f"{read_header(path)[0]['x']['shape'][0]} test samples"
        except (InputError, KeyError, IndexError, TypeError):
            return "test samples that cannot be read"
    return "test.npz" if (directory / "test.npz").exists() else "no test samples"


def defects(run: Run, silos: Sequence[str]) -> Iterator[str]:
    """The first defect of a whole run; of a part, what a silo would miss."""
    if len(silos) == len(run.silos):
        try:
            _native.check(run.path)
        except InputError as error:
            yield f"-> {error}{advice(error)}"
        return
    for silo in silos:
        if tests(run.path / "clients" / silo) == "no test samples":
            yield f"-> {silo}: {ADVICE[3][1]}"
    if run.aggregation == "other":
        missing = [number for number in range(1, run.rounds) if not (run.path / "global" / round_file(number)).exists()]
        if missing:
            yield f"-> global models of rounds {', '.join(map(str, missing))} are missing: {ADVICE[1][1]}"


def advice(error: InputError) -> str:
    """What to do, where that is known."""
    said = next((help for words, help in ADVICE if words in str(error)), None)
    return f" ({said})" if said else ""


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="secsv doctor", description=__doc__.split(": ", 1)[1])
    parser.add_argument("run", metavar="RUN", help="a run directory, or a silo's part of one")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args(arguments)
    found = list(findings(options.run))
    print(json.dumps(found) if options.format == "json" else "\n".join(found))
    return 2 if any(line.startswith("->") for line in found) else 0
