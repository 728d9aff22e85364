"""Shared code of the scripts here that run a list of checks of the command-line tool."""

import argparse
import pathlib
import subprocess
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


class Tool(Folder):
    """Calls of the tool on files in the folder, on the CPU."""

    #: The exit codes of calls that fail.
    FAILURES = (1,)

    def call(self, source, target, text="identity", *options):
        (self / target).unlink(missing_ok=True)
        command = [self.path, "filter", self / source, self / target, "--filter", text, "--device", "cpu", *options]
        return subprocess.run(command, capture_output=True, text=True)

    def run(self, source, target, text="identity", *options):
        """Returns the tool's stderr."""
        done = self.call(source, target, text, *options)
        if done.returncode != 0:
            raise AssertionError(f"{source} to {target}, {text}: {done.stderr.strip()}")
        return done.stderr

    def fails(self, source, target, *options):
        """Returns the tool's stderr, one line. Nothing is written."""
        done = self.call(source, target, "identity", *options)
        self.same(done.returncode in self.FAILURES, True, f"{source} to {target}: {done.returncode}, {done.stderr}")
        self.same((self / target).exists(), False, f"{target} after a failure")
        self.same(done.stderr.count("\n"), 1, f"{target}: {done.stderr}")
        return done.stderr

    def same(self, found, expected, what):
        self.count += 1
        if found != expected:
            raise AssertionError(f"{what}: {found!r} for {expected!r}")


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
