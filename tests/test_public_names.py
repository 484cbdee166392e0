"""The public names are there, cost nothing until used, and their examples run."""

import doctest
import importlib
import pkgutil
import subprocess
import sys

import fewshift


def test_every_public_name_can_be_had() -> None:
    for name in fewshift.__all__:
        assert getattr(fewshift, name) is not None
    assert set(dir(fewshift)) == {*fewshift.__all__, "__version__"}


def test_importing_fewshift_and_its_command_line_does_not_import_torch() -> None:
    code = "import sys, fewshift, fewshift.cli; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_examples_in_docstrings_run() -> None:
    ran = 0
    for module in pkgutil.walk_packages(fewshift.__path__, "fewshift."):
        if not module.name.startswith(("fewshift.__main__", "fewshift.benchmarks")) and not (
            module.name.endswith("_triton")  # imported only where a GPU has brought Triton
        ):
            results = doctest.testmod(importlib.import_module(module.name))
            assert results.failed == 0, module.name
            ran += results.attempted
    ran += doctest.testmod(fewshift).attempted
    assert ran > 5
