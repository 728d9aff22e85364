"""Shared code of the scripts here that run a list of checks of the command-line tool."""

import argparse
import pathlib
import sys
import tempfile

CHECKS = []


def check(function):
    """Adds a function to the checks. It is called with a tool and an empty folder."""
    CHECKS.append(function)
    return function


class Folder:
    """The tool's path, a check's folder, and a count of comparisons."""

    def __init__(self, path, folder):
        self.path, self.folder, self.count = path, folder, 0

    def __truediv__(self, name):
        return self.folder / name


def main(description, tool, what):
    """Runs every check with a `tool` (a class of `Folder`). Prints the number of comparisons."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--apron", required=True, type=pathlib.Path, help="the command-line tool")
    apron = parser.parse_args().apron.resolve()
    count, failures = 0, []
    for function in CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            judged = tool(apron, pathlib.Path(folder))
            try:
                function(judged)
            except Exception as wrong:
                failures.append(f"{function.__name__}: {wrong!r}")
            count += judged.count
    print(f"{count} comparisons of {what}, {len(failures)} failed")
    if failures or not count:
        sys.exit("\n".join(failures))
