"""Times CrypTen on the secure test that SecSV does: secret model, secret samples, scores revealed.

    python crypten_test.py RUN [--parties 2] [--batch B] [--repeat 3]

The parties are processes on the loopback interface. Sharing of inputs and one warm-up are not timed. Activations are
computed under the protocol (CrypTen's approximations), so no party sees them: more than SecSV hides.
Needs: crypten (installed with --no-deps: it asks for the package "sklearn", which refuses to install), torch 2.2,
numpy below 2, omegaconf, onnx, pyyaml, safetensors.
"""

import os
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import crypten
import crypten.communicator as comm
import crypten.mpc as mpc
import numpy as np
import torch

from federation import Federation, arguments, best_batch, fastest, patches, report, scores

# All are tried, the fastest per sample counts.
BATCHES = {"logistic": [1024, 4096], "cnn": [256, 1024], "gru": [256, 1024], "dnn": [256, 1024]}

TRUST = (
    "all parties but one may collude; multiplication triples come from a trusted dealer (CrypTen's default: the first "
    "party makes them and so must be trusted not to look)"
)


def forward(federation, weights, x):
    for layer in federation.layers:
        kind = layer["kind"]
        if kind == "linear":
            x = x.matmul(weights[layer["weight"]].t()) + weights[layer["bias"]]
        elif kind == "conv2d":
            filters = weights[layer["weight"]]
            x = x.matmul(filters.reshape(filters.size(0), -1).t()) + weights[layer["bias"]]
            x = x.transpose(1, 2)
        elif kind == "gru":
            x = gru(x, *(weights[layer[k]] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
        elif kind == "flatten":
            x = x.reshape(x.size(0), -1)
        else:
            x = {"square": x.square, "relu": x.relu, "sigmoid": x.sigmoid, "tanh": x.tanh}[kind]()
    return x


def gru(x, w_ih, w_hh, b_ih, b_hh):
    width = w_hh.size(1)
    hidden = crypten.cryptensor(torch.zeros(x.size(0), width))
    inputs = x.matmul(w_ih.t()) + b_ih
    for step in range(x.size(1)):
        i, h = inputs[:, step], hidden.matmul(w_hh.t()) + b_hh
        gates = (i[:, : 2 * width] + h[:, : 2 * width]).sigmoid()
        r, z = gates[:, :width], gates[:, width:]
        new = (i[:, 2 * width :] + r * h[:, 2 * width :]).tanh()
        hidden = new + z * (hidden - new)
    return hidden


def timed(federation, samples, parties, repeat):
    """Seconds of the slowest party, and the scores."""
    x, first = samples, federation.layers[0]
    if first["kind"] == "conv2d":
        x = patches(x, federation.weights[first["weight"]].shape[2], first.get("stride", 1))

    @mpc.run_multiprocess(world_size=parties)
    def party():
        torch.set_num_threads(1)
        secret = lambda array: crypten.cryptensor(torch.tensor(np.ascontiguousarray(array), dtype=torch.float32), src=0)
        weights = {name: secret(tensor) for name, tensor in federation.weights.items()}
        data = secret(x)
        found = forward(federation, weights, data).get_plain_text()
        if comm.get().get_rank() == 0:
            np.save(answer, found.numpy())

        def test():
            comm.get().barrier()
            forward(federation, weights, data)
            comm.get().barrier()

        return fastest(test, repeat)

    # CrypTen joins its processes before it reads what they return, so anything larger than a pipe's buffer would block.
    with tempfile.TemporaryDirectory() as place:
        answer = Path(place) / "scores.npy"
        seconds = party()
        if not seconds:
            raise RuntimeError("a party failed")
        return max(seconds), np.load(answer)


def main():
    parser = arguments(__doc__, BATCHES)
    parser.add_argument("--parties", type=int, default=2)
    args = parser.parse_args()
    federation = Federation(args.run)
    sizes = args.batch or BATCHES[federation.kind()]
    test = lambda size: timed(federation, federation.batch(size), args.parties, args.repeat)
    batch, seconds, found, tried = best_batch(sizes, test)
    expected = scores(federation, federation.batch(batch))
    peer = f"CrypTen, {args.parties} parties"
    report(peer, federation, batch, seconds, found, expected, TRUST, us_per_sample_by_batch=tried)


if __name__ == "__main__":
    main()
