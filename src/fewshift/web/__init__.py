"""The page: a person drags images into classes, adapts, and tries the result."""
