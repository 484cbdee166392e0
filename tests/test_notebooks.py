"""The notebooks run from top to bottom in a fresh kernel, and are kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from fewshift.nets.bundled import bundled_kits

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_valid_and_has_no_outputs(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert len(code) > 5
    assert not any(cell.outputs or cell.execution_count for cell in code)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the kernel's machinery is not ours
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "narrow" in bundled_kits()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # tests run in parallel processes
    for place in ("TMPDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(place, str(tmp_path))
    book = nbformat.read(path, as_version=4)
    done = NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = [o for cell in done.cells if cell.cell_type == "code" for o in cell.outputs]
    assert not [o for o in told if o.get("name") == "stderr" and "Warning" in o.text]
    assert any("image/png" in o.get("data", {}) or o.get("name") == "stdout" for o in told)
