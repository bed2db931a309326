"""Load a network from an ONNX file. Its inputs are pixels (n, 3, H, W), numbers (n, D), or tokens of texts.

Further facts are read from files in the same folder, as in Hugging Face's exports: ``preprocessor_config.json`` with
the mean and standard deviation of pixels (default: ImageNet's), and ``tokenizer.json`` for texts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crowdshot.encoders.encoder import Input
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput
from crowdshot.encoders.outside import Loaded, checksum
from crowdshot.encoders.text_input import TextInput
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 224  # pixels, if the network accepts any size
LONGEST = 512  # tokens


def load_onnx(name: str, revision: str | None, device: str) -> Loaded:
    import onnxruntime  # an extra

    file = Path(name)
    if not file.is_file():
        raise CrowdshotError("does not exist", where=shown(file), expected="an ONNX file")
    content = file.read_bytes()
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, torch.get_num_threads()
    wanted = ["CUDAExecutionProvider"] if device.startswith("cuda") else []
    providers = [one for one in (*wanted, "CPUExecutionProvider") if one in onnxruntime.get_available_providers()]
    # by name instead of content, because weights may be in further files of the folder
    session = onnxruntime.InferenceSession(str(file), options, providers=providers)
    inputs = session.get_inputs()
    names = [one.name for one in inputs]
    if "input_ids" in names:
        return Loaded(_reader(session, names, file), TextInput(), None, checksum([("", content)]))
    if len(inputs) != 1:
        raise CrowdshotError(
            f"has the inputs {', '.join(names)}",
            where=shown(file),
            found=names,
            expected="one input, or input_ids of texts",
        )

    def run(x: Tensor) -> Tensor:
        return _vectors(session.run(None, {names[0]: x.cpu().numpy()})[0])

    return Loaded(run, _input(inputs[0].shape, file), None, checksum([("", content)]))


def _input(shape: list[Any], file: Path) -> Input:
    if len(shape) == 2:
        return FeatureInput(shape[1] if isinstance(shape[1], int) else None)
    if len(shape) != 4 or shape[1] not in (1, 3):
        raise CrowdshotError(
            f"has an input of shape {tuple(shape)}",
            where=shown(file),
            found=tuple(shape),
            expected="pixels (n, 3, H, W), vectors (n, D) or tokens",
        )
    size = tuple(side if isinstance(side, int) else SIDE for side in shape[2:])
    config = file.with_name("preprocessor_config.json")
    settings = json.loads(config.read_text("utf-8")) if config.is_file() else {}
    mean, std = settings.get("image_mean", IMAGENET_MEAN), settings.get("image_std", IMAGENET_STD)
    return ImageInput((size[0], size[1]), shape[1], mean=tuple(mean[: shape[1]]), std=tuple(std[: shape[1]]))


def _reader(session: Any, names: list[str], file: Path) -> Any:
    from tokenizers import Tokenizer  # comes with the extra

    beside = file.with_name("tokenizer.json")
    if not beside.is_file():
        raise CrowdshotError(
            "needs tokens", where=shown(file), expected="its tokenizer.json in the same folder", found=str(beside)
        )
    tokenizer = Tokenizer.from_file(str(beside))
    tokenizer.no_padding()
    tokenizer.enable_truncation(min(LONGEST, (tokenizer.truncation or {}).get("max_length", LONGEST)))

    def read(texts: list[str]) -> Tensor:
        rows = []
        for encoding in tokenizer.encode_batch(
            texts
        ):  # one by one: without padding, results do not depend on the batch
            ids = np.array([encoding.ids])
            every = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            rows.append(session.run(None, {name: every[name] for name in names})[0])
        means = [row.mean(1) if row.ndim == 3 else row for row in rows]
        return torch.nn.functional.normalize(torch.from_numpy(np.concatenate(means)), dim=1)

    return read


def _vectors(out: Any) -> Tensor:
    """Average feature maps (n, C, h, w) over positions; return anything else unchanged."""
    found = torch.from_numpy(np.asarray(out))
    return found.mean((2, 3)) if found.ndim == 4 else found
