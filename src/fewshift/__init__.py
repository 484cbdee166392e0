"""Cross-domain few-shot image classification: a frozen backbone, a few labelled images, a classifier."""

__version__ = "0.1.0"
