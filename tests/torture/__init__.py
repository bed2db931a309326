"""Attacks on crowdshot: `make torture`, and a short version with fixed seeds among the tests. See docs/reliability.md.

mutations.py    a sound file -> a damaged one, by knowledge of its kind: JSON, tables, XML, zip, Parquet, safetensors
sound_files.py  files of every kind, made on the spot
readers.py      every reader, and the sound files it begins with
fuzz.py         readers against mutations: only CrowdshotError, in time, within memory
kills.py        commands killed at random and at aimed moments: the new results or the old ones
full_disk.py    commands whose n-th write fails: an error, and nothing half-written
numbers.py      random problems: finite, sums to one, objectives that never fall, no matter which names or order
"""
