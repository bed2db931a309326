"""The campaign in seconds, with a fixed seed: every reader meets some damage. `make torture` has the long one."""

import pytest

from torture.fuzz import fuzz
from torture.readers import readers


@pytest.mark.slow
def test_damaged_files_are_read_or_refused_in_a_sentence():
    for reader in readers():
        found = fuzz(reader, inputs=40, seed=1)
        assert not found.crashes, f"{reader.name}: {found.crashes[0].told}"
        assert found.refused > 0
