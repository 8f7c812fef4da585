"""EfficientNet-Lite0 as far as stride 16: feature maps of a convolutional network that was trained on ImageNet.

Tan and Le 2019 (arXiv 1905.11946), table 1, without squeeze-and-excitation and with ReLU6: the "lite" form of
tensorflow/tpu, models/official/efficientnet/lite, whose pictures are (x - 127) / 128 and whose padding is TensorFlow's
"same". Later stages see a 64 x 64 picture as 2 x 2 cells, and are left out. N pictures, F numbers of a picture's maps.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla.frozen import weights
from temporeal.robots.handed_over import files

STEM, EXPANDED, EPSILON = 32, 6, 1e-3  # channels after the stem; of a block's inside; of batch normalization


class Stage(NamedTuple):
    """A block: side of its kernel, stride, channels that come out. The first one's inside is not wider."""

    kernel: int
    stride: int
    channels: int


BLOCKS = (Stage(3, 1, 16), Stage(3, 2, 24), Stage(3, 1, 24), Stage(5, 2, 40), Stage(5, 1, 40), Stage(3, 2, 80),
          *[Stage(3, 1, 80)] * 2, *[Stage(5, 1, 112)] * 3)
TAPS = {2: 4, 4: 8, 10: 16}
"""Blocks whose results are read, and their strides."""


class Padded(nn.Conv2d):
    """A convolution with TensorFlow's "same" padding, by the size of the picture."""

    bias: Tensor

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of ceil(size / stride) cells."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        down, across = (max((-(-int(size) // stride) - 1) * stride + kernel - int(size), 0) for size in maps.shape[2:])
        even = (down // 2, across // 2)
        if down % 2 or across % 2:  # not what a convolution does itself; a step apart costs a robot time
            shape = (across // 2, across - across // 2, down // 2, down - down // 2)
            maps, even = nn.functional.pad(maps, shape), (0, 0)
        return nn.functional.conv2d(maps, self.weight, self.bias, self.stride, even, groups=self.groups)


class Block(nn.Module):
    """Wider inside, one convolution a channel there, and back: added to what came in where the shapes are equal."""

    def __init__(self, inputs: int, stage: Stage, wider: int) -> None:
        super().__init__()
        inner = wider * inputs
        self.expand = Padded(inputs, inner, 1) if wider > 1 else None
        self.depthwise = Padded(inner, inner, stage.kernel, stage.stride, groups=inner)
        self.project = Padded(inner, stage.channels, 1)
        self.adds = stage.stride == 1 and inputs == stage.channels

    def forward(self, maps: Tensor) -> Tensor:
        """The maps after the block."""
        found = maps if self.expand is None else nn.functional.relu6(self.expand(maps))
        narrow: Tensor = self.project(nn.functional.relu6(self.depthwise(found)))
        return maps + narrow if self.adds else narrow


class Lite0(nn.Module):
    """Pictures uint8 [N, H, W, 3] to their maps [N, F]: those of :data:`TAPS`, flat, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Padded(3, STEM, 3, 2)
        inputs = (STEM, *(stage.channels for stage in BLOCKS))
        self.blocks = nn.ModuleList(
            Block(before, stage, EXPANDED if i else 1) for i, (before, stage) in enumerate(zip(inputs, BLOCKS)))

    def part(self, name: str) -> Padded:
        """The convolution of that name."""
        return cast(Padded, self.get_submodule(name))

    def forward(self, picture: Tensor) -> Tensor:
        """The maps."""
        maps = nn.functional.relu6(self.stem((picture.float().permute(0, 3, 1, 2) - 127.0) / 128.0))
        found = []
        for i, block in enumerate(self.blocks):
            maps = block(maps)
            if i in TAPS:
                found.append(maps.flatten(1))
        return torch.cat(found, 1)


def shapes(rows: int, columns: int) -> list[tuple[int, int, int]]:
    """Channels, rows and columns of each of the maps of a picture."""
    return [(BLOCKS[i].channels, -(-rows // stride), -(-columns // stride)) for i, stride in TAPS.items()]


@torch.no_grad()
def mapped(net: nn.Module, pictures: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The maps [N, F] of each of the ``pictures`` uint8 [N, H, W, 3]; those of one shape are seen in one pass, which
    costs a robot less than one a camera. What is maps already stays so."""
    found, shaped = dict(pictures), dict[tuple[int, ...], list[str]]()
    for name, picture in pictures.items():
        if picture.dim() > 2:
            shaped.setdefault(tuple(int(size) for size in picture.shape[1:]), []).append(name)
    for alike in shaped.values():
        maps = net(torch.cat([pictures[name] for name in alike]))
        found |= zip(alike, maps.reshape(len(alike), -1, int(maps.shape[1])).unbind(0))
    return found


# ---- weights


def names() -> dict[str, tuple[str, str]]:
    """Of each convolution of :class:`Lite0`, its name and that of its normalization in the file."""
    found = {"stem": ("_conv_stem", "_bn0")}
    for i in range(len(BLOCKS)):
        parts = [("expand", "_expand_conv", "_bn0")] * (i > 0) + [
            ("depthwise", "_depthwise_conv", "_bn1"), ("project", "_project_conv", "_bn2")]
        found |= {f"blocks.{i}.{own}": (f"_blocks.{i}.{conv}", f"_blocks.{i}.{norm}") for own, conv, norm in parts}
    return found


def wanted(net: Lite0) -> dict[str, tuple[int, ...]]:
    """The tensors that are read of the file, by name and shape."""
    found: dict[str, tuple[int, ...]] = {}
    for own, (conv, norm) in names().items():
        shape = tuple(net.part(own).weight.shape)
        found[f"{conv}.weight"] = shape
        found |= {f"{norm}.{part}": shape[:1] for part in ("weight", "bias", "running_mean", "running_var")}
    return found


def load() -> nn.Module:
    """The network with the weights that are installed."""
    path = weights.path_of("imagenet")
    return filled(path, read(path))


def read(path: Path) -> Mapping[str, Tensor]:
    """The tensors in a file of ``torch.save``; nothing in it runs."""
    try:
        found = torch.load(io.BytesIO(files.read(path, weights.LARGEST)), map_location="cpu", weights_only=True)
    except Exception as error:  # torch's parser of foreign bytes raises any exception
        raise SettingsError(f"{path} cannot be read as weights: {error}") from error
    if not isinstance(found, Mapping):
        raise SettingsError(f"{path} holds a {type(found).__name__}, and no table of weights")
    return found


def filled(path: Path, found: Mapping[str, Tensor]) -> nn.Module:
    """The network with the weights ``found``; normalization by what was seen in training is folded into them."""
    net = Lite0()
    weights.check(path, found, wanted(net))
    with torch.no_grad():
        for own, (conv, norm) in names().items():
            scale, shift, mean, var = (found[f"{norm}.{part}"].float() for part in
                                       ("weight", "bias", "running_mean", "running_var"))
            size = scale * (var + EPSILON).rsqrt()
            part = net.part(own)
            part.weight.copy_(found[f"{conv}.weight"].float() * size[:, None, None, None])
            part.bias.copy_(shift - mean * size)
    return weights.fixed(net)


# ---- what is learned on top


class FrozenStem(nn.Module):
    """The maps mixed by learned convolutions, on the grid of stride 4: what a picture's own first convolutions are to
    the others (:class:`temporeal.policies.vla.pictures.Eye`).

    Args:
        shape: H, W, 3.
        outputs: channels.
        net: :class:`Lite0`; several eyes share it.
    """

    def __init__(self, shape: Sequence[int], outputs: int, net: nn.Module) -> None:
        super().__init__()
        rows, columns, colours = shape
        if colours != 3:
            raise SettingsError(f"algo.image_encoder=imagenet sees pictures of three colours, got {list(shape)}")
        self.net, self.shapes = net, shapes(rows, columns)
        self.mix = nn.ModuleList(nn.Conv2d(channels, outputs, 1) for channels, _, _ in self.shapes)

    def forward(self, picture: Tensor) -> Tensor:
        """Feature maps [N, outputs, H / 4, W / 4] of pictures uint8 [N, H, W, 3], or of their maps [N, F] that were
        computed before."""
        if picture.dim() > 2:
            with torch.no_grad():
                picture = self.net(picture)
        sizes, grid = [a * b * c for a, b, c in self.shapes], self.shapes[0][1:]
        found = []
        for part, size, shape, mix in zip(picture.float().split(sizes, 1), sizes, self.shapes, self.mix):
            maps = mix((size**0.5 * nn.functional.normalize(part, dim=1)).unflatten(1, shape))  # mean square 1
            found.append(nn.functional.interpolate(maps, grid, mode="nearest"))
        return nn.functional.relu(torch.stack(found).sum(0))
