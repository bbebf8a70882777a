"""Rules that flags keep together or alone; what breaks one is a usage error.

Each function registers one rule with absl's validators: absl checks them once the
command line has been parsed, and the error names the flags.
"""

import sys
from typing import Any

from absl import flags, logging

# The largest whole number that every part of a run takes: sizes, steps, seeds.
_MOST = 2**31 - 1


def require_at_least(flag_values: flags.FlagValues, least: float, *names: str) -> None:
    """Makes values below `least`, or beyond 32 bits if it is whole, a usage error."""
    most = _MOST if isinstance(least, int) else sys.float_info.max

    def fits(value: float | None) -> bool:
        if value is None or least <= value <= most:
            return True
        bound = f"most {most}" if value > most else f"least {least}"
        raise flags.ValidationError(f"must be at {bound}")

    for name in names:
        flags.register_validator(name, fits, flag_values=flag_values)


def require_one_of(flag_values: flags.FlagValues, *names: str) -> None:
    """Makes it a usage error to give none of these boolean flags."""

    def any_is_set(values: dict[str, Any]) -> bool:
        if any(values.values()):
            return True
        wanted = ", ".join(f"--{name}" for name in names)
        raise flags.ValidationError(f"Nothing to do: give at least one of {wanted}.")

    flags.register_multi_flags_validator(
        list(names), any_is_set, flag_values=flag_values
    )


def require_one_given(flag_values: flags.FlagValues, *names: str) -> None:
    """Makes it a usage error to give none of these flags."""

    def one_is_given(values: dict[str, Any]) -> bool:
        if any(value is not None for value in values.values()):
            return True
        wanted = " or ".join(f"--{name}" for name in names)
        raise flags.ValidationError(f"Give {wanted}.")

    flags.register_multi_flags_validator(
        list(names), one_is_given, flag_values=flag_values
    )


def require_with(flag_values: flags.FlagValues, name: str, *others: str) -> None:
    """Makes it a usage error to give a flag without one of these others."""

    def has_another(values: dict[str, Any]) -> bool:
        if not values[name] or any(values[other] for other in others):
            return True
        wanted = " or ".join(f"--{other}" for other in others)
        raise flags.ValidationError(f"--{name} needs {wanted}.")

    flags.register_multi_flags_validator(
        [name, *others], has_another, flag_values=flag_values
    )


def warn_of_stride(flag_values: flags.FlagValues) -> None:
    """Says where windows do not overlap: --doc_stride is all of --max_seq_length.

    [CLS] and two [SEP] are no text.
    """
    room = flag_values.max_seq_length - 3
    if flag_values.doc_stride is not None and flag_values.doc_stride >= room:
        logging.warning(
            "--doc_stride=%d is no less than the %d tokens of a window: windows do not"
            " overlap, and what crosses the end of one is seen whole in none.",
            flag_values.doc_stride,
            room,
        )


def refuse_together(
    flag_values: flags.FlagValues,
    *names: str,
    why: str = "say the same: give one of them",
) -> None:
    """Makes it a usage error to give all of these flags, defaults aside."""

    def not_all_are_given(_: dict[str, Any]) -> bool:
        if not all(flag_values[name].present for name in names):
            return True
        both = " and ".join(f"--{name}" for name in names)
        raise flags.ValidationError(f"{both} {why}.")

    flags.register_multi_flags_validator(
        list(names), not_all_are_given, flag_values=flag_values
    )


def refuse_without(flag_values: flags.FlagValues, other: str, *names: str) -> None:
    """Makes it a usage error to give what has no effect without another flag."""

    def has_effect(values: dict[str, Any]) -> bool:
        useless = [name for name in names if flag_values[name].present]
        if values[other] or not useless:
            return True
        needed = f"--{other}=true" if flag_values[other].boolean else f"--{other}"
        raise flags.ValidationError(
            f"--{useless[0]} has no effect without {needed}: give both, or neither."
        )

    flags.register_multi_flags_validator(
        [other, *names], has_effect, flag_values=flag_values
    )
