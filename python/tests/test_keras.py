"""Models of Keras 3, with PyTorch below it."""

import os

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: models of Keras are not tested")
os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="Keras is not installed: its models are not tested")

from keras import layers

import secsv


def functional():
    start = keras.Input((9, 9, 2))
    x = layers.Conv2D(4, 3, padding="same")(start)
    y = layers.ReLU()(layers.BatchNormalization()(x))
    z = layers.Add()([x, layers.Conv2D(4, 1)(y)])
    both = layers.Concatenate()([z, layers.DepthwiseConv2D(3, padding="same")(y)])
    return keras.Model(start, layers.Dense(3)(layers.GlobalAveragePooling2D()(layers.MaxPooling2D(2)(both))))


MODELS = {
    "blitz": lambda: keras.Sequential([keras.Input((28, 28, 1)), layers.Conv2D(6, 5, activation="relu"), layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.5), layers.Dense(10, activation="softmax")]),
    "square dense": lambda: keras.Sequential([keras.Input((8,)), layers.Dense(8, activation="tanh"), layers.LayerNormalization(), layers.Dense(8, activation="elu"), layers.LeakyReLU(), layers.Dense(1, activation="sigmoid")]),
    "functional": functional,
    "texts": lambda: keras.Sequential([keras.Input((7,), dtype="int32"), layers.Embedding(30, 5), layers.LSTM(6, return_sequences=True), layers.LSTM(4), layers.Dense(3)]),
}


@pytest.mark.parametrize("name", MODELS)
def test_layers_have_the_scores_of_the_model(name):
    model = MODELS[name]()
    found = secsv.Model.from_keras(model)
    rng = np.random.default_rng(1)
    x = rng.integers(0, 30, (20, 7)) if name == "texts" else rng.normal(size=(20, *found.input)).astype("f4")
    expected = keras.ops.convert_to_numpy(model(x, training=False))
    assert np.abs(found.scores(model.get_weights(), x) - expected).max() < 1e-4
    assert found.layout == "keras"


@pytest.mark.parametrize(
    ("said", "layer"),
    [("Conv1D (", lambda: layers.Conv1D(3, 3)), ("strides [2, 1]", lambda: layers.Conv2D(3, 3, strides=(2, 1))), ("another stride than 1", lambda: layers.Conv2D(3, 4, padding="same")), ("activation gelu", lambda: layers.Conv2D(3, 3, activation="gelu"))],
)
def test_what_has_no_layer_is_refused_by_name(said, layer):
    start = (9, 3) if said.startswith("Conv1D") else (9, 9, 3)
    model = keras.Sequential([keras.Input(start), layer(), layers.Flatten(), layers.Dense(2)])
    with pytest.raises(secsv.Unsupported) as caught:
        secsv.Model.from_keras(model)
    assert said in str(caught.value)
