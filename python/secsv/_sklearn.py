"""Classifiers of scikit-learn as layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._errors import Unsupported, wrong
from ._model import Model

#: Classifiers whose largest score decides, and that have nothing but coefficients.
LINEAR = {
    "LogisticRegression",
    "LogisticRegressionCV",
    "SGDClassifier",
    "Perceptron",
    "LinearSVC",
    "RidgeClassifier",
    "RidgeClassifierCV",
    "PassiveAggressiveClassifier",
    "LinearDiscriminantAnalysis",
}
#: Activations of MLPs by the names they have there.
ACTIVATIONS = {"relu": "relu", "tanh": "tanh", "logistic": "sigmoid", "identity": None}
#: Samples on which layers and classifier are compared.
COMPARED = 256


def from_sklearn(estimator: Any) -> Model:
    """The layers of a fitted classifier; see ``Model.from_sklearn``."""
    kind = type(estimator).__name__
    if kind not in LINEAR and kind != "MLPClassifier":
        expected = "a linear classifier or an MLPClassifier: of a pipeline the last step, over what the others make of samples"
        raise Unsupported(f"estimator: expected {expected}, found {kind}", None, "estimator", expected, kind)
    if not hasattr(estimator, "classes_"):
        raise wrong("estimator", "a fitted classifier", "one that was not fitted")
    if list(estimator.classes_) != list(range(len(estimator.classes_))):
        raise wrong("estimator", "classes 0, 1, ... as labels", f"{list(estimator.classes_)[:8]}")
    model, arrays = mlp(estimator) if kind == "MLPClassifier" else linear(estimator)
    prove(model, arrays, estimator)
    return model


def linear(estimator: Any) -> tuple[Model, list[np.ndarray]]:
    """One layer; a single row of coefficients is the score of class 1."""
    coefficients = np.asarray(estimator.coef_)
    layer = {"kind": "linear", "weight": "0"}
    arrays = [coefficients]
    if np.ndim(estimator.intercept_) > 0:
        layer["bias"] = "1"
        arrays.append(np.asarray(estimator.intercept_))
    classes = max(len(coefficients), 2)
    return Model([coefficients.shape[1]], classes, [layer], layout="pytorch"), arrays


def mlp(estimator: Any) -> tuple[Model, list[np.ndarray]]:
    """Layers of an MLP: coefficients lie as Keras has them."""
    count = len(estimator.coefs_)
    activation = ACTIVATIONS[estimator.activation]
    layers: list[dict[str, Any]] = []
    for place in range(count):
        layers.append({"kind": "linear", "weight": str(place), "bias": str(count + place)})
        if place < count - 1 and activation is not None:
            layers.append({"kind": activation})
    arrays = [np.asarray(array) for array in [*estimator.coefs_, *estimator.intercepts_]]
    classes = max(arrays[count - 1].shape[1], 2)
    return Model([arrays[0].shape[0]], classes, layers, layout="keras"), arrays


def prove(model: Model, arrays: list[np.ndarray], estimator: Any) -> None:
    """Compares the layers with the classifier on random samples."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(COMPARED, model.input[0])).astype(np.float32)
    expected = estimator.predict(x.astype(np.float64))
    found = model.predict(arrays, x)
    differing = int((expected != found).sum())
    # Scores may be equal to the last bits that two ways of adding leave.
    if differing > COMPARED // 100:
        raise wrong("estimator", "the classifier's predictions", f"{differing} of {COMPARED} others")
