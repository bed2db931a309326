"""Implement the systems that the paper compares with, one family per module."""
