"""Times SPU (SEMI2K or CHEETAH) on the secure test that SecSV does: secret model, secret samples, scores revealed.

    python spu_test.py RUN [--protocol semi2k|cheetah] [--parties 2] [--batch B] [--repeat 3]

The parties are threads on in-memory links, as SPU's own simulator runs them. Keys and set-up, compilation and one warm-up
are not timed, nor is the sharing of inputs; computing from shares to shares of scores is. Activations are computed
under the protocol, so no party sees them: more than SecSV hides.
Needs: spu, numpy, safetensors.
"""

import threading
import time

import jax.numpy as jnp
import numpy as np
import spu
from spu import libspu
from spu.utils import frontend

from federation import Federation, arguments, best_batch, patches, report, scores

# Larger batches amortise rounds and, in CHEETAH, ciphertexts, up to a point: all are tried, the fastest per sample counts.
BATCHES = {
    "semi2k": {"logistic": [256, 1024, 4096], "cnn": [32, 128, 512], "gru": [64, 256], "dnn": [32, 128]},
    "cheetah": {"logistic": [256, 1024, 2048], "cnn": [8, 32, 128], "gru": [8, 32], "dnn": [8, 32]},
}

TRUST = {
    "semi2k": "all parties but one may collude; multiplication triples come from a trusted dealer (SPU's default: made "
    "from seeds that the first party holds), who must not collude with anybody",
    "cheetah": "two parties who do not collude; no dealer (triples by homomorphic encryption and oblivious transfer)",
}


def forward(federation):
    """The layers as a JAX function of samples (patches for a convolution) and the model's tensors in order."""
    layers, shapes = federation.layers, {name: t.shape for name, t in federation.weights.items()}
    names = sorted(shapes)

    def sigmoid(v):
        return 1 / (1 + jnp.exp(-v))

    def gru(x, w_ih, w_hh, b_ih, b_hh):
        hidden = jnp.zeros((x.shape[0], w_hh.shape[1]))
        # The input's part of all gates is one product.
        inputs = x @ w_ih.T + b_ih
        width = w_hh.shape[1]
        for step in range(x.shape[1]):
            i, h = inputs[:, step], hidden @ w_hh.T + b_hh
            gates = sigmoid(i[:, : 2 * width] + h[:, : 2 * width])
            r, z = gates[:, :width], gates[:, width:]
            new = jnp.tanh(i[:, 2 * width :] + r * h[:, 2 * width :])
            hidden = new + z * (hidden - new)
        return hidden

    def run(x, *tensors):
        weights = dict(zip(names, tensors))
        for layer in layers:
            kind = layer["kind"]
            if kind == "linear":
                x = x @ weights[layer["weight"]].T + weights[layer["bias"]]
            elif kind == "conv2d":
                filters = weights[layer["weight"]]
                x = x @ filters.reshape(filters.shape[0], -1).T + weights[layer["bias"]]
                x = x.transpose(0, 2, 1)
            elif kind == "gru":
                x = gru(x, *(weights[layer[k]] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
            elif kind == "flatten":
                x = x.reshape(x.shape[0], -1)
            elif kind == "square":
                x = x * x
            elif kind == "relu":
                x = jnp.maximum(x, 0)
            else:
                x = {"sigmoid": sigmoid, "tanh": jnp.tanh}[kind](x)
        return x

    return run, [federation.weights[name].astype(np.float32) for name in names]


def prepared(federation, x):
    """The owner of a sample cuts it into patches itself."""
    first = federation.layers[0]
    if first["kind"] == "conv2d":
        x = patches(x, federation.weights[first["weight"]].shape[2], first.get("stride", 1))
    return x.astype(np.float32)


class Parties:
    """One runtime for each party, kept between runs so that set-up is paid once."""

    def __init__(self, protocol, parties):
        kinds = {"semi2k": libspu.ProtocolKind.SEMI2K, "cheetah": libspu.ProtocolKind.CHEETAH}
        self.config = libspu.RuntimeConfig(protocol=kinds[protocol], field=libspu.FieldType.FM64)
        self.count = parties
        self.io = spu.Io(parties, self.config)

    def run(self, executable, inputs, repeat):
        shares = [self.io.make_shares(x, libspu.Visibility.VIS_SECRET) for x in inputs]
        desc = libspu.link.Desc()
        for rank in range(self.count):
            desc.add_party(f"party_{rank}", f"thread_{rank}")
        barrier = threading.Barrier(self.count)
        times, outputs, errors = [], [None] * self.count, []

        def party(rank):
            try:
                link = libspu.link.create_mem(desc, rank)
                runtime = spu.Runtime(link, libspu.RuntimeConfig(self.config))
                for name, share in zip(executable.input_names, shares):
                    runtime.set_var(name, share[rank])
                for _ in range(1 + repeat):
                    barrier.wait()
                    begin = time.perf_counter()
                    runtime.run(executable)
                    barrier.wait()
                    if rank == 0:
                        times.append(time.perf_counter() - begin)
                outputs[rank] = [runtime.get_var(name) for name in executable.output_names]
            except BaseException as error:  # a party that fails must not leave the others waiting
                errors.append(error)
                barrier.abort()

        threads = [threading.Thread(target=party, args=(rank,)) for rank in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return min(times[1:]), [self.io.reconstruct(list(out)) for out in zip(*outputs)]


def main():
    parser = arguments(__doc__, BATCHES)
    parser.add_argument("--protocol", choices=["semi2k", "cheetah"], default="semi2k")
    parser.add_argument("--parties", type=int, default=2)
    args = parser.parse_args()
    federation = Federation(args.run)
    function, weights = forward(federation)

    def test(batch):
        inputs = [prepared(federation, federation.batch(batch)), *weights]
        executable, _ = frontend.compile(
            frontend.Kind.JAX,
            function,
            inputs,
            {},
            [f"in{place}" for place in range(len(inputs))],
            [libspu.Visibility.VIS_SECRET] * len(inputs),
            lambda outputs: [f"out{place}" for place in range(len(outputs))],
            static_argnums=(),
            copts=libspu.CompilerOptions(),
        )
        seconds, found = Parties(args.protocol, args.parties).run(executable, inputs, args.repeat)
        return seconds, found[0]

    sizes = args.batch or BATCHES[args.protocol][federation.kind()]
    batch, seconds, found, tried = best_batch(sizes, test)
    expected = scores(federation, federation.batch(batch))
    peer = f"SPU {args.protocol.upper()}, {args.parties} parties"
    report(peer, federation, batch, seconds, found, expected, TRUST[args.protocol], us_per_sample_by_batch=tried)


if __name__ == "__main__":
    main()
