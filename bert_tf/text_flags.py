"""The flags that say which text is read, and by how many processes; and that text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags, logging

from bert_tf import cli, files, path_flags
from bert_tf.errors import InputError
from bert_tf.flag_groups import DATA, belongs_to
from bert_tf.path_flags import Path

if TYPE_CHECKING:
    from bert_tf.text.documents import Chunk

# Small enough that all cores have work from a few dozen MB on.
_CHUNK_BYTES = 4 << 20


@belongs_to(DATA)
def define_text_input(flag_values: flags.FlagValues, *, splits_sentences: bool) -> None:
    """Defines the flags of scripts that read text."""

    def define(name: str, default: str | None, text: str) -> None:
        flags.DEFINE_string(name, default, text, flag_values=flag_values)

    def path(name: str, default: str | None, help_text: str, kind: Path) -> None:
        path_flags.define(name, default, help_text, kind, flag_values=flag_values)

    path(
        "input_file",
        None,
        "Files with text: names, globs or folders, with commas between; plain, or"
        " compressed as .gz, .bz2 or .xz.",
        Path.FILES,
    )
    flags.DEFINE_enum(
        "input_format",
        "auto",
        ["auto", "text", "wikiextractor", "jsonl"],
        "What the files are: plain text (one sentence a line, a blank line"
        " between documents), wikiextractor's output, or a JSON object a line; auto"
        " tells by the name, then by the first line.",
        flag_values=flag_values,
    )
    define(
        "text_field",
        "text",
        "Field of a JSON object, or of a dataset's examples, that holds the text.",
    )
    define(
        "tfds_name",
        None,
        "A TensorFlow dataset to read instead of files: wikipedia/20230601.en, say.",
    )
    define("tfds_split", "train", "Split of the dataset, or a slice: train[:10%].")
    path(
        "tfds_data_dir",
        None,
        "Folder of prepared datasets; the library's own unless given.",
        Path.OUTPUT,
    )
    flags.register_multi_flags_validator(
        ["input_file", "tfds_name"],
        lambda values: (values["input_file"] is None) != (values["tfds_name"] is None),
        "give one of --input_file and --tfds_name",
        flag_values,
    )
    flags.DEFINE_integer(
        "num_workers",
        None,
        "Processes to work with; all cores unless given. The result is the same.",
        lower_bound=1,
        flag_values=flag_values,
    )
    if not splits_sentences:
        return
    flags.DEFINE_bool(
        "split_sentences",
        None,
        "Split lines into sentences. Unless given, those of plain text are taken"
        " for sentences, and all others are split.",
        flag_values=flag_values,
    )
    define("language", "en", "By whose rules lines are split into sentences.")
    flags.register_validator(
        "language", bool, "must be a language's code, such as en", flag_values
    )


def text_chunks(
    flag_values: flags.FlagValues, *, passed_over: Sequence[str] = ()
) -> "list[Chunk]":
    """The text that the flags name, in pieces of work.

    Records that have a manifest among these files, and what lies beside records, are
    passed over: a pattern may take in what an earlier run wrote beside its text.
    """
    from bert_tf.records.manifest import lies_beside_records, listed_records
    from bert_tf.text.documents import find_sources, make_chunks

    split_sentences, language = False, "en"
    if "split_sentences" in flag_values:
        split_sentences = flag_values.split_sentences
        language = flag_values.language
    if flag_values.tfds_name:
        cli.import_tensorflow()
        from bert_tf.text.tfds import make_tfds_chunks

        return make_tfds_chunks(
            flag_values.tfds_name,
            split=flag_values.tfds_split,
            text_field=flag_values.text_field,
            data_dir=flag_values.tfds_data_dir,
            split_sentences=split_sentences,
            language=language,
        )
    others = {files.identity(path) for path in passed_over}
    found = find_sources(flag_values.input_file, "input_file")
    others.update(files.identity(path) for path in listed_records(found))
    paths = [
        path
        for path in found
        if files.identity(path) not in others and not lies_beside_records(path)
    ]
    if len(paths) < len(found):
        logging.info(
            "--input_file: %d of %d files are no text but were written here, or are the"
            " vocabulary; they are passed over",
            len(found) - len(paths),
            len(found),
        )
    if not paths:
        raise InputError(
            f"--input_file: {flag_values.input_file!r} has nothing but what was written"
            " here: records, manifests, vocabularies."
        )
    return make_chunks(
        paths,
        input_format=flag_values.input_format,
        text_field=flag_values.text_field,
        split_sentences=split_sentences,
        language=language,
        chunk_bytes=_CHUNK_BYTES,
    )
