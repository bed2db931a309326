"""crowdshot: a classifier you can trust from a handful of examples and a noisy crowd."""

__version__ = "0.1.0"
