"""Small domains drawn by code: for tests, and for a machine with no network at all.

Eight kinds of picture that have little in common; classes and images come from a seed. Numbers on them say
whether a method works, never how well it would do on photographs.
"""

from fewshift.data.drawn.suite import drawn_domain, drawn_suite

__all__ = ["drawn_domain", "drawn_suite"]
