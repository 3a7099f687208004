"""Times the SecSV paper's secure test with TenSEAL: an encrypted model times shares of samples, layer by layer.

    python tenseal_test.py RUN [--repeat 3]

As the paper's experiments do it: CKKS with 2048 slots, 108 bits of modulus and scale 2^23; Matrix Reducing, that is d_in
products of a d_out x m block, each with a rescale; two servers with a share each; a client decrypts every layer, applies the
activation in the clear and shares the result again. Encryption of the model is timed apart (it serves all batches). The time
of both servers is counted, since every party of ours is counted too; `one_server_us` leaves the second one out, as the
paper's totals do. One thread.
Needs: tenseal, numpy, safetensors.
"""

import time

import numpy as np
import tenseal as ts

from federation import Federation, arguments, fastest, patches, report, scores

SLOTS = 2048
# The batch sizes of the paper's experiments.
BATCHES = {"bank logistic": 1024, "agnews logistic": 512, "logistic": 512, "cnn": 32, "gru": 64, "dnn": 16}

TRUST = (
    "two servers who do not collude, and no client that colludes with a server (clients share one key); the client "
    "that decrypts a layer sees its activations, as in SecSV"
)


def make_context():
    context = ts.context(ts.SCHEME_TYPE.CKKS, poly_modulus_degree=4096, coeff_mod_bit_sizes=[31, 23, 23, 31], n_threads=1)
    context.global_scale = 2.0**23
    return context


class Reducing:
    """An encrypted d_out x d_in matrix for batches of m columns, d_out * m slots at a time."""

    def __init__(self, context, matrix, bias, columns):
        self.rows, self.inner = matrix.shape
        self.columns = min(columns, SLOTS // self.rows)
        self.bias = bias
        # Ciphertext o holds column o of the matrix, repeated for every sample.
        self.ciphertexts = [
            ts.ckks_vector(context, np.repeat(matrix[:, o], self.columns).tolist()) for o in range(self.inner)
        ]

    def times_share(self, share):
        """One server's product with its share, d_in x m."""
        total = None
        for ciphertext, row in zip(self.ciphertexts, share):
            term = ciphertext * np.tile(row, self.rows).tolist()
            total = term if total is None else total + term
        return total

    def __call__(self, samples, clock):
        """[m, d_in] -> [m, d_out] in the clear, as the decrypting client sees it."""
        parts = []
        for start in range(0, len(samples), self.columns):
            part = samples[start : start + self.columns]
            padded = np.zeros((self.columns, self.inner))
            padded[: len(part)] = part
            begin = time.perf_counter()
            first = np.random.default_rng().uniform(-1, 1, padded.shape)
            shares = (first.T, (padded - first).T)
            clock["share"] += time.perf_counter() - begin
            begin = time.perf_counter()
            second_server = self.times_share(shares[1])
            clock["second server"] += time.perf_counter() - begin
            result = self.times_share(shares[0]) + second_server
            begin = time.perf_counter()
            clear = np.array(result.decrypt()).reshape(self.rows, self.columns)
            clock["decrypt"] += time.perf_counter() - begin
            parts.append(clear.T[: len(part)] + self.bias)
        return np.concatenate(parts)


def encrypted_model(context, federation, batch):
    """The linear maps by name; a gate of a GRU is a matrix of its own, as in the paper's code."""
    weights, maps = federation.weights, {}
    for layer in federation.layers:
        if layer["kind"] == "linear":
            maps[layer["weight"]] = Reducing(context, weights[layer["weight"]], weights[layer["bias"]], batch)
        elif layer["kind"] == "conv2d":
            filters = weights[layer["weight"]]
            maps[layer["weight"]] = Reducing(context, filters.reshape(len(filters), -1), weights[layer["bias"]], SLOTS)
        elif layer["kind"] == "gru":
            for matrix, bias in (("weight_ih", "bias_ih"), ("weight_hh", "bias_hh")):
                gates = zip(np.split(weights[layer[matrix]], 3), np.split(weights[layer[bias]], 3))
                maps[layer[matrix]] = [Reducing(context, w, b, batch) for w, b in gates]
    return maps


def secure_test(federation, maps, x, clock):
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    for layer in federation.layers:
        kind = layer["kind"]
        if kind == "linear":
            x = maps[layer["weight"]](x, clock)
        elif kind == "conv2d":
            filters = federation.weights[layer["weight"]]
            columns = patches(x, filters.shape[2], layer.get("stride", 1))
            samples, positions, width = columns.shape
            found = maps[layer["weight"]](columns.reshape(-1, width), clock)
            x = found.reshape(samples, positions, -1).transpose(0, 2, 1)
        elif kind == "gru":
            hidden = np.zeros((len(x), federation.weights[layer["weight_hh"]].shape[1]))
            for step in range(x.shape[1]):
                ri, zi, ni = (gate(x[:, step], clock) for gate in maps[layer["weight_ih"]])
                # The first hidden state is zero and known to be: nothing to multiply (TenSEAL refuses to, too).
                hidden_gates = maps[layer["weight_hh"]]
                rh, zh, nh = (gate(hidden, clock) if step else gate.bias for gate in hidden_gates)
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


def main():
    args = arguments(__doc__, BATCHES).parse_args()
    federation = Federation(args.run)
    batch = args.batch[0] if args.batch else BATCHES.get(federation.name) or BATCHES[federation.kind()]
    samples = federation.batch(batch)
    context = make_context()
    begin = time.perf_counter()
    maps = encrypted_model(context, federation, batch)
    encryption = time.perf_counter() - begin
    clock = dict.fromkeys(("share", "second server", "decrypt"), 0.0)
    found = secure_test(federation, maps, samples, clock)
    runs = []

    def once():
        own = dict.fromkeys(clock, 0.0)
        begin = time.perf_counter()
        secure_test(federation, maps, samples, own)
        runs.append((time.perf_counter() - begin, own["second server"]))

    seconds = fastest(once, args.repeat)
    one_server = min(total - second for total, second in runs)
    report(
        "TenSEAL, the paper's SecSV",
        federation,
        batch,
        seconds,
        found,
        scores(federation, samples),
        TRUST,
        one_server_us=one_server / batch * 1e6,
        model_encryption_s=encryption,
    )


if __name__ == "__main__":
    main()
