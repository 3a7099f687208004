"""Values are those of the definition, under every protocol, and results are what people make of them."""

import json
import pickle

import numpy as np
import pytest

import secsv
from conftest import SILOS, Federation


@pytest.mark.parametrize("protocol", ["nssv", "blindsv", "secretsv"])
def test_values_are_those_of_the_definition(federation, run, protocol):
    result = secsv.evaluate(run, protocol=protocol)
    assert {(one.round, one.coalition): one.correct for one in result.utilities} == federation.counts()
    assert result.silos == SILOS
    for silo, value in federation.values().items():
        assert result.values[silo] == pytest.approx(value, abs=1e-12)
    assert (result.protocol, result.estimator) == (protocol, "exact")
    assert bool(result.disclosures) == (protocol != "nssv")


def test_progress_is_told_on_the_callers_thread(run):
    import threading

    seen = []
    secsv.evaluate(run, protocol="nssv", progress=lambda now: seen.append((threading.get_ident(), now)))
    last = seen[-1][1]
    assert last.tested == last.asked == 23 and last.round == 2
    assert {thread for thread, _ in seen} == {threading.get_ident()}


def test_an_exception_of_the_watcher_ends_it(run):
    class Enough(Exception):
        pass

    def watch(now):
        raise Enough

    with pytest.raises(Enough):
        secsv.evaluate(run, protocol="nssv", progress=watch)


def test_arguments_are_checked_as_on_the_command_line(run):
    with pytest.raises(secsv.InputError) as caught:
        secsv.evaluate(run, protocol="magic")
    assert (caught.value.field, caught.value.found) == ("protocol", "magic") and "blindsv" in caught.value.expected
    with pytest.raises(secsv.InputError) as caught:
        secsv.evaluate(run, protocol="nssv", max_error=0.1)
    assert caught.value.field == "max_error" and "samples" in caught.value.expected
    with pytest.raises(secsv.InputError) as caught:
        secsv.evaluate("nowhere")
    assert caught.value.file.endswith("federation.toml")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.file) == (str(caught.value), caught.value.file)


def test_sampled_values_have_standard_errors(run):
    result = secsv.evaluate(run, protocol="nssv", estimator="permutation", samples=8, seed=3)
    assert set(result.stderr) == set(SILOS) and all(error >= 0 for error in result.stderr.values())
    assert result.document["seed"] == 3


def test_a_budget_is_divided_to_the_last_part(result):
    shares = result.shares(1000.0, floor=50.0)
    assert sum(shares.values()) == pytest.approx(1000.0) and min(shares.values()) >= 50.0
    gains = {silo: max(value, 0) for silo, value in result.values.items()}
    for silo in SILOS:
        assert shares[silo] == pytest.approx(50 + 800 * gains[silo] / sum(gains.values()))
    with pytest.raises(secsv.InputError):
        result.shares(100.0, floor=30.0)


def test_without_a_silo_is_the_game_of_the_others(federation, result):
    others = result.without("south")
    assert others.silos == ["north", "east", "west"]
    game = Federation()
    counts = game.counts()
    for models in game.local.values():
        models.pop("south")
    for silo in others.silos:
        expected = sum(game.value(counts, number, silo) for number in game.local) / 36
        assert others.values[silo] == pytest.approx(expected, abs=1e-12)
    assert any("without south" in note for note in others.notes)
    with pytest.raises(secsv.InputError, match="nobody"):
        result.without("nobody")


def test_a_result_is_kept_and_shown(result, tmp_path):
    path = tmp_path / "result.json"
    result.save(path)
    again = secsv.Result.load(path)
    assert again.values == result.values and again.utilities == result.utilities
    result.report(tmp_path / "report.html", title="A <title>")
    text = (tmp_path / "report.html").read_text()
    assert "A &lt;title&gt;" in text and "north" in text
    assert "north" in result._repr_html_() and "north" in repr(result)
    with pytest.raises(secsv.InputError, match="expected this file"):
        secsv.Result.load(tmp_path / "none.json")
    with pytest.raises(secsv.InputError, match="a result of secsv"):
        secsv.Result("{}")
    assert sum(result.rounds[number]["north"] for number in result.rounds) == pytest.approx(result["north"])


def test_tables_of_many_utilities_are_read(result):
    document = json.loads(result.to_json())
    rows = document["utilities"]
    names = sorted(SILOS)
    bits = lambda coalition: format(sum(1 << names.index(name) for name in coalition), "x")
    document["utilities"] = {
        "members": names,
        "total": 36,
        "round": [row["round"] for row in rows],
        "coalition": [bits(row["coalition"]) for row in rows],
        "correct": [row["correct"] for row in rows],
    }
    assert secsv.Result(document).utilities == result.utilities


def test_plans_and_comparisons(run):
    both = secsv.compare(run, ["nssv", "blindsv"])
    assert both["nssv"].values == both["blindsv"].values
    assert both.table()["north"] == {"nssv": both["nssv"]["north"], "blindsv": both["blindsv"]["north"]}
    assert "north" in both._repr_html_()


def test_a_plan_says_what_it_costs_and_discloses(run):
    plan = secsv.plan(run, protocol="blindsv")
    assert plan.tests == 23 and plan.bytes_sent > 1000 and plan.seconds > 0
    assert plan.disclosures and "learns" in plan._repr_html_()


def test_frames_and_pictures(result):
    pandas = pytest.importorskip("pandas")
    frame = result.to_dataframe()
    assert list(frame.index) == SILOS and frame.loc["north", "value"] == result["north"]
    by_round = result.to_dataframe("round")
    assert by_round.shape == (2, 4) and np.allclose(by_round.sum(), frame["value"])
    assert isinstance(result.to_dataframe("coalition"), pandas.DataFrame)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    for kind in ("bar", "rounds", "heatmap", "waterfall"):
        assert result.plot(kind).figure is not None
