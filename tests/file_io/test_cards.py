"""Test damaged files for which libraries raise their own exceptions."""

import json

import pytest

from crowdshot import CrowdshotError
from crowdshot.io.cards import read_arrays


def test_a_dtype_unknown_to_numpy_is_refused(tmp_path):
    path = tmp_path / "inference.safetensors"
    card = json.dumps({"format": 1, "kind": "inference"})
    tensor = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}
    header = json.dumps({"weights": tensor, "__metadata__": {"crowdshot": card}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(CrowdshotError, match=r"inference\.safetensors holds numbers of an unknown type .*bfloat16"):
        read_arrays(path, "inference")
