"""Damage a valid file, with knowledge of its format."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Mutation = Callable[[bytes, random.Random], bytes]

WORDS = [
    *("", " ", "0", "-1", "1e400", "nan", "NaN", "inf", "-0.0", "9" * 30, "true", "null", "None", "item", "annotator"),
    *("label", "truth", "right", "old", "total", "sep=;", "=1+1", "\0", "\ufeff", "\u2028", "\ud800", "é", "e\u0301"),
    *('"', '""', "'", "[", "{", "[]", "{}", '["a"]', "a|b", "a;b", "\t", "\n", "\r\n", "\\", "../x", "x" * 3000, "漢"),
]
NUMBERS = [0, 1, -1, 2, 7, 255, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.5, 1e38, 1e308, float("inf"), float("nan")]
DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]


def odd_value(rng: random.Random) -> Any:
    kinds = [None, True, False, rng.choice(NUMBERS), rng.choice(WORDS), [], {}, [rng.choice(WORDS)], DEEP]
    return rng.choice([*kinds, {rng.choice(WORDS): rng.choice(NUMBERS)}])


# ---- of any file --------------------------------------------------------------------------------------------------


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Cut, flip, overwrite, insert, repeat or move bytes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        start = rng.randrange(len(out) + 1)
        length = min(rng.choice((1, 1, 2, 4, 8, 60)), len(out) - start)
        kind = rng.randrange(7)
        if kind == 0:
            del out[start:]
        elif kind == 1 and start < len(out):
            out[start] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[start : start + length] = rng.randbytes(length)
        elif kind == 3:
            out[start:start] = rng.choice(WORDS).encode("utf-8", "replace")
        elif kind == 4:
            out[start:start] = out[start : start + length] * rng.choice((1, 2, 50))
        elif kind == 5:
            out[start : start + length] = rng.choice((b"\0", b"\xff", b"\x7f")) * length
        else:
            del out[start : start + length]
    return bytes(out)


def change_text(data: bytes, rng: random.Random) -> bytes:
    """Replace words in lines and cells; sometimes change the encoding."""
    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    for _ in range(rng.randint(1, 4)):
        row = rng.randrange(len(lines))
        separator = rng.choice((",", "\t", ";", '"', ":", " ", "<", ">", "="))
        cells = lines[row].split(separator)
        cells[rng.randrange(len(cells))] = rng.choice(WORDS)
        kind = rng.randrange(6)
        if kind == 0:
            lines.insert(row, rng.choice(lines))
        elif kind == 1 and len(lines) > 1:
            del lines[row]
        elif kind == 2:
            lines[row] = separator.join(cells[: rng.randrange(len(cells) + 1)])
        else:
            lines[row] = separator.join(cells)
    out = "\n".join(lines)
    encoding = rng.choice(("utf-8",) * 12 + ("utf-16", "utf-8-sig", "latin-1", "utf-16-le"))
    return out.encode(encoding, "replace")


# ---- of a kind ----------------------------------------------------------------------------------------------------


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in pairs for place in _places(part, (*path, key)))]


def change_value(value: Any, rng: random.Random) -> Any:
    """Change one to three places of nested lists and records: another value or key, removed, or repeated."""
    held = [json.loads(json.dumps(value))]
    for _ in range(rng.randint(1, 3)):
        *way, last = rng.choice(_places(held)[1:] or [(0,)])
        target: Any = held
        for key in way:
            target = target[key]
        kind = rng.randrange(5)
        if kind == 0 and isinstance(target, dict):
            target[rng.choice(WORDS)] = target.pop(last)
        elif kind == 1 and target is not held:
            del target[last]
        elif kind == 2 and isinstance(target, list) and target is not held:
            target.append(target[last])
        else:
            target[last] = odd_value(rng)
        if DEEP in _leaves(held):
            break
    return held[0]


def _leaves(value: Any, depth: int = 0) -> list[Any]:
    """Limit the walk through very deep values."""
    if depth > 40:
        return [DEEP]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [leaf for part in parts for leaf in _leaves(part, depth + 1)]


def change_json(data: bytes, rng: random.Random) -> bytes:
    return json.dumps(change_value(json.loads(data), rng)).encode()


def change_json_lines(data: bytes, rng: random.Random) -> bytes:
    changed = change_value([json.loads(line) for line in data.splitlines() if line.strip()], rng)
    return "\n".join(map(json.dumps, changed if isinstance(changed, list) else [changed])).encode()


def change_zip(data: bytes, rng: random.Random) -> bytes:
    """Damage a part of an archive before packing it, or remove or rename one, or give it a wrong size."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(parts))
    kind = rng.randrange(8)
    if kind == 0:
        del parts[name]
    elif kind == 1:
        parts[rng.choice(WORDS).replace("\0", "0").encode("utf-8", "replace").decode()] = parts.pop(name)
    else:
        parts[name] = rng.choice((change_bytes, change_bytes, change_text))(parts[name], rng)
    held = io.BytesIO()
    way = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(held, "w", way) as archive:
        for inside, content in parts.items():
            archive.writestr(inside, content)
    return change_bytes(held.getvalue(), rng) if kind > 5 else held.getvalue()


def change_npy_header(data: bytes, rng: random.Random) -> bytes:
    """Change the type, shape or order of one array of an .npz, or replace its header by garbage."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(parts))
    types = [
        "'<f4'",
        "'<U5'",
        "'|S3'",
        "'O'",
        "'>i8'",
        "'<M8[s]'",
        "'V7'",
        "[('a','<f4')]",
        "'<c16'",
        "'<U999999999'",
        "7",
    ]
    shapes = ["()", "(1,)", "(2,2)", "(99999999999,9)", "(-1,)", "(0,)", "'a'", "(1,(2,))"]
    shape = rng.choice([*shapes, str((rng.randrange(9), rng.randrange(9)))])
    header = (
        f"{{'descr': {rng.choice(types)}, 'fortran_order': {rng.choice(('False', 'True', '3'))}, 'shape': {shape}, }}"
    )
    header = header if rng.random() < 0.9 else rng.choice(("(" * 2000, "{", "'" * 7, "{'descr': __import__('os')}"))
    body = parts[name][10 + int.from_bytes(parts[name][8:10], "little") :]
    parts[name] = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n" + body
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, content in parts.items():
            archive.writestr(inside, content)
    return held.getvalue()


def change_parquet(data: bytes, rng: random.Random) -> bytes:
    """Change types, names and values of columns, and the metadata of pandas."""
    table = pq.read_table(io.BytesIO(data))
    about = json.loads((table.schema.metadata or {}).get(b"pandas", b"{}"))
    columns, names = list(table.columns), list(table.column_names)
    at = rng.randrange(len(names))
    kind = rng.randrange(5)
    if kind == 0:
        names[at] = rng.choice([*WORDS, *names]).encode("utf-8", "replace").decode()
    elif kind == 1:
        words = [word.encode("utf-8", "replace").decode() for word in WORDS]
        values: list[Any] = [
            [rng.choice(words) for _ in columns[at]],
            [rng.choice(words).encode() for _ in columns[at]],
            [rng.choice((None, 1, 2**40)) for _ in columns[at]],
            [rng.choice((None, [1], [2, 3])) for _ in columns[at]],
            [{"a": 1}] * len(columns[at]),
        ]
        columns[at] = pa.chunked_array([pa.array(rng.choice(values))])
    elif kind == 2:
        types = [pa.date32(), pa.timestamp("us", "UTC"), pa.duration("s"), pa.time64("us"), pa.bool_(), pa.float16()]
        columns[at] = pa.chunked_array([pa.nulls(len(columns[at]), rng.choice(types))])
    elif kind == 3:
        del columns[at], names[at]
    changed = change_value(about, rng) if kind == 4 or rng.random() < 0.3 else about
    metadata = {"pandas": json.dumps(changed)} if rng.random() < 0.8 else {"pandas": rng.choice(("", "{", "[]", "7"))}
    held = io.BytesIO()
    pq.write_table(pa.table(columns, names=names, metadata=metadata), held)
    return held.getvalue()


def change_safetensors(data: bytes, rng: random.Random) -> bytes:
    """Change the card, or names, types, shapes or offsets of tensors; without a checksum, as in files of 0.1.0."""
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])
    about = header.pop("__metadata__", {})
    card = json.loads(about.get("crowdshot", "{}"))
    card.pop("sha256", None)
    kind = rng.randrange(6)
    if kind < 3:
        card = change_value(card, rng)
    elif kind == 3:
        header = change_value(header, rng)
    elif kind == 4 and header and body:
        tensor = rng.choice(list(header.values()))
        tensor["dtype"] = rng.choice(("F32", "I64", "F64", "I32", "U8", "BOOL", "BF16", "F16"))
        if rng.random() < 0.5:
            tensor["shape"] = rng.choice(
                ([], [0], [1], [2, 2], [tensor["data_offsets"][1] - tensor["data_offsets"][0]])
            )
    elif body:
        for _ in range(rng.choice((1, 3, 20))):
            at = rng.randrange(len(body))
            body[at : at + 8] = struct.pack("<d", rng.choice(NUMBERS[11:])) if rng.random() < 0.5 else rng.randbytes(8)
        del body[int.from_bytes(data[8:8], "little") + len(data) - 8 - length :]
    text = card if isinstance(card, str) else json.dumps(card)
    if isinstance(header, dict):
        header["__metadata__"] = {**about, "crowdshot": text}
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + bytes(body)


def change_png(data: bytes, rng: random.Random) -> bytes:
    """Change chunks but keep checksums right: sizes, colours, depths, removed or repeated."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    place = rng.randrange(len(chunks))
    name, content = chunks[place]
    kind = rng.randrange(4)
    if kind == 0:
        del chunks[place]
    elif kind == 1:
        chunks.insert(place, chunks[place])
    elif content:
        chunks[place] = name, change_bytes(content, rng)
    parts = (
        len(inside).to_bytes(4, "big") + name + inside + zlib.crc32(name + inside).to_bytes(4, "big")
        for name, inside in chunks
    )
    return data[:8] + b"".join(parts)


def suited(name: str) -> list[Mutation]:
    """Return mutations for a file by its ending; those for its format are more frequent."""
    own: dict[str, list[Mutation]] = {
        ".json": [change_json],
        ".jsonl": [change_json_lines],
        ".zip": [change_zip],
        ".xlsx": [change_zip],
        ".npz": [change_zip, change_npy_header],
        ".parquet": [change_parquet],
        ".safetensors": [change_safetensors],
        ".png": [change_png],
    }
    text = name.endswith((".csv", ".tsv", ".txt", ".xml", ".json", ".jsonl"))
    return [change_bytes, *([change_text] * 2 if text else []), *own.get("." + name.rpartition(".")[2], []) * 2]
