"""Run an ONNX network; called in a process with limits (`onnx_models`), which does not need torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown

OUT_OF_MEMORY = ("bad_alloc", "Failed to allocate memory", "bad allocation")


def answer_in_process(facts: dict[str, Any], arrays: Sequence[NDArray[Any]]) -> tuple[dict[str, Any], list[Any]]:
    """Return the inputs of the network, or its first output for ``arrays``; raise MemoryError if memory is short."""
    try:
        return _answered(facts, arrays)
    except Exception as error:
        if any(words in str(error) for words in OUT_OF_MEMORY):  # onnxruntime has no class of error for it
            raise MemoryError from None
        raise


def _answered(facts: dict[str, Any], arrays: Sequence[NDArray[Any]]) -> tuple[dict[str, Any], list[Any]]:
    session = session_of(facts["file"], facts["device"], facts["threads"])
    if "names" not in facts:
        return {"inputs": [(one.name, list(one.shape)) for one in session.get_inputs()]}, []
    wanted = session.get_outputs()[0].name
    out = np.asarray(session.run([wanted], dict(zip(facts["names"], arrays, strict=True)))[0])
    if out.dtype.kind not in "biuf":
        raise CrowdshotError(f"returns {out.dtype}", where=shown(facts["file"]), expected="numbers")
    return {}, [out]


@cache
def session_of(file: str, device: str, threads: int) -> Any:
    import onnxruntime  # an extra

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    wanted = ["CUDAExecutionProvider"] if device.startswith("cuda") else []
    providers = [one for one in (*wanted, "CPUExecutionProvider") if one in onnxruntime.get_available_providers()]
    # by name instead of content, because weights may be in further files of the folder
    return onnxruntime.InferenceSession(file, options, providers=providers)
