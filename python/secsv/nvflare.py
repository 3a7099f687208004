"""Recorders for NVIDIA FLARE: filters, so that neither controllers nor aggregators are replaced.

``add_contribution(recipe, ...)`` adds them to a job; a site that does not leave it to jobs has ``SiloRecorder`` in its own
``local/privacy.json``. docs/FLARE.md has the walk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._errors import SecsvError, wrong
from ._files import write_atomically
from ._model import Model
from ._run import check_id, check_weight, federation_toml
from ._silo import SiloDirectory

try:
    from nvflare.apis.dxo import DataKind, MetaKey, from_shareable
    from nvflare.apis.filter import Filter, FilterContextKey, FilterSource
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.app_constant import AppConstants
except ImportError as error:
    raise SecsvError(f"expected NVIDIA FLARE 2.9 or newer to be installed, found none: pip install secsv[nvflare] ({error})") from error

__all__ = ["DIRECTORY", "SIMULATION", "FederationRecorder", "SiloRecorder", "add_contribution", "keep_test"]

#: The variable in the environment of a site that says where it records; without it, and without a directory in the site's own
#: configuration, nothing is recorded.
DIRECTORY = "SECSV_DIR"
#: The variable that says where the sites of a simulation record, each in a directory of its name.
SIMULATION = "SECSV_SIMULATION"
#: The tasks whose models are recorded.
TASKS = ["train"]
#: The chain of what comes to a site.
INCOMING = "task_data"


def place_of(site: str, directory: str | None = None) -> SiloDirectory | None:
    """Where a site records; None where it does not."""
    directory = directory or os.environ.get(DIRECTORY)
    if directory:
        return SiloDirectory(directory, site)
    simulated = os.environ.get(SIMULATION)
    return SiloDirectory(Path(simulated) / site, site) if simulated else None


def keep_test(x: Any, y: Any, site: str | None = None) -> None:
    """Keeps a site's test samples, as the model takes them, and their classes: for the script that trains, once is enough. It does nothing
    where nothing is recorded. ``site`` is asked of FLARE's client interface if it is not said."""
    if site is None:
        import nvflare.client

        site = nvflare.client.get_site_name()
    place = place_of(str(site))
    if place is not None and not place.has_test:
        place.test(x, y)


class SiloRecorder(Filter):
    """A filter of a site, for both directions: keeps the global models that come and the site's own models that go.

    In the site's configuration ``directory`` says where. In a job it is not listened to, whoever submits it: the site says it by the
    environment variable ``SECSV_DIR``. With differential privacy it comes behind the filter that adds noise; with homomorphic encryption
    before the filter that encrypts and, for what comes, behind the one that decrypts: ciphertexts are refused.
    """

    def __init__(self, directory: str | None = None) -> None:
        super().__init__()
        # FLARE writes arguments into jobs by attributes of the same name.
        self.directory = directory

    def process(self, shareable: Shareable, fl_ctx: Any) -> Shareable:
        is_own = self.get_prop(FilterContextKey.SOURCE) == FilterSource.SITE
        place = place_of(fl_ctx.get_identity_name(), self.directory if is_own else None)
        if place is None:
            return shareable
        data = weights_of(shareable)
        if data is None:
            return shareable
        number = round_of(shareable)
        if INCOMING in str(self.get_prop(FilterContextKey.CHAIN_TYPE)):
            place.received(number, data.data)
            return shareable
        weight = data.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND)
        if data.data_kind == DataKind.WEIGHT_DIFF:
            place.sent_difference(number, data.data, weight)
        else:
            place.sent(number, data.data, weight)
        return shareable


def weights_of(shareable: Shareable) -> Any:
    """The weights in a message; None if there are none. Ciphertexts are refused."""
    try:
        data = from_shareable(shareable)
    except ValueError:
        return None
    if data.data_kind not in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF) or not data.data:
        return None
    algorithm = data.get_meta_prop(MetaKey.PROCESSED_ALGORITHM)
    if algorithm is not None:
        expected = "models as they are: the recorder comes before the filter that encrypts, and behind the one that decrypts"
        raise wrong("filters", expected, f"models processed by {algorithm}")
    return data


def round_of(shareable: Shareable) -> int:
    """The round of a message: FLARE counts from 0."""
    number = shareable.get_header(AppConstants.CURRENT_ROUND)
    if number is None:
        number = (shareable.get_cookie(AppConstants.CONTRIBUTION_ROUND) if hasattr(shareable, "get_cookie") else None) or None
    if number is None:
        raise wrong("message", "the round it is of, as FedAvg's controllers say it", "none")
    return int(number) + 1


class FederationRecorder(Filter):
    """A filter of the server: writes ``federation.toml`` with names, weights and absences, and no model.

    Models weigh as FedAvg weighs them: local steps, times what ``weights`` says of a site, as the recipe's ``aggregation_weights``.
    """

    def __init__(
        self,
        directory: str,
        model: Mapping[str, Any],
        federation: str = "FLARE",
        aggregation: str = "mean",
        weights: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        # Not called `name`, which FLARE's components have already.
        self.directory, self.federation, self.aggregation = directory, federation, aggregation
        self.model, self.weights = dict(model), dict(weights or {})
        self._counted: dict[str, dict[int, float]] = {}

    def process(self, shareable: Shareable, fl_ctx: Any) -> Shareable:
        try:
            data = from_shareable(shareable)
        except ValueError:
            return shareable
        if data.data_kind not in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF) or not data.data:
            return shareable
        peer = fl_ctx.get_peer_context()
        site = check_id(peer.get_identity_name() if peer else shareable.get_peer_prop("__identity_name__", ""))
        number = round_of(shareable)
        steps = data.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND)
        weight = (1.0 if steps is None else float(steps)) * float(self.weights.get(site, 1.0))
        self._counted.setdefault(site, {})[number] = check_weight(weight, site, number)
        rounds = max(max(of) for of in self._counted.values())
        counted = {silo: self._counted[silo] for silo in sorted(self._counted)}
        text = federation_toml(self.federation, rounds, self.aggregation, Model.of(self.model), counted)
        write_atomically(Path(self.directory) / "federation.toml", text.encode())
        return shareable


def add_contribution(
    recipe: Any,
    *,
    model: Model | Mapping[str, Any],
    directory: str | os.PathLike[str],
    name: str = "FLARE",
    aggregation: str = "mean",
    weights: Mapping[str, float] | None = None,
    site_only: bool = False,
) -> None:
    """Adds recorders to a recipe. At the server ``federation.toml`` is written to ``directory``. At sites that say by ``SECSV_DIR`` where,
    models are kept; with ``site_only`` the job adds nothing there, and sites have the filters in their own configuration. ``weights`` are
    the recipe's ``aggregation_weights``; ``aggregation`` is ``other`` where global models are no weighted means."""
    if aggregation not in ("mean", "other"):
        raise wrong("aggregation", "mean or other", aggregation)
    description = Model.of(model).description
    recorder = FederationRecorder(os.path.abspath(directory), description, name, aggregation, dict(weights or {}))
    recipe.add_server_input_filter(recorder, tasks=TASKS)
    if not site_only:
        recipe.add_client_input_filter(SiloRecorder(), tasks=TASKS)
        recipe.add_client_output_filter(SiloRecorder(), tasks=TASKS)
