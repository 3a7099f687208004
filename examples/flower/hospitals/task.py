"""What an ordinary Flower user has: data, a model, a way to train it. With NumPy alone."""

import numpy as np

FEATURES, CLASSES, HOSPITALS = 12, 3, 5
#: The network in words of docs/MODELS.md.
MODEL = {"input": [FEATURES], "classes": CLASSES, "layers": [{"kind": "linear", "weight": "weight", "bias": "bias"}]}


def load(hospital: int, kind: str):
    """A hospital's own patients, for training or for tests. The last one's training labels are wrong."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, FEATURES))
    rng = np.random.default_rng([1, hospital, kind == "test"])
    size = 40 if kind == "test" else 60 + 40 * hospital
    y = rng.integers(0, CLASSES, size)
    x = (centres[y] + 1.6 * rng.normal(size=(size, FEATURES))).astype(np.float32)
    if kind == "train" and hospital == HOSPITALS - 1:
        y = (y + 1) % CLASSES
    return x, y


def initial():
    """The model before the first round."""
    return {"weight": np.zeros((CLASSES, FEATURES), np.float32), "bias": np.zeros(CLASSES, np.float32)}


def train(model, x, y, steps=5, rate=0.1):
    """Some steps down the gradient of the cross-entropy."""
    weight, bias = model["weight"].copy(), model["bias"].copy()
    for _ in range(steps):
        scores = x @ weight.T + bias
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(y)), y] -= 1
        weight -= rate * shares.T @ x / len(x)
        bias -= rate * shares.mean(axis=0)
    return {"weight": weight, "bias": bias}


def accuracy(model, x, y):
    """The share of right predictions."""
    return float((np.argmax(x @ model["weight"].T + model["bias"], axis=1) == y).mean())
