"""The notebook runs from its first cell to its last, and what it shows last in a cell shows itself."""

import ast
import json
from pathlib import Path

import secsv

NOTEBOOK = Path(__file__).parents[2] / "examples" / "python" / "contributions.ipynb"


def test_the_notebook_runs_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names, shown = {}, []
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [], "outputs are not kept: they would grow old"
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, NOTEBOOK.name, "exec"), names)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names))
    kinds = [type(value) for value in shown if hasattr(value, "_repr_html_")]
    assert kinds == [secsv.Plan, secsv.Result, secsv.Comparison]
    for value in shown:
        if hasattr(value, "_repr_html_"):
            assert "<table" in value._repr_html_()
