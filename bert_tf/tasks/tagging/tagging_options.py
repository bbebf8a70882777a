"""The options of tagging, in groups, and the paper's ways to take BERT's features."""

from collections.abc import Iterator
from typing import NamedTuple

from bert_tf.base import files, options
from bert_tf.base.options import Path, option
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.tasks.data_set_options import SentenceOptions
from bert_tf.tasks.run_options import (
    FineTuningOptions,
    TfdsOptions,
    sources,
    tfds_splits,
)
from bert_tf.tasks.tagging.labels import NO_SCHEME, SCHEMES
from bert_tf.tasks.tagging.sentences import FORMATS, Layout, check_file

# The six ways to take BERT's layers as features: Devlin et al. 2018, Table 7.


class FeatureChoice(NamedTuple):
    """The features of a word."""

    # The layers whose outputs are used, named as in `bert_tf.tasks.feature_extraction`.
    layers: tuple[str, ...]
    is_concatenated: bool  # else several layers are mixed, with learned weights
    dev_f1: float  # on CoNLL-2003's development set with BERT-BASE, in the paper

    @property
    def num_layers(self) -> int:
        """The least number of layers that a model must have."""
        return max(-int(name) if name.startswith("-") else 1 for name in self.layers)


_LAST_FOUR = ("-4", "-3", "-2", "-1")

FEATURE_CHOICES = {
    "embeddings": FeatureChoice(("embeddings",), False, 91.0),
    "second_to_last": FeatureChoice(("-2",), False, 95.6),
    "last": FeatureChoice(("-1",), False, 94.9),
    "weighted_sum_last_four": FeatureChoice(_LAST_FOUR, False, 95.9),
    "concat_last_four": FeatureChoice(_LAST_FOUR, True, 96.1),
    "weighted_sum_all": FeatureChoice(("all",), False, 95.5),
}

# The defaults for training a BiLSTM on features.
BILSTM_LEARNING_RATE = 1e-3
BILSTM_EPOCHS = 10.0


_NOTHING_TUNED = "exclude each other: the first freezes BERT"


class TaggingOptions(
    FineTuningOptions,
    TfdsOptions,
    title=options.DATA,
    decides="numbers",
    hides=("max_unusable_rows", "delimiter"),
):
    """A run on tagged words."""

    num_global = 0  # no word attends to all
    # How to read files of tagged words.
    format: str = option(
        FORMATS[0],
        "Format of the files. conll: one word per line, in columns; conllu:"
        " Universal Dependencies' format; jsonl: one sentence per line, {'tokens':"
        " [...], 'ner_tags': [...]}; spans: texts with character offsets, of doccano,"
        " Prodigy, Label Studio or spaCy; text: one text per line, to predict;"
        " auto: conllu, jsonl or spans by the file's name and first line, else conll.",
        choices=FORMATS,
    )
    word_column: str | None = option(
        None,
        "Column of the words: its number from 0, or a negative number that counts from"
        " the last; for other formats its name. Default: 0; for conllu FORM; for spans"
        " text; else tokens or words.",
    )
    label_column: str | None = option(
        None,
        "Column of the labels. Default: -1; for conllu UPOS; for jsonl ner_tags, labels"
        " or tags; for TensorFlow datasets ner.",
    )
    # The sentences and their labels.
    train_file: str | None = option(
        None,
        "Sentences to train on; several files separated by commas, or a glob.",
        path=Path.FILES,
        needed_for=("do_train",),
        decides="nothing",
    )
    dev_file: str | None = option(
        None,
        "Sentences to evaluate on.",
        path=Path.FILES,
        needed_for=("do_eval", "eval_steps"),
        decides="nothing",
    )
    test_file: str | None = option(
        None,
        "Sentences to predict; scored if they have labels.",
        path=Path.FILES,
        needed_for=("do_predict",),
        decides="nothing",
    )
    spans_inside_words: str = option(
        "widen",
        "For --format=spans: what to do with a span that begins or ends within a word."
        " widen: extend it to whole words, and count it in a warning; refuse: report an"
        " error.",
        choices=("widen", "refuse"),
    )
    document_column: str = option(
        "document_id",
        "For jsonl: a field with the same value in all sentences of a document.",
    )
    test_has_labels: bool | None = option(
        None,
        "Whether --test_file has labels. Default: detected; false if the last column"
        " has no labels.",
    )
    tfds_name: str | None = option(
        None,
        "Read a TensorFlow dataset instead of files, such as conll2003, with its"
        " features named by --word_column and --label_column.",
    )
    tfds_splits: tuple[str, ...] = tfds_splits(
        {"train": "to train on", "dev": "to evaluate on", "test": "to predict"}
    )

    labels: tuple[str, ...] | None = option(
        None,
        "The labels in the order of the model's outputs; for files with numeric labels,"
        " their names. Default: those of the training sentences, or of a trained"
        " checkpoint if it has them all.",
    )
    tag_scheme: str = option(
        "auto",
        "How the labels in the files mark entities: iob1 (the original CoNLL-2003"
        " files), iob2, iobes, bilou, bmes, bmewo, bios (iobes without E), or none,"
        " such as for parts of speech; auto detects it. For iob1 the model's labels are"
        " iob2, and predictions are written in the scheme of the files.",
        choices=("auto", *SCHEMES, NO_SCHEME),
    )
    # How sentences become records.
    document_context: bool = option(
        False,
        "Read each sentence with as much of its document's context as --max_seq_length"
        " holds (Devlin et al. 2018, section 5.3).",
        title=options.LENGTHS,
        decides="reading",
    )
    doc_stride: int | None = option(
        None,
        "Long inputs are read in overlapping windows: tokens from the start of one"
        " window to the start of the next. A word is labelled in the window with the"
        " most context. Default: half a window.",
        least=1,
        title=options.LENGTHS,
        decides="reading",
    )
    # A BiLSTM on the features of a frozen BERT.
    features: str | None = option(
        None,
        "Do not fine-tune: take these layers' outputs of --init_checkpoint as they are,"
        " and train a two-layer BiLSTM on them. Sums have learned weights. Default"
        f" --learning_rate is then {BILSTM_LEARNING_RATE}, and --num_train_epochs"
        f" {BILSTM_EPOCHS}.",
        choices=tuple(FEATURE_CHOICES),
        title=options.TRAINING,
        decides="model",
    )
    feature_dir: str | None = option(
        None,
        "For --features: the folder to keep the features in; runs may share it."
        " Default: OUTPUT_DIR/features.",
        path=Path.OUTPUT,
        title=options.TRAINING,
        decides="nothing",
    )
    bilstm_size: int = option(
        768,
        "For --features: output size of a BiLSTM layer, half of it for each direction.",
        least=2,
        title=options.TRAINING,
        decides="model",
    )
    bilstm_dropout: float = option(
        0.1,
        "For --features: dropout rate of the input of each BiLSTM layer.",
        least=0.0,
        most=0.99,
        title=options.TRAINING,
    )

    num_mistakes: int = options.with_default(SentenceOptions, "num_mistakes", 50)

    def problems(self) -> Iterator[str]:
        """Yields options that exclude each other, or are without effect."""
        yield from super().problems()
        if self.max_seq_length < 3:
            yield f"`max_seq_length={self.max_seq_length}` must be at least 3."
        if self.document_context and self.tfds_name:
            yield (
                "`document_context` has no use with `tfds_name`: TensorFlow Datasets"
                " shuffle a set's sentences. Give its files."
            )
        if self.bilstm_size % 2:
            yield f"`bilstm_size={self.bilstm_size}` must be even."
        yield from self.need_one_of("do_train", "do_eval", "do_predict")
        yield from self.require_for(
            ("feature_dir", "bilstm_size", "bilstm_dropout"), needs="features"
        )
        for name in (
            *("frozen_layers", "layerwise_learning_rate_decay", "recompute"),
            *("smart_weight", "smart_proximal_weight", "mixout", "teacher_checkpoint"),
            *("bilstm", "cls_normalization"),
        ):
            yield from self.refuse_together("features", name, why=_NOTHING_TUNED)
        if self.features and self.recipe != "devlin":
            yield f"`features` and `recipe={self.recipe}` {_NOTHING_TUNED}."

    @property
    def layout(self) -> Layout:
        """The layout of the files."""
        return Layout(
            format=self.format,
            word_column=self.word_column,
            label_column=self.label_column,
            document_column=self.document_column,
            labels=self.labels,
            widens_spans=self.spans_inside_words == "widen",
        )


def check_files(options: TaggingOptions) -> None:
    """Raises InputError for files without sentences or columns; without TensorFlow."""
    for split, source in sources(options):
        has_labels = options.test_has_labels if split == "test" else True
        if isinstance(source, TfdsRows):
            continue
        for path in files.expand_globs(source, f"{split}_file"):
            check_file(path, options.layout, has_labels=has_labels)
