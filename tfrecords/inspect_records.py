"""Shows record files: some records as text, and statistics of all of them.

    python -m bert_tf.tfrecords.inspect_records records/text.tfrecord

A token to predict is marked: [MASK→river] if the model sees [MASK] and must predict
"river", [the→river] if it sees another token, [river=] if it sees the token itself.
Vocabulary and settings come from the manifest next to the records. Damaged files and
incomplete sets are shown as far as they can be read.
"""

from bert_tf.addons.study import inspect_records
from bert_tf.addons.study.inspect_records import InspectionOptions
from bert_tf.base import cli
from bert_tf.base.options import Path


def run(options: InspectionOptions) -> None:
    """Prints what the flags ask for."""
    inspect_records.run(options)


main = cli.command(run, arguments="files", argument_kind=Path.FILES)

if __name__ == "__main__":
    main()
