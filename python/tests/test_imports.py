"""Imports within the package form no circle, and load no optional package before it is needed."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import apron


def siblings(path):
    """The modules of the package that a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from [node.module] if node.module else (alias.name for alias in node.names)


def test_imports_form_no_circle():
    files = Path(apron.__file__).parent.glob("*.py")
    # `prepare` raises an error that names the circle.
    TopologicalSorter({path.stem: set(siblings(path)) for path in files}).prepare()


def test_optional_packages_are_imported_when_needed():
    code = "import sys, apron; print({'cupy', 'dask', 'scipy', 'torch'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == "set()\n"
