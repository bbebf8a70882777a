"""What several sets of records must have in common to be used together."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf.errors import InputError
from bert_tf.records.manifest import Manifest


def alike(
    paths: Sequence[str],
    manifests: Sequence[Manifest],
    question: Callable[[Manifest], bool],
    kinds: tuple[str, str],
) -> bool:
    """The answer to a question that is the same for all record files."""
    manifest_of = {
        os.path.normpath(path): manifest
        for manifest in manifests
        for path in manifest.records_by_path()
    }
    answers: dict[bool, str] = {}
    for path in paths:
        manifest = manifest_of.get(os.path.normpath(path))
        answers.setdefault(manifest is not None and question(manifest), path)
    if len(answers) > 1:
        raise InputError(
            f"Records {kinds[0]} and records {kinds[1]} cannot be used together:"
            f" {answers[True]} and {answers[False]}."
        )
    return True in answers


def agreed(manifests: Sequence[Manifest], name: str, flag: str = "") -> Any:
    """What some sets of records say alike."""
    first = manifests[0]
    for manifest in manifests[1:]:
        here, there = getattr(first, name), getattr(manifest, name)
        if here != there:
            raise InputError(
                f"The records of {first.path} were made with {name}={here}, those of"
                f" {manifest.path} with {there}: give `{flag or name}`."
            )
    return getattr(first, name)
