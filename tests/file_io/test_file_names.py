"""Test file names from any text: they stay in their folder, differ from each other, and can be written."""

import doctest
import ntpath
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot.io import file_names as module
from crowdshot.io.file_names import safe_name, safe_names

HOSTILE = [
    *("", ".", "..", "...", "/", "\\", "../../etc", "..\\..\\x", "a/b", "C:", "C:\\x", "~", "-rf", " ", "cat ", "cat."),
    *("CON", "con.txt", "nul", "LPT1", "COM¹", ".hidden", "__pycache__", "a\0b", "a\nb", "metadata.csv", "é" * 200),
    *("\ud800", "\u202ecat", "Cat", "cat", "CAT", "ﬁ", "e\u0301", "é", "x" * 5000, '?*<>|"', "猫"),
]

is_reserved = getattr(ntpath, "isreserved", lambda name: PureWindowsPath(name).is_reserved())  # Python 3.13, or older


def test_examples():
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_becomes_one_path_component(name, tmp_path):
    safe = safe_name(name)
    folder = tmp_path / safe
    folder.mkdir()
    assert folder.resolve().parent == tmp_path.resolve()
    assert [path.name for path in tmp_path.iterdir()] == [safe]
    assert PureWindowsPath(safe).parts == (safe,)
    assert not is_reserved(safe)
    assert not safe.startswith(".")
    assert safe.strip() == safe.rstrip(".") == safe


def test_all_are_different_and_stay_in_the_folder(tmp_path):
    names = safe_names(HOSTILE, taken=["metadata.csv"])
    assert len({name.casefold() for name in names} | {"metadata.csv"}) == len(HOSTILE) + 1
    for name in names:
        (tmp_path / name).write_text("")
    assert len(list(tmp_path.iterdir())) == len(HOSTILE)


@given(st.lists(st.text(), max_size=20))
def test_any_names(names):
    found = safe_names(names)
    assert len({name.casefold() for name in found}) == len(names)
    for name in found:
        assert Path(name).parts == (name,) == PureWindowsPath(name).parts
        assert len(name.encode()) < 200


def test_plain_names_are_unchanged():
    assert safe_names(["cat", "hot dog", "猫", "a-b_c.1"]) == ["cat", "hot dog", "猫", "a-b_c.1"]
