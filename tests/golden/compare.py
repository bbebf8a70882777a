"""What differs between golden outputs and today's: text exactly, floats nearly."""

import difflib
import re

# Processors differ in a float32's last bits; losses and logits are about 1.
RELATIVE = 1e-5
ABSOLUTE = 1e-5
# A constant that is added to all start or end scores changes no loss: what moves it is
# rounding errors, which Adam divides by their own size.
_UP_TO_A_CONSTANT = ('"start_logit": ', '"end_logit": ')
_CONSTANT = 1e-4
_FLOAT = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)(?![\w.])")
_MOST_SHOWN = 20


def differences(golden, now, place="", *, exact=False):
    """Yields a line for each difference between two values as JSON has them."""
    if isinstance(golden, dict) and isinstance(now, dict):
        for key in golden.keys() | now.keys():
            if key not in now:
                yield f"{place}/{key}: is missing; it was {_short(golden[key])}"
            elif key not in golden:
                yield f"{place}/{key}: is new: {_short(now[key])}"
            else:
                yield from differences(
                    golden[key], now[key], f"{place}/{key}", exact=exact
                )
    elif isinstance(golden, list) and isinstance(now, list):
        if len(golden) != len(now):
            yield f"{place}: has {len(now)} entries; it had {len(golden)}"
            if all(isinstance(line, str) for line in [*golden, *now]):
                yield from list(
                    difflib.unified_diff(golden, now, "golden", "now", lineterm="")
                )[:_MOST_SHOWN]
        else:
            for number, (old, new) in enumerate(zip(golden, now, strict=True)):
                yield from differences(old, new, f"{place}[{number}]", exact=exact)
    elif not exact and isinstance(golden, float) and isinstance(now, float):
        if not _is_near(golden, now):
            yield f"{place}: is {now!r}; it was {golden!r}"
    elif not exact and isinstance(golden, str) and isinstance(now, str):
        if not _is_near_text(golden, now):
            yield f"{place}: is {_short(now)}; it was {_short(golden)}"
    elif type(golden) is not type(now) or golden != now:
        yield f"{place}: is {_short(now)}; it was {_short(golden)}"


def report(golden, now, *, exact=False):
    """The differences as a message; "" for none."""
    lines = sorted(differences(golden, now, exact=exact))
    left_off = len(lines) - _MOST_SHOWN
    if left_off > 0:
        lines = [*lines[:_MOST_SHOWN], f"... and {left_off} more"]
    return "\n".join(lines)


def _is_near(golden, now, floor=ABSOLUTE):
    if golden != golden or now != now:
        return golden != golden and now != now
    return abs(golden - now) <= max(floor, RELATIVE * abs(golden))


def _is_near_text(golden, now):
    """Whether texts are equal but for the last bits of the floats in them."""
    if golden == now:
        return True
    if _FLOAT.split(golden) != _FLOAT.split(now):
        return False
    floor = ABSOLUTE
    if golden.strip().startswith(_UP_TO_A_CONSTANT):
        floor = _CONSTANT
    numbers = zip(_FLOAT.findall(golden), _FLOAT.findall(now), strict=True)
    return all(
        _is_near(float(old), float(new), max(floor, _last_place(old)))
        for old, new in numbers
    )


def _last_place(number):
    """What the last digit of a rounded number is worth; 0 where it has few digits."""
    decimals = len(number.partition(".")[2])
    return 1.01 * 10.0**-decimals if decimals >= 4 and "e" not in number else 0.0


def _short(value):
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + " ..."
