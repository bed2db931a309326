"""Load a network from an ONNX file. Its inputs are pixels (n, 3, H, W), numbers (n, D), or tokens of texts.

Further facts are read from files in the same folder, as in Hugging Face's exports: ``preprocessor_config.json`` with
the mean and standard deviation of pixels (default: ImageNet's), and ``tokenizer.json`` for texts.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.encoders.encoder import Input
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput
from crowdshot.encoders.outside import Loaded, checksum
from crowdshot.encoders.text_input import TextInput
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown
from crowdshot.io.limited_process import LimitedProcess

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 224  # pixels, if the network accepts any size
LONGEST = 512  # tokens
# for which a network may load, or compute; large ones take 1 second an item on a CPU
SECONDS, SECONDS_PER_ITEM = 60, 10
MEMORY = 2**33  # bytes for a network without weights
MEMORY_TIMES = 5  # the size of its files, which are packed for the processor


class OnnxNetwork:
    """A network in a process of its own, because it may compute without end or end its process.

    ``inputs`` are (name, shape); ``device`` is that of torch.
    """

    def __init__(self, file: Path, device: str) -> None:
        self.file = file
        self.lock = threading.Lock()
        self.facts: dict[str, Any] = {"file": str(file), "device": device, "threads": torch.get_num_threads()}
        self.start()

    def start(self) -> None:
        # a graphics card maps more addresses than it uses memory
        on_cpu = not self.facts["device"].startswith("cuda")
        memory = MEMORY + MEMORY_TIMES * _weight_bytes(self.file) if on_cpu else 0
        self.process = LimitedProcess("encoders.onnx_session:answer_in_process", shown(self.file), memory)
        weakref.finalize(self, self.process.close)
        answer, _ = self.process.ask(SECONDS, self.facts)
        self.inputs: list[tuple[str, list[Any]]] = [(name, shape) for name, shape in answer["inputs"]]

    def run(self, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return the first output for arrays of n items each."""
        items = max(len(array) for array in arrays.values())
        with self.lock:
            if self.process.process.poll() is not None:  # killed by an earlier input
                self.start()
            facts = {**self.facts, "names": list(arrays)}
            _, found = self.process.ask(SECONDS + SECONDS_PER_ITEM * items, facts, list(arrays.values()))
        if found[0].ndim == 0 or len(found[0]) != items:
            raise CrowdshotError(
                f"returns an array of shape {found[0].shape} for {items} items",
                where=shown(self.file),
                found=found[0].shape,
                expected="a vector for each item",
            )
        return found[0]


def _weight_bytes(file: Path) -> int:
    """Return the bytes of the network and of files in its folder that may hold its weights."""
    beside = (path for path in file.parent.iterdir() if "onnx" in path.name or path.suffix in (".bin", ".data"))
    return sum(path.stat().st_size for path in beside if path.is_file())


def load_onnx(name: str, revision: str | None, device: str) -> Loaded:
    if find_spec("onnxruntime") is None:
        raise ImportError("No module named 'onnxruntime'")
    file = Path(name)
    if not file.is_file():
        raise CrowdshotError("does not exist", where=shown(file), expected="an ONNX file")
    content = file.read_bytes()
    network = OnnxNetwork(file, device)
    names = [name for name, _ in network.inputs]
    if "input_ids" in names:
        return Loaded(_reader(network, names, file), TextInput(), None, checksum([("", content)]))
    if len(names) != 1:
        raise CrowdshotError(
            f"has the inputs {', '.join(names)}",
            where=shown(file),
            found=names,
            expected="one input, or input_ids of texts",
        )

    def run(x: Tensor) -> Tensor:
        return _vectors(network.run({names[0]: x.cpu().numpy()}))

    expected = _input(network.inputs[0][1], file)
    if (blank := expected.blank()) is not None:
        run(blank)  # finds a network that computes without end before it gets a batch
    return Loaded(run, expected, None, checksum([("", content)]))


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


def _reader(network: OnnxNetwork, names: list[str], file: Path) -> Any:
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
            rows.append(network.run({name: every[name] for name in names}))
        means = [row.mean(1) if row.ndim == 3 else row for row in rows]
        return torch.nn.functional.normalize(torch.from_numpy(np.concatenate(means)), dim=1)

    return read


def _vectors(out: NDArray[Any]) -> Tensor:
    """Average feature maps (n, C, h, w) over positions; return anything else unchanged."""
    found = torch.from_numpy(out)
    return found.mean((2, 3)) if found.ndim == 4 else found
