"""The examples in the documents run as written."""

import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent


@pytest.mark.parametrize("document", [FOLDER / "README.md", FOLDER.parent / "README.md"], ids=["python", "project"])
def test_examples_of_the_documents(document):
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        if "dask" in block:
            pytest.importorskip("dask.array")
        names = {}
        exec(block, names)
        if "edges" in names:
            assert names["blurred"].shape == names["smooth"].shape == names["edges"].shape == (1080, 1920, 3)
            assert names["edges"].dtype == "float32" and names["edges"].min() < 0


def test_the_gallery(tmp_path, monkeypatch, capsys):
    image = pytest.importorskip("PIL.Image")
    assets = FOLDER.parent / "assets"
    monkeypatch.setattr(sys, "argv", ["gallery.py", str(assets / "moon.png"), str(tmp_path)])
    runpy.run_path(str(FOLDER / "examples" / "gallery.py"), run_name="__main__")
    assert "12 pictures" in capsys.readouterr().out
    sheet = image.open(tmp_path / "sheet.png")
    assert sheet.width == 1280 and len(sheet.getcolors(1 << 24)) > 100
    assert len(list(tmp_path.iterdir())) == 13


def test_the_benchmark(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--seconds", "0.001", "--side", "128"])
    runpy.run_path(str(FOLDER / "examples" / "benchmark.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| ") for line in lines) >= 30


def test_every_public_function_is_documented():
    import apron
    import apron.dask

    stubs = (Path(apron.__file__).parent / "_apron.pyi").read_text()
    for owner in (apron, apron.ndimage, apron.cv, apron.dask):
        for name in owner.__all__:
            assert len(getattr(owner, name).__doc__) > 40, name
    for owner in (apron.Filter, apron._apron.Plan, apron.DeviceArray):
        for name in (name for name in vars(owner) if not name.startswith("_")):
            assert vars(owner)[name].__doc__, name
            assert re.search(rf"def {name}\b", stubs), name
    assert apron.Plan.__doc__ == apron._apron.Plan.__doc__
    assert apron.Plan.__call__.__doc__ == apron._apron.Plan.__call__.__doc__
