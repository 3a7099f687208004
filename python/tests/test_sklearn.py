"""Classifiers of scikit-learn."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed: its classifiers are not tested")

from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

import secsv

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 6))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("make", [LogisticRegression, SGDClassifier, lambda: MLPClassifier((6,), max_iter=40)])
def test_layers_predict_as_the_classifier_does(classes, make):
    estimator = make().fit(X, RNG.integers(0, classes, len(X)))
    model = secsv.Model.from_sklearn(estimator)
    arrays = [*estimator.coefs_, *estimator.intercepts_] if hasattr(estimator, "coefs_") else [estimator.coef_, estimator.intercept_]
    assert np.array_equal(model.predict(arrays, X.astype("f4")), estimator.predict(X.astype("f4").astype(float)))


def test_others_are_refused():
    with pytest.raises(secsv.Unsupported, match="found DecisionTreeClassifier"):
        secsv.Model.from_sklearn(DecisionTreeClassifier())
    with pytest.raises(secsv.InputError, match="not fitted"):
        secsv.Model.from_sklearn(LogisticRegression())
    with pytest.raises(secsv.InputError, match="classes 0, 1"):
        secsv.Model.from_sklearn(LogisticRegression().fit(X, np.arange(len(X)) % 2 + 1))
