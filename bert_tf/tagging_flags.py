"""The flags of tagging, in groups; none of them is the original's.

A script calls the groups it needs from its `define_flags(flag_values)`.
"""

from typing import Any

from absl import flags

from bert_tf import finetuning_flags, flag_rules, path_flags
from bert_tf import flags as shared_flags
from bert_tf.flag_groups import DATA, LENGTHS, belongs_to
from bert_tf.path_flags import Path
from bert_tf.tasks.tagging.labels import NO_SCHEME, SCHEMES
from bert_tf.tasks.tagging.sentences import FORMATS, Layout

# What a split is needed for.
_USES = (
    ("do_train", "train_file"),
    ("do_eval", "dev_file"),
    ("eval_steps", "dev_file"),
    ("do_predict", "test_file"),
)


@belongs_to(DATA)
def define_sentences(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say which sentences, and how their files are read."""

    def string(name: str, default: str | None, help_text: str) -> None:
        flags.DEFINE_string(name, default, help_text, flag_values=flag_values)

    def path(
        name: str, default: str | None, help_text: str, kind: Path, *needed_for: str
    ) -> None:
        path_flags.define(
            name,
            default,
            help_text,
            kind,
            flag_values=flag_values,
            needed_for=needed_for,
        )

    path(
        "train_file",
        None,
        "Sentences to train on; with commas or * for several.",
        Path.FILES,
        "do_train",
    )
    path(
        "dev_file",
        None,
        "Sentences to evaluate on.",
        Path.FILES,
        "do_eval",
        "eval_steps",
    )
    path(
        "test_file",
        None,
        "Sentences to predict; scored where they have labels.",
        Path.FILES,
        "do_predict",
    )
    define_format(flag_values)
    string(
        "document_column",
        "document_id",
        "For jsonl. The field that sentences of one document share, one after another.",
    )
    flags.DEFINE_bool(
        "test_has_labels",
        None,
        "Whether --test_file has labels. Default: as it looks; false for columns of"
        " which the last one is no label.",
        flag_values=flag_values,
    )
    finetuning_flags.define_tfds(
        flag_values,
        "Read a set of TensorFlow Datasets instead of files, such as conll2003, whose"
        " features --word_column and --label_column name.",
        {"train": "to train on", "dev": "to evaluate on", "test": "to predict"},
    )
    for use, name in _USES:
        flag_rules.require_with(flag_values, use, name, "tfds_name")
        flag_rules.refuse_together(flag_values, "tfds_name", name)


@belongs_to(DATA)
def define_format(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how files of tagged words are read."""

    def string(name: str, default: str | None, help_text: str) -> None:
        flags.DEFINE_string(name, default, help_text, flag_values=flag_values)

    flags.DEFINE_enum(
        "format",
        FORMATS[0],
        list(FORMATS),
        "Of the files. conll: a word a line, in columns; conllu: Universal"
        " Dependencies' files; jsonl: a sentence a line, {'tokens': [...], 'ner_tags':"
        " [...]}; slashes: a sentence a line, word/TAG. auto: conllu and jsonl by the"
        " name, else conll.",
        flag_values=flag_values,
    )
    string(
        "word_column",
        None,
        "The words' column: in columns its number, from 0, or from -1 backwards; else"
        " its name. Default: 0; of conllu FORM; tokens, or words.",
    )
    string(
        "label_column",
        None,
        "The labels' column. Default: -1; of conllu UPOS; ner_tags, labels, or tags; of"
        " TensorFlow Datasets ner.",
    )
    string("tag_separator", "/", "For slashes. What stands between word and label.")
    flags.register_validator(
        "tag_separator",
        lambda separator: bool(separator),
        message="must not be empty",
        flag_values=flag_values,
    )


def layout(
    flag_values: flags.FlagValues, label_names: tuple[str, ...] | None = None
) -> Layout:
    """What the flags of `define_format` say."""
    own: dict[str, Any] = {}
    if "document_column" in flag_values:
        own["document_column"] = flag_values.document_column
    return Layout(
        format=flag_values.format,
        word_column=flag_values.word_column,
        label_column=flag_values.label_column,
        separator=flag_values.tag_separator,
        label_names=label_names,
        **own,
    )


@belongs_to(DATA)
def define_labels(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say what the labels are."""
    flags.DEFINE_list(
        "labels",
        None,
        "The labels, in the order of the model's outputs; where the files have numbers,"
        " what these stand for. Default: what the training sentences have; a trained"
        " checkpoint's own, where it knows them all.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "tag_scheme",
        "auto",
        ["auto", *SCHEMES, NO_SCHEME],
        "How the files' labels spell entities: iob1 (CoNLL-2003's own files), iob2,"
        " iobes, bilou, or none, such as parts of speech. auto: as they look.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "model_scheme",
        "auto",
        ["auto", *SCHEMES],
        "How the model's labels do; predictions are written as the files have it. auto:"
        " as the files, but iob2 for iob1.",
        flag_values=flag_values,
    )
    shared_flags.define(flag_values, "init_head")


@belongs_to(LENGTHS)
def define_windows(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how sentences become records.

    After `define_sentences`.
    """
    shared_flags.define(flag_values, "max_seq_length")
    flags.DEFINE_bool(
        "document_context",
        False,
        "Read a document's sentences together, as much of them as --max_seq_length"
        " holds (Devlin et al. 2018, section 5.3), rather than each by itself.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "doc_stride",
        None,
        "What is too long is read in windows: tokens from one's beginning to the next"
        " one's. A word counts in the one that has most context of it. Default: half of"
        " what a window holds.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flag_rules.require_at_least(flag_values, 3, "max_seq_length")

    def has_documents(values: dict[str, Any]) -> bool:
        if not values["document_context"] or not values["tfds_name"]:
            return True
        raise flags.ValidationError(
            "--document_context has no use with --tfds_name: TensorFlow Datasets"
            " shuffle a set's sentences. Give its files."
        )

    flags.register_multi_flags_validator(
        ["document_context", "tfds_name"], has_documents, flag_values=flag_values
    )
