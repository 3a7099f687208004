"""``secsv init``: the tables of federation.toml that describe a model, read off a module or a file."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from ._errors import wrong
from ._model import Model


def module_of(name: str) -> Any:
    """The module that ``package.module:Name`` names: an object, or what a class or function without arguments makes."""
    place, colon, attribute = name.partition(":")
    if not colon:
        raise wrong("--torch", "package.module:Name", name)
    if "" not in sys.path:
        # Modules of the directory in which the command is run.
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(place), attribute)
    except (ImportError, AttributeError) as error:
        raise wrong("--torch", "a name that can be imported here", f"{name} ({error})") from error
    return found if hasattr(found, "state_dict") and not isinstance(found, type) else found()


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="secsv init", description=__doc__.split(": ", 1)[1])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--torch", metavar="MODULE:NAME", help="a module of PyTorch, its class, or a function that makes one")
    source.add_argument("--onnx", metavar="FILE", help="an ONNX file")
    parser.add_argument("--input", metavar="SIZES", help="with --torch: the shape of one sample, such as 3,32,32")
    parser.add_argument("--integers", action="store_true", help="with --torch: samples are integers, such as words")
    options = parser.parse_args(arguments)
    if options.onnx:
        model = Model.from_onnx(options.onnx)
    else:
        model = from_torch(options.torch, options.input, options.integers)
    print(model.to_toml(), end="")
    return 0


def from_torch(name: str, sizes: str | None, is_integer: bool) -> Model:
    """The model of a module."""
    if sizes is None or not all(size.strip().isdigit() for size in sizes.split(",")):
        raise wrong("--input", "the shape of one sample, such as 3,32,32", sizes or "none")
    module = module_of(name)
    import torch

    shape = [1, *map(int, sizes.split(","))]
    return Model.from_torch(module, torch.zeros(shape, dtype=torch.long if is_integer else torch.float32))
