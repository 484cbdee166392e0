"""How much the page takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Enough for a person's few images, and not much more at once."""

    file_bytes: int = 12_000_000
    upload_bytes: int = 300_000_000  # of all files that are dropped together
    pixels: int = 40_000_000  # of one image
    least_classes: int = 2
    most_classes: int = 10
    images_a_class: int = 50
    images: int = 200  # of all classes together
    test_images: int = 40  # at once
    name_length: int = 60


LIMITS = Limits()
