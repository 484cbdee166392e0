"""What a drawn PNG shows."""

import io

import numpy as np
from PIL import Image


def pixels(encoded: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(encoded)) as image:
        assert image.format == "PNG"
        return np.asarray(image)
