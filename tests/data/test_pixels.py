"""The protocol rule against an independent implementation, and the practical rule against Pillow."""

import io
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fewshift.data.decoding import decode
from fewshift.data.pixels import PROTOCOL_84, PROTOCOL_84_ROUNDED, PixelRule, practical, prepare

Pixels = NDArray[np.uint8]


def reference(image: Pixels, size: int = 84) -> NDArray[np.float64]:
    """Section 5 of the protocol, pixel by pixel, in double precision."""
    height, width, _ = image.shape
    out = np.empty((size, size, 3))
    for i in range(size):
        for j in range(size):
            y, x = i * (height - 1) / (size - 1), j * (width - 1) / (size - 1)
            top, left = int(y), int(x)
            bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
            v, u = y - top, x - left
            corners = image[[top, top, bottom, bottom], [left, right, left, right]].astype(float)
            weights = np.array([(1 - v) * (1 - u), (1 - v) * u, v * (1 - u), v * u])
            out[i, j] = weights @ corners
    return 2 * (out / 255 - 0.5)


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize(
    "shape",
    [(28, 28), (105, 105), (84, 84), (1, 1), (1, 84), (2, 3), (40, 41), (333, 500), (169, 168), (84, 200)],
)
def test_protocol_rule_equals_the_independent_implementation(shape: tuple[int, int]) -> None:
    image = noise(*shape)
    got = prepare([image], PROTOCOL_84)
    assert got.shape == (1, 3, 84, 84)
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got[0].permute(1, 2, 0).numpy(), reference(image), rtol=0, atol=1e-6)


def test_protocol_rule_agrees_with_torch() -> None:
    image = noise(120, 61)
    planes = torch.from_numpy(image).permute(2, 0, 1)[None].double()
    want = torch.nn.functional.interpolate(planes, size=(84, 84), mode="bilinear", align_corners=True)
    torch.testing.assert_close(
        prepare([image], PROTOCOL_84).double(), want * (2 / 255) - 1, rtol=0, atol=1e-6
    )


def test_two_by_two_to_three_by_three_by_hand() -> None:
    image = np.array([[[0], [100]], [[200], [60]]], dtype=np.uint8)
    got = (prepare([image], PixelRule(3, "protocol"))[0, 0] + 1) * 127.5
    want = torch.tensor([[0.0, 50.0, 100.0], [100.0, 90.0, 80.0], [200.0, 130.0, 60.0]])
    torch.testing.assert_close(got, want, rtol=0, atol=1e-4)


def test_an_84_pixel_image_is_only_scaled() -> None:
    image = noise(84, 84)
    want = torch.from_numpy(image).permute(2, 0, 1).float() * (2 / 255) - 1
    assert torch.equal(prepare([image], PROTOCOL_84)[0], want)
    black_and_white = np.zeros((84, 84, 3), np.uint8)
    black_and_white[40:] = 255
    assert prepare([black_and_white], PROTOCOL_84).unique().tolist() == [-1.0, 1.0]


RULES = [
    PROTOCOL_84,
    PROTOCOL_84_ROUNDED,
    PixelRule(32, "protocol"),
    practical(40, crop=0.875),
    practical(30),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_result_never_depends_on_the_batch(rule: PixelRule) -> None:
    random = np.random.default_rng(7)
    shapes = [(28, 28, 1), (28, 28, 3), (84, 84, 3), (84, 84, 1), (50, 31, 3), (200, 300, 3), (1, 1, 3)]
    images = [noise(*shapes[k], seed=n) for n, k in enumerate(random.integers(0, len(shapes), 90))]
    alone = [prepare([image], rule)[0] for image in images]
    for _ in range(3):
        order = random.permutation(len(images))[: random.integers(1, 91)]
        batch = prepare([images[i] for i in order], rule)
        assert all(torch.equal(batch[place], alone[i]) for place, i in enumerate(order))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_grey_in_one_channel_equals_grey_in_three(rule: PixelRule) -> None:
    for shape in [(28, 28), (84, 84), (130, 90)]:
        grey = noise(*shape, channels=1)
        planar = np.ascontiguousarray(grey.repeat(3, axis=2).transpose(2, 0, 1)).transpose(1, 2, 0)
        results = [prepare([image], rule) for image in (grey, grey.repeat(3, axis=2), planar)]
        assert torch.equal(results[0], results[1])
        assert torch.equal(results[0], results[2])


def test_threads_do_not_share_scratch_memory() -> None:
    images = [[noise(20 + 9 * k, 30, seed=k)] * 40 for k in range(4)]
    want = [prepare(batch, PROTOCOL_84) for batch in images]
    right = []

    def work(k: int) -> None:
        right.extend(torch.equal(prepare(images[k], PROTOCOL_84), want[k]) for _ in range(25))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 100


def test_results_do_not_change_later() -> None:
    first = prepare([noise(30, 30)], PROTOCOL_84)
    kept = first.clone()
    prepare([noise(30, 30, seed=1)], PROTOCOL_84)
    assert torch.equal(first, kept)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 9))
def test_rounded_rule_is_within_half_a_grey_level(height: int, width: int, seed: int) -> None:
    image = noise(height, width, seed=seed)
    exact = (prepare([image], PROTOCOL_84) + 1) * 127.5
    rounded = (prepare([image], PROTOCOL_84_ROUNDED) + 1) * 127.5
    torch.testing.assert_close(rounded, rounded.round(), rtol=0, atol=1e-4)
    assert (exact - rounded).abs().max() <= 0.5 + 1e-4


def test_read_only_images_are_accepted() -> None:
    image = noise(20, 20)
    image.flags.writeable = False
    assert prepare([image], PROTOCOL_84).shape == (1, 3, 84, 84)
    assert prepare([], PROTOCOL_84).shape == (0, 3, 84, 84)


def test_practical_rule_is_pillows_antialiased_resize() -> None:
    image = noise(100, 150)
    small = np.asarray(Image.fromarray(image).resize((48, 48), Image.Resampling.BILINEAR))
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    want = (small / 255 - np.array(mean)) / np.array(std)
    got = prepare([image], practical(48, mean, std))[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_practical_crop_is_resize_then_centre_crop() -> None:
    image = np.asarray(Image.fromarray(noise(20, 30)).resize((300, 200), Image.Resampling.BICUBIC))
    whole = Image.fromarray(image).resize((384, 256), Image.Resampling.BICUBIC)
    left, top = (384 - 224) // 2, (256 - 224) // 2
    want = np.asarray(whole.crop((left, top, left + 224, top + 224))).astype(float)
    rule = practical(224, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), crop=0.875, filter="bicubic")
    got = prepare([image], rule)[0].permute(1, 2, 0).numpy() * 255
    assert np.abs(got - want).max() <= 1  # Pillow rounds once instead of twice


def test_practical_rule_takes_any_proportions() -> None:
    for shape in [(1, 1), (1, 400), (400, 1), (37, 500)]:
        assert prepare([noise(*shape)], practical(64, crop=0.9)).isfinite().all()


def test_a_crop_of_all_is_the_whole_square() -> None:
    """Not a pixel less: 55 * (224 / 55) is below 224 in floats."""
    for side in range(50, 120):
        square = [noise(side, side)]
        assert torch.equal(prepare(square, practical(224, crop=1.0)), prepare(square, practical(224)))


@pytest.mark.parametrize(
    ("size", "std", "crop", "word"), [(0, 1.0, None, "size"), (8, 0.0, None, "std"), (8, 1.0, 1.5, "crop")]
)
def test_impossible_rules_are_refused(size: int, std: float, crop: float | None, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        practical(size, (0.0, 0.0, 0.0), (std, std, std), crop=crop)


def test_rules_have_names_for_results() -> None:
    assert PROTOCOL_84.name == "protocol-84"
    assert PROTOCOL_84_ROUNDED.name == "protocol-84-rounded"
    assert practical(224, crop=0.875, filter="bicubic").name == "practical-224-crop0.875-bicubic"


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "PPM", "WEBP", "JPEG"])
def test_every_format_is_read(kind: str) -> None:
    image = np.zeros((30, 20, 3), np.uint8)
    image[:16] = (255, 0, 0)
    buffer = io.BytesIO()
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95, "subsampling": 0}}
    Image.fromarray(image).save(buffer, kind, **options.get(kind, {}))
    got = decode(buffer.getvalue(), "x")
    assert got.shape == (30, 20, 3)
    assert got.dtype == np.uint8
    assert np.abs(got.astype(int) - image).max() <= (10 if kind == "JPEG" else 0)
