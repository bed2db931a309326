"""Saved files whose damage libraries report in their own ways."""

import json

import pytest

from crowdshot import CrowdshotError
from crowdshot.io.cards import read_arrays


def test_numbers_of_a_kind_that_numpy_has_not(tmp_path):
    path = tmp_path / "inference.safetensors"
    card = json.dumps({"format": 1, "kind": "inference"})
    tensor = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}
    header = json.dumps({"weights": tensor, "__metadata__": {"crowdshot": card}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(CrowdshotError, match=r"inference\.safetensors holds numbers of an unknown type .*bfloat16"):
        read_arrays(path, "inference")
