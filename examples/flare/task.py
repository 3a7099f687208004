"""What an ordinary user of FLARE has: data, a model, a way to train it. With NumPy alone."""

import numpy as np

FEATURES, CLASSES, SITES = 12, 3, 4
#: FLARE's recipe for NumPy calls its only array so.
NAME = "numpy_key"
#: The network in words of docs/MODELS.md: the last feature is 1, for the bias.
MODEL = {"input": [FEATURES + 1], "classes": CLASSES, "layers": [{"kind": "linear", "weight": NAME}]}


def load(site: str, kind: str):
    """A site's own patients, for training or for tests. The last one's training labels are wrong."""
    number = int(site.split("-")[1])
    centres = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    rng = np.random.default_rng([1, number, kind == "test"])
    size = 40 if kind == "test" else 60 + 40 * number
    y = rng.integers(0, CLASSES, size)
    x = centres[y] + 1.6 * rng.normal(size=(size, FEATURES))
    if kind == "train" and number == SITES:
        y = (y + 1) % CLASSES
    return np.c_[x, np.ones(size)].astype(np.float32), y


def train(weight, x, y, steps=5, rate=0.1):
    """Some steps down the gradient of the cross-entropy."""
    weight = weight.copy()
    for _ in range(steps):
        scores = x @ weight.T
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(y)), y] -= 1
        weight -= rate * shares.T @ x / len(x)
    return weight
