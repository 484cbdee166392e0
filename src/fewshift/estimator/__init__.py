"""A classifier on one's own images: a few labelled ones in, a fitted and saved classifier out."""
