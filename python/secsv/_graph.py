"""Layers in the making: what converters of frameworks add up, and what they cannot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ._errors import Unsupported, wrong
from ._model import Model

#: The sample itself, as layers name it.
SAMPLE = "input"


class Value:
    """What a layer hands on: the shape of one sample of it."""

    def __init__(self, place: int | None, shape: Sequence[int]) -> None:
        #: Index of the layer; None for the sample.
        self.place = place
        self.shape = tuple(int(size) for size in shape)


class Graph:
    """Layers by the values that they take. Operators without a layer are collected and refused together, by name and module."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.sample = Value(None, shape)
        self.layers: list[tuple[dict[str, Any], list[Value]]] = []
        self.missing: dict[str, list[str]] = {}

    def add(self, kind: str, inputs: Value | Iterable[Value], shape: Sequence[int], /, **keys: Any) -> Value:
        """A layer of a kind; keys that are None are left out."""
        taken = [inputs] if isinstance(inputs, Value) else list(inputs)
        layer = {"kind": kind, **{key: value for key, value in keys.items() if value is not None}}
        self.layers.append((layer, taken))
        return Value(len(self.layers) - 1, shape)

    def unsupported(self, operator: str, module: str, shape: Sequence[int]) -> Value:
        """Notes an operator that there is no layer for; its value stands for what would follow."""
        self.missing.setdefault(operator, []).append(module or "the model itself")
        return Value(None, shape)

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """The same numbers in another shape."""
        # One number is one score, whatever its shape.
        shape = tuple(shape) or (1,)
        if shape == value.shape:
            return value
        if value.place is not None and self.layers[value.place][0]["kind"] == "reshape" and not self._users(value):
            # Only the last of several shapes matters.
            _, [before] = self.layers[value.place]
            if value.place == len(self.layers) - 1:
                self.layers.pop()
                return self.reshaped(before, shape)
        if len(shape) == 1:
            return self.add("flatten", value, shape)
        return self.add("reshape", value, shape, shape=list(shape))

    def _users(self, value: Value) -> list[dict[str, Any]]:
        return [layer for layer, inputs in self.layers if any(taken.place == value.place for taken in inputs)]

    def refuse_missing(self, what: str) -> None:
        """Raises what was noted."""
        if not self.missing:
            return
        found = "; ".join(f"{operator} ({places(modules)})" for operator, modules in self.missing.items())
        expected = "operators that there are layers for (docs/MODELS.md)"
        message = f"{what}: expected {expected}, found {found}"
        raise Unsupported(message, None, what, expected, found, operators=self.missing)

    def model(self, output: Value, classes: int, *, layout: str | None, ignore: Iterable[str] = ()) -> Model:
        """The model whose scores are ``output``."""
        if output.place is None:
            raise wrong("model", "layers between the sample and the scores", "none")
        kept = self._reached(output)
        names: dict[int, str] = {}
        order = sorted(kept)
        position = {place: index for index, place in enumerate(order)}
        for place in order:
            layer, inputs = self.layers[place]
            if not self._follows(place, inputs, order, position):
                names.update({taken.place: f"layer-{position[taken.place] + 1}" for taken in inputs if taken.place is not None})
        layers = []
        for place in order:
            layer, inputs = dict(self.layers[place][0]), self.layers[place][1]
            if place in names:
                layer["name"] = names[place]
            if not self._follows(place, inputs, order, position):
                layer["from"] = [SAMPLE if taken.place is None else names[taken.place] for taken in inputs]
            layers.append(layer)
        return Model(self.sample.shape, classes, layers, layout=layout, ignore=ignore)

    def _reached(self, output: Value) -> set[int]:
        reached, open_ = set(), [output.place]
        while open_:
            place = open_.pop()
            if place is None or place in reached:
                continue
            reached.add(place)
            open_ += [taken.place for taken in self.layers[place][1]]
        return reached

    @staticmethod
    def _follows(place: int, inputs: list[Value], order: list[int], position: dict[int, int]) -> bool:
        """Whether a layer takes what the one before it hands on, and that alone."""
        before = order[position[place] - 1] if position[place] > 0 else None
        return len(inputs) == 1 and inputs[0].place == before


def places(modules: list[str]) -> str:
    """The first module, and how many more there are."""
    known = list(dict.fromkeys(modules))
    return known[0] if len(known) == 1 else f"{known[0]} and {len(known) - 1} more"


def same(sizes: Any, what: str) -> int | None:
    """One number for all directions; None where they differ."""
    if isinstance(sizes, int):
        return sizes
    return int(sizes[0]) if len(set(sizes)) == 1 else None


def size_of(shape: Sequence[int]) -> int:
    """Numbers in a shape."""
    return math.prod(shape)
