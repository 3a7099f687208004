"""What the peer scripts have in common: a run directory's model and samples, the answer in the clear, one line of JSON.

Needs: numpy, safetensors.
"""

import argparse
import json
import time
import tomllib
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


class Federation:
    """The aggregate after the last round and every client's test samples."""

    def __init__(self, run):
        run = Path(run)
        spec = tomllib.loads((run / "federation.toml").read_text())
        self.layers = spec["model"]["layers"]
        self.input = spec["model"]["input"]
        weights = load_file(run / "global" / f"round-{spec['rounds']:04d}.safetensors")
        self.weights = {name: tensor.astype(np.float64) for name, tensor in weights.items()}
        sets = [load_file(run / "clients" / client["id"] / "test.safetensors") for client in spec["clients"]]
        self.x = np.concatenate([s["x"] for s in sets]).astype(np.float64)
        self.y = np.concatenate([s["y"] for s in sets])
        self.name = spec["name"]

    def batch(self, size):
        """Samples spread over all clients, repeated if there are fewer."""
        return self.x[np.linspace(0, len(self.x) - 1, size).astype(int)]

    def kind(self):
        kinds = [layer["kind"] for layer in self.layers]
        return "gru" if "gru" in kinds else "cnn" if "conv2d" in kinds else "logistic" if len(kinds) == 1 else "dnn"


def patches(x, kernel, stride):
    """[samples, channels, height, width] -> [samples, positions, channels * kernel * kernel]."""
    views = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    samples, channels, rows, columns = views.shape[:4]
    return views.transpose(0, 2, 3, 1, 4, 5).reshape(samples, rows * columns, channels * kernel * kernel)


def scores(federation, x):
    """The answer in the clear, in double precision."""
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    weights = federation.weights
    for layer in federation.layers:
        kind = layer["kind"]
        if kind == "linear":
            x = x @ weights[layer["weight"]].T + weights[layer["bias"]]
        elif kind == "conv2d":
            filters = weights[layer["weight"]]
            channels = filters.shape[0]
            columns = patches(x, filters.shape[2], layer.get("stride", 1))
            x = (columns @ filters.reshape(channels, -1).T + weights[layer["bias"]]).transpose(0, 2, 1)
        elif kind == "gru":
            w_ih, w_hh, b_ih, b_hh = (weights[layer[k]] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            hidden = np.zeros((len(x), w_hh.shape[1]))
            for step in range(x.shape[1]):
                ri, zi, ni = np.split(x[:, step] @ w_ih.T + b_ih, 3, axis=1)
                rh, zh, nh = np.split(hidden @ w_hh.T + b_hh, 3, axis=1)
                r, z = sigmoid(ri + rh), sigmoid(zi + zh)
                hidden = (1 - z) * np.tanh(ni + r * nh) + z * hidden
            x = hidden
        else:
            x = {
                "relu": lambda v: np.maximum(v, 0),
                "sigmoid": sigmoid,
                "tanh": np.tanh,
                "square": lambda v: v * v,
                "flatten": lambda v: v.reshape(len(v), -1),
            }[kind](x)
    return x


def arguments(description, batches):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run directory of secsv")
    parser.add_argument(
        "--batch",
        type=lambda text: [int(size) for size in text.split(",")],
        help=f"samples tested at once; of several sizes the fastest per sample counts (default by model: {batches})",
    )
    parser.add_argument("--repeat", type=int, default=3, help="timed repetitions; the fastest counts")
    return parser


def fastest(work, repeat):
    best = float("inf")
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def best_batch(sizes, test):
    """(size, seconds, scores, microseconds per sample by size) of the size that is fastest per sample. A size that fails,
    for want of memory say, is left out unless all do."""
    best, tried, failure = None, {}, None
    for size in sizes:
        try:
            seconds, found = test(size)
        except (RuntimeError, MemoryError) as error:
            failure = error
            tried[size] = None
            continue
        tried[size] = seconds / size * 1e6
        if best is None or tried[size] < best[1] / best[0] * 1e6:
            best = (size, seconds, found)
    if best is None:
        raise failure
    return (*best, tried)


def report(peer, federation, batch, seconds, found, expected, trust, **more):
    """One JSON document on one line: what `bench/compare` reads."""
    found = np.asarray(found).reshape(expected.shape)
    same = float((found.argmax(1) == expected.argmax(1)).mean())
    print(
        json.dumps(
            {
                "peer": peer,
                "federation": federation.name,
                "batch": batch,
                "seconds_per_batch": seconds,
                "us_per_sample": seconds / batch * 1e6,
                "largest_score_error": float(np.abs(found - expected).max()),
                "same_predictions": same,
                "trust": trust,
                **more,
            }
        )
    )
