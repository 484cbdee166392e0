"""Records and folders of small pictures for the data commands."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from fewshift.data.records_write import write_domain
from fewshift.data.spec import flat_spec


def picture(number: int, size: int = 8) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def records(root: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        spec = flat_spec(name, ("a", "b", "c", "d"), (3, 4, 2, 3), {"train": 2, "valid": 1, "test": 1})
        counts = spec.images_per_class
        write_domain(
            root / name,
            spec,
            lambda c, n=number, k=counts: [picture(1000 * n + 10 * c + i) for i in range(k[c])],
        )
    return root


def photos(root: Path, classes: int = 10, images: int = 3) -> Path:
    for c in range(classes):
        (root / f"kind {c}").mkdir(parents=True)
        for i in range(images):
            (root / f"kind {c}" / f"{i}.png").write_bytes(picture(100 * c + i))
    return root
