"""Arrays and tensors as a domain."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fewshift.data.arrays import array_domain, as_pixels
from fewshift.errors import DataError

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]


def test_integers_as_labels() -> None:
    domain = array_domain("x", IMAGES, LABELS)
    assert domain.spec.class_names == ("0", "1", "2")
    assert domain.spec.images_per_class == (4, 4, 4)
    assert np.array_equal(domain.source.read([(1, 2)])[0], IMAGES[7])


def test_names_as_labels_and_a_split() -> None:
    names = ["bee", "ant", "cow"]
    domain = array_domain(
        "x", list(IMAGES), [names[k] for k in LABELS], split={"train": ["cow"], "test": ["bee", "ant"]}
    )
    assert domain.spec.class_names == ("cow", "bee", "ant")
    assert np.array_equal(domain.source.read([(0, 1)])[0], IMAGES[5])


def test_names_of_one_number_have_one_order() -> None:
    for labels in (["1", "01"] * 2, ["01", "1"] * 2):
        assert array_domain("d", IMAGES[:4], labels).spec.class_names == ("01", "1")


def test_ten_classes_are_in_the_order_of_numbers() -> None:
    domain = array_domain("x", [IMAGES[0]] * 24, np.repeat(np.arange(12), 2))
    assert domain.spec.class_names == tuple(str(n) for n in range(12))


def test_class_names_belong_to_numbers() -> None:
    domain = array_domain("x", IMAGES, torch.tensor(LABELS), class_names=["z", "y", "x"])
    assert domain.spec.class_names == ("z", "y", "x")
    assert np.array_equal(domain.source.read([(0, 0)])[0], IMAGES[0])


@pytest.mark.parametrize(
    "given",
    [
        IMAGES[0],
        IMAGES[0].astype(np.int64),
        IMAGES[0] / 255,
        IMAGES[0].transpose(2, 0, 1),
        torch.from_numpy(IMAGES[0]).permute(2, 0, 1),
        torch.from_numpy(IMAGES[0]).permute(2, 0, 1).float() / 255,
        (torch.from_numpy(IMAGES[0]).permute(2, 0, 1).float() / 255).requires_grad_(),
        (torch.from_numpy(IMAGES[0]).permute(2, 0, 1).double() / 255),
        Image.fromarray(IMAGES[0]),
        Image.fromarray(IMAGES[0]).convert("P", palette=Image.Palette.ADAPTIVE),
    ],
    ids=["hwc", "int64", "float", "chw", "tensor", "float tensor", "graph", "double", "pillow", "palette"],
)
def test_many_forms_of_one_image(given: Any) -> None:
    assert np.array_equal(as_pixels(given, "x"), IMAGES[0])


def test_grey_and_masks_have_one_channel() -> None:
    assert as_pixels(IMAGES[0, :, :, 0], "x").shape == (6, 5, 1)
    assert as_pixels(torch.zeros(1, 3, 3), "x").shape == (3, 3, 1)
    assert as_pixels(np.array([[True, False]]), "x").ravel().tolist() == [255, 0]
    tensor = torch.zeros(3, 4, 3)  # both ends could be channels; a tensor's are first
    tensor[2] = 1
    assert as_pixels(tensor, "x")[0, 0].tolist() == [0, 0, 255]


@pytest.mark.parametrize(
    ("images", "labels", "names", "words"),
    [
        (IMAGES, LABELS[:-1], None, "12 images and 11 labels"),
        (
            IMAGES,
            [0, 1, 3] * 4,
            None,
            "no image has the label 2, and labels run from 0 to 3: number the classes",
        ),
        (IMAGES, [-1, 0, 1] * 4, None, "the label -1 is outside 0 to 1"),
        (IMAGES, LABELS, ["a", "b"], "the label 2 is outside 0 to 1"),
        (IMAGES, LABELS, ["a", "b", "c", "d"], "no image has the label 3"),
        (IMAGES, [0.5] * 12, None, "the label 0.5 is no class name and no whole number"),
        (IMAGES, ["a"] * 11 + ["b"], None, "the class 'b' has one image only"),
        (IMAGES, ["a"] * 6 + ["A"] * 6, None, "have one name but for case"),
        (IMAGES, ["a"] * 12, ["b"], "the label 'a' is not among the class names"),
        (IMAGES * 2.0, LABELS, None, "x, image 0: values of type float64 from"),
        (np.zeros((12, 4, 4, 2)), LABELS, None, "x, image 0: its shape is (4, 4, 2)"),
        (np.zeros((12, 0, 4, 3)), LABELS, None, "x, image 0: its shape is (0, 4, 3): it has no pixels"),
    ],
)
def test_wrong_arrays(images: Any, labels: Any, names: Any, words: str) -> None:
    with pytest.raises(DataError) as caught:
        array_domain("x", images, labels, class_names=names)
    assert words in str(caught.value)
