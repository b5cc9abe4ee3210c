"""A contact sheet: one episode as a picture, to see what a method is given."""

from pathlib import Path

import torch
from PIL import Image, ImageDraw

from polyshot.data.episodes import EpisodeSampler
from polyshot.errors import InputError
from polyshot.system.files import replacing

_GAP, _NAME_WIDTH = 6, 270


def draw_sheet(sampler: EpisodeSampler, k: int, path: Path) -> None:
    """Write episode k as a PNG: one row per class, with its name, its support images, then its queries.

    Pixels are shown as the transform gives them. The range of the whole episode is stretched to black and white.
    """
    classes, (support, query, n_way) = sampler.indices(k).classes.tolist(), sampler[k]
    if support.x.ndim != 4:
        raise InputError(f"{sampler.class_set.name}: only images can be drawn, not embeddings")
    low, high = (float(f(torch.cat([support.x, query.x]))) for f in (torch.min, torch.max))
    side = support.x.shape[-1] * (2 if support.x.shape[-1] < 64 else 1)
    cell = side + _GAP
    queries = query.x.reshape(len(classes), -1, *query.x.shape[1:])
    rows = [(support.x[support.y == c], queries[c]) for c in range(len(classes))]
    query_left = _NAME_WIDTH + cell * max(len(shots) for shots, _ in rows) + 3 * _GAP
    sheet = Image.new("RGB", (query_left + cell * queries.shape[1], cell * len(rows) + _GAP), "slategray")
    pen = ImageDraw.Draw(sheet)
    for row, (c, images) in enumerate(zip(classes, rows, strict=True)):
        top = _GAP + row * cell
        label = row if row < n_way else "outside"
        pen.text((_GAP, top), f"{label}: {sampler.class_set.class_names[c]}"[:44], fill="white")
        for left, tiles in zip((_NAME_WIDTH, query_left), images, strict=True):
            for i, tile in enumerate(tiles):
                pixels = ((tile - low) / max(high - low, 1e-12) * 255).round().to(torch.uint8).expand(3, -1, -1)
                picture = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
                sheet.paste(picture.resize((side, side), Image.Resampling.NEAREST), (left + i * cell, top))
    with replacing(path) as file:
        sheet.save(file, "PNG")
