"""The examples in the documents run as written."""

import importlib.util
import inspect
import re
import runpy
import sys
from pathlib import Path

import pytest

import apron

FOLDER = Path(__file__).parent.parent


@pytest.mark.parametrize("document", [FOLDER / "README.md", FOLDER.parent / "README.md"], ids=["python", "project"])
def test_examples_of_the_documents(document):
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        if "dask" in block:
            pytest.importorskip("dask.array")
        if "torch" in block and importlib.util.find_spec("torch") is None:
            continue
        names = {}
        exec(block, names)
        if "edges" in names:
            assert names["blurred"].shape == names["smooth"].shape == names["edges"].shape == (1080, 1920, 3)
            assert names["edges"].dtype == "float32" and names["edges"].min() < 0


BOOK = FOLDER.parent / "book" / "text" / "coming-from.md"
BLOCKS = re.findall(r"```python\n(.*?)```", BOOK.read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_calls_beside_those_of_other_libraries(number):
    for name in re.findall(r"^import ([\w.]+)", BLOCKS[number], re.M):
        if not name.startswith("apron"):
            pytest.importorskip(name, reason=f"{name} is not installed")
    assert BLOCKS[number].count("assert") >= 1
    exec(BLOCKS[number], {})


def test_the_page_names_every_library():
    text = "".join(BLOCKS)
    assert all(f"import {name}" in text for name in ("scipy", "cupy", "cv2", "torchvision", "torch"))


def test_the_gallery(tmp_path, monkeypatch, capsys):
    image = pytest.importorskip("PIL.Image")
    assets = FOLDER.parent / "assets"
    monkeypatch.setattr(sys, "argv", ["gallery.py", str(assets / "moon.png"), str(tmp_path)])
    runpy.run_path(str(FOLDER / "examples" / "gallery.py"), run_name="__main__")
    assert "16 pictures" in capsys.readouterr().out
    sheet = image.open(tmp_path / "sheet.png")
    assert sheet.width == 1280 and len(sheet.getcolors(1 << 24)) > 100
    assert len(list(tmp_path.iterdir())) == 17


def test_the_benchmark(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--seconds", "0.001", "--side", "128"])
    runpy.run_path(str(FOLDER / "examples" / "benchmark.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| ") for line in lines) >= 30


def test_the_volumes(monkeypatch, capsys):
    pytest.importorskip("scipy")
    monkeypatch.setattr(sys, "argv", ["volumes.py", "8", "9", "10", "--seconds", "0.001"])
    runpy.run_path(str(FOLDER / "examples" / "volumes.py"), run_name="__main__")
    assert capsys.readouterr().out.count("_filter(volume") == 2


def test_every_public_function_is_documented():
    import apron.dask

    owners = [apron, apron.ndimage, apron.cv, apron.dask]
    if importlib.util.find_spec("torch"):
        import apron.torch

        owners.append(apron.torch)
    stubs = (Path(apron.__file__).parent / "_apron.pyi").read_text()
    for owner in owners:
        for name in owner.__all__:
            assert len(getattr(owner, name).__doc__) > 40, name
    for owner in (apron.Filter, apron._apron.Plan, apron.DeviceArray):
        for name in (name for name in vars(owner) if not name.startswith("_")):
            assert vars(owner)[name].__doc__, name
            assert re.search(rf"def {name}\b", stubs), name
    assert apron.Plan.__doc__ == apron._apron.Plan.__doc__
    assert apron.Plan.__call__.__doc__ == apron._apron.Plan.__call__.__doc__


def stub_of(name):
    """A preset's lines in the stub, from its signature and the types in its documentation."""
    method, parameters = getattr(apron.Filter, name), []
    for parameter in inspect.signature(method).parameters.values():
        kind, pair, optional = re.search(rf"^{parameter.name} : (\w+)( or pair)?.*?(, optional)?$", method.__doc__, re.M).groups()
        default = "" if parameter.default is parameter.empty else f" = {parameter.default}"
        sequence = f" | Sequence[{kind}]" if pair else ""
        parameters.append(f"{parameter.name}: {kind}{sequence}{' | None' if optional else ''}{default}")
    return f"    @staticmethod\n    def {name}({', '.join(parameters)}) -> Filter: ...\n"


def test_the_stub_has_every_preset():
    """If this fails, it has written the lines anew: read them, and run the tests again."""
    stub = FOLDER / "package" / "apron" / "_apron.pyi"
    before = stub.read_text()
    methods = [name for name, found in vars(apron.Filter).items() if isinstance(found, staticmethod)]
    lines = "".join(stub_of(name) for name in methods if name not in ("from_taps", "separable"))
    after = re.sub(r"(# Presets.*\n)(    @staticmethod\n.*\n)*", lambda found: found[1] + lines, before)
    stub.write_text(after)
    assert after == before
