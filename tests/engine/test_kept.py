"""Test saved states: they are restored unchanged with memory-mapped arrays, and harmful content is not loaded."""

import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from crowdshot.engine import part_files
from crowdshot.engine.part_files import keep, kept
from crowdshot.engine.workers import Processes, call
from crowdshot.errors import CrowdshotError
from crowdshot.model.dawid_skene import State
from crowdshot.model.parts import Keyed


def test_a_state_is_restored_with_mapped_arrays(tmp_path):
    counts, turned = np.arange(6.0).reshape(2, 3), np.arange(6, dtype=np.int8).reshape(2, 3).T
    state = State((counts, turned, turned[::2]), np.empty(0), np.array([-3.5]), done=False)
    keep(tmp_path / "state", state)
    found = kept(tmp_path / "state")
    assert isinstance(found, State)
    assert not found.done
    for array, expected in zip((*found.counts, *found[1:3]), (*state.counts, *state[1:3]), strict=True):
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == expected.dtype
    assert not found.counts[0].flags.owndata
    assert found.counts[0].ctypes.data % part_files.ALIGNED == 0
    keep(tmp_path / "state", State(-counts, np.empty(0), np.empty(0), done=True))
    np.testing.assert_array_equal(found.counts[0], counts)  # the earlier mapping is unchanged
    assert kept(tmp_path / "nothing") is None


def test_keyed_sums_are_restored(tmp_path):
    keep(tmp_path / "state", Keyed.total(np.array([1.0, 2.0]), np.array([2**60, 7])))
    assert [values.tolist() for values in kept(tmp_path / "state").items()] == [[7, 2**60], [2.0, 1.0]]


@pytest.mark.parametrize("damage", [b"", b"[]\n", b"7\n", b"[9, 9]\nnonsense", b"\x80\x04nonsense"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    (tmp_path / "state").write_bytes(damage)
    with pytest.raises(CrowdshotError, match=r"state is damaged \(.*\), expected the saved state"):
        kept(tmp_path / "state")


def test_a_truncated_file_is_refused(tmp_path):
    keep(tmp_path / "state", (np.arange(1000.0), "name"))
    whole = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(whole[:-100])
    with pytest.raises(CrowdshotError, match=r"is damaged"):
        kept(tmp_path / "state")


class Harm:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_harmful_content_is_not_loaded(tmp_path):
    keep(tmp_path / "state", Harm(tmp_path / "harm"))
    with pytest.raises(CrowdshotError, match=r"state is damaged \(it holds posix.mkdir\), expected"):
        kept(tmp_path / "state")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("key", [None, b"another key"])
def test_arguments_that_another_program_wrote_are_not_loaded(tmp_path, key):
    part_files.write(tmp_path / "1.arguments", Harm(tmp_path / "harm"), key)
    with pytest.raises(CrowdshotError, match="changed by another program"):
        call(len, "task", tmp_path / "1.arguments", tmp_path / "1.0", b"the key of this run")
    assert not (tmp_path / "harm").exists()


def test_signed_arguments_are_loaded(tmp_path):
    part_files.write(tmp_path / "1.arguments", (np.arange(3.0), str.upper), b"key")
    values, function = part_files.read(tmp_path / "1.arguments", b"key")
    assert (values.tolist(), function("a")) == ([0, 1, 2], "A")


def test_a_harmful_result_is_not_loaded(tmp_path, monkeypatch):
    """Workers of another machine write results into a folder that others may see."""
    monkeypatch.setattr(Processes, "_start", lambda self: ThreadPoolExecutor(1))
    monkeypatch.setattr("crowdshot.engine.workers._last_arguments", (None, None))
    workers = Processes(1, tmp_path)
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        dict(workers.each(Harm, [tmp_path / "harm"]))
    workers.close()
    assert not (tmp_path / "harm").exists()
