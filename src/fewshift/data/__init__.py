"""Images to episodes; knows nothing of networks."""
