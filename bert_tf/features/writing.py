"""From inputs to a file of features, in parts that a killed run goes on with."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bert_tf.features.extraction import Group
from bert_tf.features.formats import Format
from bert_tf.features.inputs import FeatureInput
from bert_tf.features.parts import Parts
from bert_tf.records.writing import remove_leftovers

# (inputs, which groups are passed over) -> groups of features.
Extract = Callable[[Iterable[FeatureInput], Callable[[int], bool]], Iterator[Group]]


def write_features(
    inputs: Iterable[FeatureInput],
    extract: Extract,
    output: str,
    output_format: Format,
    settings: Mapping[str, Any],
    *,
    is_chief: bool = True,
) -> None:
    """Writes the features of inputs.

    Args:
        inputs: the inputs, the same at each start.
        extract: makes their features; see `extraction.extract`.
        output: the file, or folder, to write; what has that name is replaced.
        output_format: how it is written.
        settings: all that the features hang on, for JSON: another start goes on with
            the groups of this one if its settings are the same.
        is_chief: whether this process writes.

    Raises:
        InputError: there is something under the output's name that is not written over.
    """
    output_format.check_output(output)
    parts = Parts(output, settings, is_chief=is_chief)
    for group in extract(inputs, parts.is_done):
        if is_chief:
            with parts.writing(group.number) as file:
                output_format.write_part(file, group.first, group.results())
    if is_chief:
        remove_leftovers(output.rstrip("/"))
        output_format.assemble(parts.paths(), output)
        parts.remove()
