"""Stress tests of crowdshot (docs/research/reliability.md): `make torture`.

The tests include a short version with fixed seeds.

- mutations.py: damage a valid file, with knowledge of its format: JSON, XML, zip, Parquet, safetensors
- sound_files.py: make valid files of every kind
- readers.py: list every reader with valid files
- fuzz.py: run readers on damaged files: only CrowdshotError, within limits of time and memory
- forks.py: run a command in a child process in which failures are simulated
- interruptions.py: kill commands at any moment; full disks, read-only folders, two commands at once
- serving.py: kill the service while all its routes are used
- random_problems.py: check that results are finite, sum to one, and do not depend on names or order
- size.py: run every command with a million labels: time and memory
- __main__.py: run all of them
"""
