"""Attacks on crowdshot: `make torture`, and a short version with fixed seeds among the tests. See docs/reliability.md.

mutations.py        a sound file -> a damaged one, by knowledge of its kind: JSON, XML, zip, Parquet, safetensors
sound_files.py      files of every kind, made on the spot
readers.py          every reader, and the sound files it begins with
fuzz.py             readers against mutations: only CrowdshotError, in time, within memory
forks.py            a command in a child of this process, and what may befall it there
interruptions.py    commands killed at any moment, full disks, folders that may not be written to, two at once
serving.py          the service, killed while labels come in
random_problems.py  finite, sums to one, objectives that never fall, no matter which names or order
size.py             a million labels through every command: seconds and memory
__main__.py         all of them
"""
