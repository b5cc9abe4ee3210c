"""Raw text and images to vectors, as scikit-learn transformers, with a cache on disk."""

from polyshot.encoders.base import Encoder
from polyshot.encoders.cache import VectorCache
from polyshot.encoders.registry import ENCODERS, find_encoder
from polyshot.encoders.transformers import Encoded, ImageEncoder, TextEncoder

__all__ = ["ENCODERS", "Encoded", "Encoder", "ImageEncoder", "TextEncoder", "VectorCache", "find_encoder"]
