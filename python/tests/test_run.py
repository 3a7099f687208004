"""Run directories are written as other programs read them, and refused where they would be."""

import json
import shutil

import numpy as np
import pytest

import secsv
from secsv import _files
from secsv._join import join
from conftest import LINEAR, SILOS


def test_what_was_written_is_read_again(federation, run):
    again = secsv.Run(run.path)
    assert (again.name, again.silos, again.rounds) == ("four silos", SILOS, 2)
    assert again.model == LINEAR
    assert again.weight("west", 1) == 0.0 and again.weight("west", 2) == federation.weights["west"]
    for name, array in federation.local[2]["east"].items():
        assert np.array_equal(again.local_model("east", 2)[name], array)
    again.check()
    (run.path / "clients" / "east" / "notes.txt").write_text("of its owner")
    again.check()


def test_a_defect_has_file_field_expected_and_found(federation, tmp_path):
    run = federation.write(tmp_path / "run")
    path = run.path / "clients" / "south" / "round-0002.safetensors"
    broken = {**federation.local[2]["south"], "w": np.full((3, 5), np.nan, "f4")}
    _files.write_tensors(path, broken)
    with pytest.raises(secsv.InputError) as caught:
        secsv.evaluate(run, protocol="nssv")
    error = caught.value
    assert (error.file, error.field) == (str(path), "w")
    assert error.expected == "finite numbers" and error.found.startswith("NaN")
    assert isinstance(error, ValueError) and str(path) in str(error)
    path.unlink()
    (run.path / "clients" / "south" / "test.safetensors").unlink()
    with pytest.raises(secsv.InputError, match="test.safetensors") as caught:
        run.check()
    assert caught.value.expected == "this file"


def test_leaving_the_block_checks(federation, tmp_path):
    with pytest.raises(secsv.InputError, match="initial.safetensors"):
        with secsv.Run.create(tmp_path / "run", name="x", model=LINEAR) as run:
            run.record(1, "a", federation.initial, 3)


@pytest.mark.parametrize("silo", ["St. Mary / Ost", "", ".hidden", "a" * 65, "../up", 7])
def test_names_of_silos_are_names_of_files(federation, tmp_path, silo):
    run = secsv.Run.create(tmp_path / "run", name="x", model=LINEAR)
    with pytest.raises(secsv.InputError, match="Run.label"):
        run.record(1, silo, federation.initial, 3)
    assert not (tmp_path / "up").exists()


def test_what_is_no_model_is_refused(federation, tmp_path):
    run = secsv.Run.create(tmp_path / "run", name="x", model=LINEAR)
    trees = {"0": np.frombuffer(b'{"learner": {}}' * 80, np.uint8)}
    with pytest.raises(secsv.InputError, match="1200 bytes of uint8: a serialised model") as caught:
        run.record(1, "a", trees, 3)
    assert caught.value.field == "0"
    for weight in (0, -1, float("nan")):
        with pytest.raises(secsv.InputError, match="a number above 0"):
            run.record(1, "a", federation.initial, weight)
    with pytest.raises(secsv.InputError, match="a row for each label"):
        run.test("a", np.zeros((3, 5)), np.zeros(4, int))
    with pytest.raises(secsv.InputError, match="absent or empty"):
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").write_text("")
        secsv.Run.create(tmp_path / "full", name="x", model=LINEAR)


def test_numbers_as_frameworks_write_them(tmp_path):
    rng = np.random.default_rng(1)
    with secsv.Run.create(tmp_path / "run", name="types", model=LINEAR) as run:
        model = lambda kind: {"w": rng.normal(size=(3, 5)).astype(kind), "b": rng.normal(size=3).astype(kind)}
        run.start_of(1, model("f8"))
        for silo, kind, weight in (("a", "f8", 9.5), ("b", "f2", 3), ("c", ">f4", 4)):
            run.record(1, silo, model(kind), weight)
        run.label("a", 'Sankt "Maria", Ost')
        run.test("a", rng.normal(size=(4, 5)), np.array([[0], [1], [2], [0]], np.int32))
        run.test("b", np.zeros((0, 5), "f4"), np.zeros(0, np.uint8))
        run.test("c", rng.normal(size=(2, 5)).astype("f2"), np.array([1.0, 2.0]))
    assert secsv.Run(tmp_path / "run").weight("a", 1) == 9.5
    result = secsv.evaluate(run, protocol="nssv")
    assert result.labels["a"] == 'Sankt "Maria", Ost'


def test_files_of_tensors_are_what_the_format_says(tmp_path):
    arrays = {"b": np.arange(6, dtype="f4").reshape(2, 3).T, "a": np.array([1, 2], ">i8"), "c": np.float64(3.5)}
    path = tmp_path / "x.safetensors"
    _files.write_tensors(path, arrays, {"note": "is kept"})
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert header["b"] == {"dtype": "F32", "shape": [3, 2], "data_offsets": [16, 40]}
    found, notes = _files.read_tensors(path)
    assert notes == {"note": "is kept"}
    for name, array in arrays.items():
        assert np.array_equal(found[name], array) and found[name].shape == np.shape(array)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.safetensors"]


def test_predictions_are_those_of_the_network(federation):
    x = federation.test["north"][0]
    expected = federation.initial["w"].astype(float) @ x.astype(float).T + federation.initial["b"].astype(float)[:, None]
    assert np.allclose(LINEAR.scores(federation.initial, x), expected.T, atol=1e-12)
    assert np.array_equal(LINEAR.predict(federation.initial, x), expected.argmax(axis=0))
    with pytest.raises(secsv.InputError, match="expected shape"):
        LINEAR.predict({**federation.initial, "b": np.zeros(4)}, x)


@pytest.mark.parametrize("header", [b"[]", b'{"w": 3}', b'{"w": {"dtype": "F32"}}', b'{"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}}', b'{"w": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}', b'{"__metadata__": 3}', b"{"])
def test_headers_of_others_end_in_refusals(tmp_path, header):
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(secsv.InputError):
        _files.read_tensors(path)
    path.write_bytes((1 << 62).to_bytes(8, "little") + header)
    with pytest.raises(secsv.InputError, match="bytes"):
        _files.read_tensors(path)


def parts(run, parent):
    """A run as its silos hold it."""
    places = []
    for silo in run.silos:
        place = parent / silo
        (place / "clients").mkdir(parents=True)
        for name in ("federation.toml", "initial.safetensors"):
            shutil.copy(run.path / name, place)
        shutil.copytree(run.path / "clients" / silo, place / "clients" / silo)
        places.append(place)
    return places


def test_silos_that_are_joined_are_the_run(run, tmp_path):
    places = parts(run, tmp_path / "silos")
    (places[0] / "clients" / "north" / "sessions.jsonl").write_text("of its owner")
    joined = join(places, tmp_path / "joined")
    assert secsv.evaluate(joined, protocol="nssv").values == secsv.evaluate(run, protocol="nssv").values
    assert not (joined.path / "clients" / "north" / "sessions.jsonl").exists()


def test_links_in_a_silos_directory_are_refused(run, tmp_path):
    """Attack: a directory that was handed over has a link to a file of whoever joins, which would be copied for all to see."""
    places = parts(run, tmp_path / "silos")
    secret = tmp_path / "secret"
    secret.write_text("a key")
    for name in ("clients/east/test.safetensors", "initial.safetensors"):
        link = places[2] / name
        kept = link.read_bytes()
        link.unlink()
        link.symlink_to(secret)
        with pytest.raises(secsv.InputError, match="a link"):
            join(places, tmp_path / f"joined-{link.stem}")
        link.unlink()
        link.write_bytes(kept)


def test_weights_that_are_no_numbers_are_refused(run, tmp_path):
    places = parts(run, tmp_path / "silos")
    path = places[1] / "clients" / "south" / "round-0001.safetensors"
    arrays, _ = _files.read_tensors(path)
    _files.write_tensors(path, arrays, {"secsv.weight": "much"})
    with pytest.raises(secsv.InputError, match="secsv.weight: expected a number, found much"):
        join(places, tmp_path / "joined")
