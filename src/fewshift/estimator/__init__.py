"""A classifier for a user's own images: a few labelled ones in, a fitted and saved classifier out."""
