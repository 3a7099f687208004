"""``secsv join``: silos' own directories as one run directory, for simulations and for consortia that share everything."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from . import _native
from ._errors import InputError, wrong
from ._files import round_of, write_atomically
from ._model import Model
from ._run import Run, federation_toml, recorded_weights

SPEC = "federation.toml"


def join(silos: Sequence[str | Path], out: str | Path, *, federation: str | Path | None = None, aggregation: str | None = None) -> Run:
    """Writes a run directory from the directories of silos, and checks all of it. ``federation`` is a ``federation.toml``, as
    ``secsv.flower.record`` writes it; otherwise each silo has a copy. Weights that are recorded beside models must be the same."""
    directories = [Path(silo) for silo in silos]
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise wrong("--out", "an absent or empty directory", "files in it", out)
    text = spec_text(directories, federation)
    for directory in directories:
        copy_shared(directory, target)
    write_atomically(target / SPEC, text)
    run = Run(target)
    for silo in run.silos:
        holders = [directory for directory in directories if (directory / "clients" / silo).is_dir()]
        if len(holders) != 1:
            found = ", ".join(map(str, holders)) or "none"
            raise wrong(f"clients/{silo}", "one directory with the silo's files", found)
        copy_own(holders[0] / "clients" / silo, target / "clients" / silo)
        check_weights(run, silo)
    known = set(run.silos)
    for directory in directories:
        strangers = {entry.name for entry in (directory / "clients").glob("*") if entry.is_dir()} - known
        if strangers:
            raise wrong("clients", f"silos that {SPEC} names", ", ".join(sorted(strangers)), directory)
    if aggregation is not None and aggregation != run.aggregation:
        weights = {silo: {number: run.weight(silo, number) for number in range(1, run.rounds + 1)} for silo in run.silos}
        weights = {silo: {number: weight for number, weight in of.items() if weight} for silo, of in weights.items()}
        write_atomically(target / SPEC, federation_toml(run.name, run.rounds, aggregation, Model.of(run.model), weights).encode())
    drop_incomplete(Run(target))
    _native.check(target)
    return Run(target)


def spec_text(directories: Sequence[Path], federation: str | Path | None) -> bytes:
    """The federation's description: the one that is named, or the silos' own, which must be the same."""
    if federation is not None:
        place = Path(federation)
        place = place / SPEC if place.is_dir() else place
        if not place.exists():
            raise wrong("--federation", "this file", "none", place)
        return place.read_bytes()
    found = {path: path.read_bytes() for path in (directory / SPEC for directory in directories) if path.exists()}
    if not found:
        raise wrong("--federation", f"a {SPEC}: who took part with what weight, as the server recorded it", "none")
    (first, text), *others = found.items()
    for path, other in others:
        if other != text:
            raise wrong(SPEC, f"the same in every silo, as in {first}", "another", path)
    return text


def copy_own(directory: Path, target: Path) -> None:
    """Copies a silo's models and test samples: nothing else that lies there, and no links, which could lead anywhere."""
    target.mkdir(parents=True)
    for path in sorted(directory.iterdir()):
        if round_of(path.name) is not None or path.name in ("test.safetensors", "test.npz"):
            shutil.copyfile(no_link(path), target / path.name)


def no_link(path: Path) -> Path:
    """The path of a file that is none but itself."""
    if path.is_symlink() or not path.is_file():
        raise wrong("file", "a file", "a link or something else", path)
    return path


def copy_shared(directory: Path, target: Path) -> None:
    """Copies what all silos may have: initial and global models. Copies must be the same."""
    shared = [directory / "initial.safetensors", *sorted((directory / "global").glob("round-*.safetensors"))]
    for path in shared:
        if not path.exists():
            continue
        copied = target / path.relative_to(directory)
        if not copied.exists():
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(no_link(path), copied)
        elif copied.read_bytes() != no_link(path).read_bytes():
            raise wrong("model", "the same that the other silos received", "another", path)


def check_weights(run: Run, silo: str) -> None:
    """Compares the weights that a silo recorded with those that the federation's description has."""
    directory = run.path / "clients" / silo
    recorded = recorded_weights(directory)
    for number in range(1, run.rounds + 1):
        weight = run.weight(silo, number)
        if number not in recorded:
            if weight:
                raise wrong(f"clients.{silo}, round {number}", "this model: the server counted it", "none", directory)
            continue
        if not weight:
            # Sent, but too late or lost: it is in no mean.
            (directory / f"round-{number:04d}.safetensors").unlink()
        elif recorded[number] not in (None, weight):
            raise wrong(f"clients.{silo}, round {number}", f"the weight that the silo recorded, {recorded[number]}", weight, run.path / SPEC)


def drop_incomplete(run: Run) -> None:
    """Leaves out global models where some are missing and all follow from the local ones."""
    place = run.path / "global"
    kept = {round_of(path.name) for path in place.glob("round-*.safetensors")}
    needed = set(range(1, run.rounds))
    if place.is_dir() and run.aggregation == "mean" and not needed <= kept:
        shutil.rmtree(place)


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="secsv join", description=__doc__.split(": ", 1)[1])
    parser.add_argument("silos", nargs="+", metavar="SILO", help="a silo's directory")
    parser.add_argument("--out", required=True, metavar="RUN", help="the run directory that is written")
    parser.add_argument("--federation", metavar="FILE", help="federation.toml, as the server recorded it")
    parser.add_argument("--aggregation", choices=["mean", "other"], help="how global models were made, if the file says it wrong")
    options = parser.parse_args(arguments)
    try:
        run = join(options.silos, options.out, federation=options.federation, aggregation=options.aggregation)
    except InputError:
        # What was begun is not left for somebody to take for a run.
        shutil.rmtree(options.out, ignore_errors=True)
        raise
    print(f"{run.path}: {len(run.silos)} silos, {run.rounds} rounds")
    return 0
