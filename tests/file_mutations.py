"""Small random damage to files: what disks, editors and other programs do to them."""

import json
import struct

from bert_tf.records.writing import framed, masked_checksum

# What stands for a value in JSON.
_VALUES = (
    *("null", "true", "-1", "1.5", "1e999", "NaN", "-Infinity"),
    *("1" + "0" * 30, "1" + "0" * 400, "9" * 5_000),
    *('""', '"\\ud800"', '"a\\nb\\u0000"', '"../../x"'),
    *("[]", "[[]]", "{}", '{"a": {"b": []}}', "[" * 50_000, '{"a":' * 50_000),
)
# What gets into a text.
_SNIPPETS = (
    *(b"\0", b"\0" * 64, b"\xff", b"\xc3", b"\xef\xbb\xbf"),
    *(b"\r", b"\n\n", b"\t", b'"', b"\\", b",", b" "),
    *(b"[" * 50_000, b"9" * 5_000, b"NaN", b"-Infinity", b"1e999"),
    *("\u2028\u0085\u200b".encode(), b"<doc", b"</doc>", b"1-2\t"),
)
_LENGTHS = (0, 1, 17, 1 << 31, 1 << 40, (1 << 62) + 5, (1 << 64) - 1)
_LENGTH = struct.Struct("<Q")
_FRAME_BYTES = 16


def mutated(content, name, rng):
    """A file's content with something wrong in it."""
    ways = [_cut, _flipped, _overwritten, _inserted]
    if b"\n" in content:
        ways += [_lines_changed] * 2
    if name.endswith(".tfrecord"):
        ways += [_reframed] * 4
    if _json_of(content) is not None or _json_of(content.split(b"\n")[0]) is not None:
        ways += [_value_replaced] * 6
    for _ in range(rng.choice((1, 1, 1, 2))):
        content = rng.choice(ways)(content, rng)
    return content


def _json_of(content):
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict | list) else None


def _place(content, rng):
    return rng.randrange(len(content) + 1)


def _cut(content, rng):
    place = _place(content, rng)
    return rng.choice((content[:place], content[place:], b""))


def _flipped(content, rng):
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 20))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwritten(content, rng):
    place, length = _place(content, rng), rng.choice((1, 4, 8, 100))
    filling = rng.choice((b"\0", b"\xff", b"\x7f", rng.randbytes(1)))
    return content[:place] + filling * length + content[place + length :]


def _inserted(content, rng):
    place = _place(content, rng)
    return content[:place] + rng.choice(_SNIPPETS) + content[place:]


def _lines_changed(content, rng):
    lines = content.split(b"\n")
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    way = rng.randrange(4)
    if way == 0:
        lines.insert(to, lines[at])
    elif way == 1:
        del lines[at]
    elif way == 2:
        lines[at], lines[to] = lines[to], lines[at]
    else:
        lines[at] = rng.choice(_SNIPPETS)
    return b"\n".join(lines)


def _value_replaced(content, rng):
    """JSON, or a line of it, with one value or key changed."""
    values = _json_of(content)
    if values is None:
        lines = content.split(b"\n")
        at = rng.choice([n for n, line in enumerate(lines) if line] or [0])
        values = _json_of(lines[at])
        if values is None:
            return _inserted(content, rng)
        lines[at] = _with_changed_value(values, rng)
        return b"\n".join(lines)
    return _with_changed_value(values, rng)


def _with_changed_value(values, rng):
    places = list(_places(values))
    if not places:
        return rng.choice(_VALUES).encode()
    holder, key = rng.choice(places)
    way = rng.randrange(8)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[rng.choice(("", "other", "\ud800"))] = holder.pop(key)
    else:
        holder[key] = "PLACE"
    text = json.dumps(values)
    return text.replace('"PLACE"', rng.choice(_VALUES)).encode()


def _places(values):
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in list(items):
        yield values, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _reframed(content, rng):
    """TFRecords of which one is changed, its checksums being right."""
    records, place = [], 0
    while place + _FRAME_BYTES <= len(content):
        (length,) = _LENGTH.unpack_from(content, place)
        records.append(content[place + 12 : place + 12 + length])
        place += _FRAME_BYTES + length
    if not records:
        return content
    at = rng.randrange(len(records))
    frames = [framed(record) for record in records]
    if rng.randrange(2):
        frames[at] = framed(
            rng.choice((_cut, _flipped, _overwritten))(records[at], rng)
        )
    else:
        packed = _LENGTH.pack(rng.choice(_LENGTHS))
        frames[at] = packed + masked_checksum(packed) + records[at]
    return b"".join(frames)
