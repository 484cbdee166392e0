import pytest
import torch

from fewshift.nets.set_encoder import DatasetClassifier


@pytest.mark.parametrize("size", [16, 28, 32, 41, 84])
@pytest.mark.parametrize("images", [1, 5])
def test_any_size_and_any_number_of_images(size: int, images: int) -> None:
    torch.manual_seed(0)
    classifier = DatasetClassifier(3, width=8)
    logits = classifier(torch.randn(images, 3, size, size))
    assert logits.shape == (3,)
    assert torch.isfinite(logits).all()


def test_one_image_still_says_something() -> None:
    torch.manual_seed(0)
    classifier = DatasetClassifier(3, width=8)
    first, second = torch.randn(1, 3, 28, 28), torch.randn(1, 3, 28, 28)
    assert not torch.allclose(classifier(first), classifier(second))


def test_84_pixels_are_pooled_five_times_as_published() -> None:
    classifier = DatasetClassifier(2, width=4)
    sizes = []
    classifier.convs[4].register_forward_hook(
        lambda _module, inputs, _output: sizes.append(inputs[0].shape[-1])
    )
    classifier(torch.randn(1, 3, 84, 84))
    assert sizes == [5]
    assert sum(p.numel() for p in DatasetClassifier(8).parameters()) == 2_370_824


def test_statistics_are_those_of_the_current_set_in_both_modes() -> None:
    torch.manual_seed(0)
    classifier = DatasetClassifier(4, width=8)
    images = torch.randn(6, 3, 28, 28)
    training = classifier.train()(images)
    for _ in range(3):
        classifier(5 * torch.randn(6, 3, 28, 28) + 2)  # another domain leaves no trace
    assert torch.equal(classifier.eval()(images), training)
    assert not any("running" in name for name in classifier.state_dict())
    # Brightness and contrast of the whole set cancel in the first normalisation, away from the padded border.
    assert torch.allclose(classifier(3 * images), training, atol=1e-4)


def test_the_order_of_the_set_does_not_matter() -> None:
    torch.manual_seed(0)
    classifier = DatasetClassifier(4, width=8).double()
    images = torch.randn(6, 3, 28, 28, dtype=torch.float64)
    torch.testing.assert_close(classifier(images), classifier(images.flip(0)))
