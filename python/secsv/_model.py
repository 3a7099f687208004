"""The network that a federation trained, as layers."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _native
from ._errors import wrong
from ._files import model_arrays, toml_value, write_atomically, write_tensors

#: The client whose samples are predicted.
READER = "samples"


class Model:
    """A network: the shape of one sample, the number of classes, and layers as docs/MODELS.md lists them.

    >>> Model([8], 3, [{"kind": "linear", "weight": "w", "bias": "b"}])
    """

    def __init__(
        self,
        input: Sequence[int],
        classes: int,
        layers: Iterable[Mapping[str, Any]],
        *,
        layout: str | None = None,
        ignore: Iterable[str] = (),
    ) -> None:
        self.input = [int(size) for size in input]
        self.classes = int(classes)
        self.layers = [copy.deepcopy(dict(layer)) for layer in layers]
        self.layout = layout
        self.ignore = list(ignore)
        for place, layer in enumerate(self.layers):
            if "kind" not in layer:
                raise wrong(f"layers[{place}]", "a layer with a kind", layer)

    @classmethod
    def of(cls, model: Any) -> Model:
        """A model as it is, of its description as a mapping, or of the ``[model]`` table of a run directory."""
        if isinstance(model, Model):
            return model
        if isinstance(model, Mapping):
            known = {"input", "classes", "layers", "layout", "ignore"}
            unknown = set(model) - known
            if unknown or not {"input", "classes", "layers"} <= set(model):
                raise wrong("model", f"the keys {', '.join(sorted(known))}", ", ".join(map(str, model)))
            return cls(**model)
        if isinstance(model, (str, os.PathLike)):
            return cls(**json.loads(_native.describe(model))["model"])
        raise wrong("model", "a secsv.Model, a mapping or a run directory", type(model).__name__)

    @classmethod
    def from_torch(cls, module: Any, example: Any, *, ignore: Iterable[str] = ()) -> Model:
        """The layers of a module of PyTorch, found by ``torch.export`` and proved: on random weights and samples they have the module's
        scores. ``example`` is a batch of inputs of any size. Raises ``Unsupported`` with operators and module paths; a module with
        parameters that it does not compute with is refused unless ``ignore`` names them."""
        from ._torch import from_torch

        return from_torch(module, example, ignore=ignore)

    @classmethod
    def from_keras(cls, model: Any) -> Model:
        """The layers of a built model of Keras 3, Sequential or functional, proved on random weights and samples. Tensors are called ``0``,
        ``1``, ... in the order of ``get_weights()``, as lists of arrays are recorded, and samples lie as Keras has them."""
        from ._keras import from_keras

        return from_keras(model)

    @classmethod
    def from_onnx(cls, path: str | os.PathLike[str]) -> Model:
        """The layers of an ONNX file; ``secsv.onnx.read`` gives the weights of the same file as well, as layers take them."""
        from .onnx import read

        return read(path)[0]

    @classmethod
    def from_sklearn(cls, estimator: Any) -> Model:
        """The layers of a fitted linear classifier or ``MLPClassifier`` of scikit-learn, and no other. Tensors are called ``0``, ``1``,
        ... in the order ``[coef_, intercept_]`` or ``coefs_ + intercepts_``, as lists of arrays are recorded."""
        from ._sklearn import from_sklearn

        return from_sklearn(estimator)

    @property
    def description(self) -> dict[str, Any]:
        """The model as a mapping."""
        found: dict[str, Any] = {"input": self.input, "classes": self.classes}
        if self.layout is not None:
            found["layout"] = self.layout
        if self.ignore:
            found["ignore"] = self.ignore
        return {**found, "layers": self.layers}

    def to_toml(self) -> str:
        """The tables of ``federation.toml`` that describe it."""
        lines = ["[model]"]
        lines += [f"{key} = {toml_value(value)}" for key, value in self.description.items() if key != "layers"]
        for layer in self.layers:
            lines.append("[[model.layers]]")
            lines += [f"{key} = {toml_value(value)}" for key, value in layer.items()]
        return "\n".join(lines) + "\n"

    def scores(self, arrays: Any, x: Any) -> np.ndarray:
        """The scores that a model of these weights has for samples, in double precision: computed by the evaluator in the clear that
        every protocol is measured against. ``arrays`` are as ``Run.record`` takes them."""
        x = np.asarray(x)
        with tempfile.TemporaryDirectory(prefix="secsv-") as parent:
            directory = Path(parent)
            head = f'name = "scores"\nrounds = 1\n{self.to_toml()}[[clients]]\nid = "{READER}"\ntrain_size = 1\n'
            write_atomically(directory / "federation.toml", head.encode())
            write_tensors(directory / "initial.safetensors", model_arrays(arrays))
            samples = {"x": x, "y": np.zeros(len(x), np.int64)}
            write_tensors(directory / "clients" / READER / "test.safetensors", samples)
            found, outputs = _native.scores(directory, READER)
        return np.frombuffer(found, "<f8").reshape(len(x), outputs)

    def predict(self, arrays: Any, x: Any) -> np.ndarray:
        """The classes that a model of these weights predicts for samples. Of a single score, class 1 where it is above 0 (a
        ``sigmoid`` at the end: above one half)."""
        scores = self.scores(arrays, x)
        if scores.shape[1] == 1:
            threshold = 0.5 if self.layers[-1]["kind"] in ("sigmoid", "hard-sigmoid") else 0.0
            return (scores[:, 0] > threshold).astype(np.int64)
        return scores.argmax(axis=1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.description == other.description

    def __repr__(self) -> str:
        kinds = ", ".join(layer["kind"] for layer in self.layers)
        return f"Model(input={self.input}, classes={self.classes}, layers=[{kinds}])"
