"""One method a file."""
