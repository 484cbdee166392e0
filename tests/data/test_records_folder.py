"""Folders of records as domains: their names, roles and order."""

import shutil
from pathlib import Path

import pytest
from small_records import small_domain

from fewshift.data.domain import Provenance
from fewshift.data.index_cache import INDEX_FILE
from fewshift.data.records_folder import open_domain, open_records
from fewshift.data.suite_file import SuiteEntry, write_suite
from fewshift.errors import DataError

pytestmark = pytest.mark.usefixtures("own_cache")


def test_official_names_have_official_roles_in_the_canonical_order(tmp_path: Path) -> None:
    for name in ("mnist", "zebras", "fungi", "ilsvrc_2012", "apples", "traffic_sign"):
        small_domain(tmp_path, name=name)
    found = open_records(tmp_path, prepare=False)
    assert [(domain.name, domain.role) for domain in found] == [
        ("ilsvrc_2012", "seen"),
        ("fungi", "seen"),
        ("traffic_sign", "unseen"),
        ("mnist", "unseen"),
        ("apples", "unseen"),
        ("zebras", "unseen"),
    ]
    assert [domain.name for domain in open_records(tmp_path, ["zebras", "fungi"])] == ["fungi", "zebras"]
    with pytest.raises(DataError, match="it has no domain 'lions', only apples, fungi"):
        open_records(tmp_path, ["lions"])


def test_preparing_can_wait(tmp_path: Path) -> None:
    folder, _ = small_domain(tmp_path)
    domain = open_domain(folder, prepare=False)
    assert not (folder / INDEX_FILE).exists()
    domain.source.read([(0, 0)])
    assert (folder / INDEX_FILE).exists()


def test_a_domain_is_the_same_from_inside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = small_domain(tmp_path)
    write_suite(tmp_path, {"small": SuiteEntry("seen", Provenance("somewhere"))})
    monkeypatch.chdir(folder)
    for domain in (open_domain(Path(".")), *open_records(Path("."))):
        assert (domain.role, domain.provenance.origin) == ("seen", "somewhere")


def test_folders_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such folder"):
        open_records(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"neither it nor a folder in it holds a dataset_spec\.json"):
        open_records(tmp_path)


def test_two_folders_of_one_name(tmp_path: Path) -> None:
    small_domain(tmp_path)
    shutil.copytree(tmp_path / "small", tmp_path / "twin")
    with pytest.raises(DataError, match="is named 'small' too: rename one"):
        open_records(tmp_path)


@pytest.mark.data
def test_md_mini_is_read_whole(md_mini: Path) -> None:
    domains = open_records(md_mini)
    assert len(domains) == 16
    assert [domain.role for domain in domains].count("seen") == 8
    assert [domain.role for domain in domains].count("valid_unseen") == 3
    assert all(domain.provenance.licence != "not stated" for domain in domains)
    for domain in domains:
        last = domain.spec.classes - 1
        places = [(0, 0), (last, domain.spec.images_per_class[last] - 1)]
        for pixels in domain.source.read(places):
            assert pixels.ndim == 3
            assert pixels.shape[2] in (1, 3)
